package main

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfrydb/belfry/jepsen/planted"
)

// TestCaught takes a bug for found only if all invariants that it claims found it in time, and the
// control for sound only if it was valid.
func TestCaught(t *testing.T) {
	for _, one := range []struct {
		claims, found []string
		took          time.Duration
		valid, want   bool
		or            []string
	}{
		{[]string{"I8"}, []string{"I10", "I8"}, time.Minute, false, true, nil},
		{[]string{"I8", "I9"}, []string{"I8"}, time.Minute, false, false, nil},
		{[]string{"I8"}, nil, time.Minute, false, false, nil},
		{[]string{"I1"}, []string{"I10"}, time.Minute, false, false, nil},
		{nil, []string{"I8"}, time.Minute, false, false, nil},
		{[]string{"I8"}, []string{"I8"}, proofMax + 1, false, false, nil},
		{[]string{"I8"}, nil, time.Minute, true, false, nil},
		{nil, nil, time.Minute, false, false, nil},
		{nil, nil, time.Minute, true, true, nil},
		{[]string{"I1", "I28"}, []string{"I1"}, time.Minute, false, false, []string{"I35"}},
		{[]string{"I1", "I28"}, []string{"I35"}, time.Minute, false, true, []string{"I35"}},
	} {
		p := proof{bug: planted.Bug{Name: "b", Claims: one.claims, Or: one.or}, found: one.found, took: one.took,
			valid: one.valid}
		if p.caught() != one.want {
			t.Errorf("claimed by %v, found by %v in %v, valid %v: caught %v", one.claims, one.found, one.took, one.valid,
				p.caught())
		}
		var out bytes.Buffer
		err := sayProofs(&out, []proof{p}, func(bugs []string) string { return "repeat " + strings.Join(bugs, ",") })
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if last := lines[len(lines)-1]; (err == nil) != one.want || errors.Is(err, errInvalid) == one.want ||
			strings.HasPrefix(last, "verdict: invalid: 1 of 1") == one.want {
			t.Errorf("it ends with %v and %q", err, last)
		}
		if strings.Contains(out.String(), "\nrepeat with: repeat b\n") == one.want {
			t.Errorf("how to repeat it: %s", &out)
		}
	}
}

// TestPickBugs refuses a name that is no bug's, also beside one that is.
func TestPickBugs(t *testing.T) {
	first := planted.Bugs()[0].Name
	if bugs, err := pickBugs(first); err != nil || len(bugs) != 1 || bugs[0].Name != first {
		t.Errorf("have %v, %v", bugs, err)
	}
	all, err := pickBugs("")
	if err != nil || len(all) != len(planted.Bugs())+2 {
		t.Fatalf("have %d, %v", len(all), err)
	}
	open, secured := all[len(all)-2], all[len(all)-1]
	for _, c := range []planted.Bug{open, secured} {
		if len(c.Claims) > 0 || len(c.Edits) > 0 || len(c.Nemeses) == 0 {
			t.Errorf("one of the last two is no control: %+v", c)
		}
	}
	for _, b := range planted.Bugs() {
		of := open
		if slices.Contains(b.Workloads, "access") {
			of = secured
		}
		if len(b.Claims) == 0 || !subset(b.Nemeses, of.Nemeses) || of.Workloads[0] != "all" &&
			!subset(b.Workloads, of.Workloads) {
			t.Errorf("%s shows under what no control has", b.Name)
		}
	}
	if _, err := pickBugs(first + ",none"); err == nil {
		t.Error("a bug that is none is left out silently")
	}
}

// subset reports whether all of a list are in another one.
func subset(some, all []string) bool {
	return !slices.ContainsFunc(some, func(one string) bool { return !slices.Contains(all, one) })
}
