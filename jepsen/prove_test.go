package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/belfrydb/belfry/jepsen/planted"
)

// TestCaught takes a bug for found only if all who claim it found it, in time.
func TestCaught(t *testing.T) {
	for _, one := range []struct {
		claims, found []string
		took          time.Duration
		want          bool
	}{
		{[]string{"I8"}, []string{"I10", "I8"}, time.Minute, true},
		{[]string{"I8", "I9"}, []string{"I8"}, time.Minute, false},
		{[]string{"I8"}, nil, time.Minute, false},
		{[]string{"I1"}, []string{"I10"}, time.Minute, false},
		{nil, []string{"I8"}, time.Minute, false},
		{[]string{"I8"}, []string{"I8"}, proofMax + 1, false},
	} {
		p := proof{bug: planted.Bug{Name: "b", Claims: one.claims}, found: one.found, took: one.took}
		if p.caught() != one.want {
			t.Errorf("claimed by %v, found by %v in %v: caught %v", one.claims, one.found, one.took, p.caught())
		}
		var out bytes.Buffer
		err := sayProofs(&out, []proof{p})
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if last := lines[len(lines)-1]; (err == nil) != one.want || errors.Is(err, errInvalid) == one.want || strings.HasPrefix(last, "verdict: invalid: 1 of 1") == one.want {
			t.Errorf("it ends with %v and %q", err, last)
		}
	}
}

// TestPickBugs refuses a name that is no bug's, also beside one that is.
func TestPickBugs(t *testing.T) {
	first := planted.Bugs()[0].Name
	if bugs, err := pickBugs(first); err != nil || len(bugs) != 1 || bugs[0].Name != first {
		t.Errorf("have %v, %v", bugs, err)
	}
	if all, err := pickBugs(""); err != nil || len(all) != len(planted.Bugs()) {
		t.Errorf("have %d, %v", len(all), err)
	}
	if _, err := pickBugs(first + ",none"); err == nil {
		t.Error("a bug that is none is left out silently")
	}
}
