package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/belfrydb/belfry/jepsen/report"
)

func newSummary() *summary {
	return &summary{Command: "repeat the suite", Verdict: report.Valid, Counts: map[string]int64{},
		Outages: map[string][]float64{}, Looked: map[string]int64{}}
}

// TestSummary adds runs up and says what they say together.
func TestSummary(t *testing.T) {
	good := &report.Report{
		Command: "repeat it", Verdict: report.Valid, Counts: map[string]int64{"calls": 10, "commands": 5},
		Faults: []report.Fault{{Name: "delay"}, {Name: "pause-one+power-all"}},
		Checks: []report.Check{{Invariant: "I1", Looked: 3}, {Invariant: "I2"}},
	}
	bad := &report.Report{Command: "repeat this", Verdict: report.Invalid,
		Violations: []report.Violation{{Invariant: "I8", Text: "early"}}}
	for _, one := range []struct {
		name    string
		runs    []*report.Report
		missing []string
		last    string
	}{
		{"valid", []*report.Report{good, good}, nil, "verdict: valid"},
		{"one is not", []*report.Report{good, bad, good}, nil, "verdict: invalid: 1 of 3 runs are invalid"},
		{"none", nil, nil, "verdict: invalid: there was no run"},
		{"promised more", []*report.Report{good}, []string{"one-way"}, "verdict: invalid: these did not strike: one-way"},
	} {
		s := newSummary()
		for _, r := range one.runs {
			s.add("dir", r)
		}
		s.Missing = one.missing
		dir := t.TempDir()
		var out bytes.Buffer
		err := s.finish(dir, &out)
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		valid := one.last == "verdict: valid"
		if lines[len(lines)-1] != one.last || errors.Is(err, errInvalid) == valid || err == nil != valid {
			t.Errorf("%s: error %v, last line %q", one.name, err, lines[len(lines)-1])
		}
		if !valid && len(one.runs) == 3 && !strings.Contains(out.String(), "repeat: repeat this\n  I8: early") {
			t.Errorf("it does not say how to repeat the run:\n%s", &out)
		}
		if strings.Contains(out.String(), "\nrepeat all with: repeat the suite\n") == valid {
			t.Errorf("%s: how to repeat it: %s", one.name, &out)
		}
		var kept summary
		b, err := os.ReadFile(filepath.Join(dir, "suite.json"))
		if err = errors.Join(err, json.Unmarshal(b, &kept)); err != nil || kept.Verdict == report.Valid != valid {
			t.Errorf("%s: kept as %s: %v", one.name, kept.Verdict, err)
		}
	}
}

// TestTimesAreNotAdded: of counts that are times a suite keeps the worst.
func TestTimesAreNotAdded(t *testing.T) {
	s := newSummary()
	for _, late := range []int64{7, 9, 8} {
		s.add("", &report.Report{Verdict: report.Valid, Counts: map[string]int64{"calls": 10, "lateness max (ms)": late}})
	}
	if diff := cmp.Diff(map[string]int64{"calls": 30, "lateness max (ms)": 9}, s.Counts); diff != "" {
		t.Error(diff)
	}
}

// TestMissing knows a kind that struck together with others, and no combination by its parts.
func TestMissing(t *testing.T) {
	s := newSummary()
	s.add("", &report.Report{Verdict: report.Valid, Faults: []report.Fault{{Name: "delay"}, {Name: "pause-one+power-all"}},
		Checks: []report.Check{{Invariant: "I1", Looked: 1}, {Invariant: "I2"}}})
	wanted := []string{"delay", "pause-one", "power-all", "one-way", "pause-one+power-all", "delay+power-all"}
	if diff := cmp.Diff([]string{"one-way", "delay+power-all"}, s.missing(wanted)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"I2"}, s.blind()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"a", "b+c", "d"}, promised([]settings{{nemeses: "a,b+c"}, {nemeses: "d"}})); diff != "" {
		t.Error(diff)
	}
}

// TestSuiteGoesOn has runs that cannot be made: each is invalid, and the next one is tried.
func TestSuiteGoesOn(t *testing.T) {
	s := newSummary()
	taken := t.TempDir()
	if err := os.WriteFile(filepath.Join(taken, "old.journal"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	for range 2 {
		s.carryOut(t.Context(), settings{dir: taken, workloads: "puts"}, &out)
	}
	if len(s.Runs) != 2 || s.Runs[1].Verdict != report.Invalid || !strings.Contains(s.Runs[1].Text, "is not empty") {
		t.Errorf("have %+v", s.Runs)
	}
	if strings.Count(out.String(), "go run ./jepsen run ") != 2 {
		t.Errorf("it does not say how to repeat runs that could not begin:\n%s", &out)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	s.carryOut(ended, settings{dir: taken}, &out)
	if len(s.Runs) != 2 {
		t.Error("it goes on after it was broken off")
	}
	if err := s.finish(t.TempDir(), &out); !errors.Is(err, errInvalid) {
		t.Errorf("it ends with %v", err)
	}
}
