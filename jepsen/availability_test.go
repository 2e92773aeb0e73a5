package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/jepsen/checker/availability"

	"github.com/google/go-cmp/cmp"

	"github.com/belfrydb/belfry/jepsen/checker"
	"github.com/belfrydb/belfry/jepsen/history"
	"github.com/belfrydb/belfry/jepsen/report"
)

// TestMeasureStalls: a clock that jumps while the harness waits is a stall, and one that goes on is
// none.
func TestMeasureStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		now := func() time.Duration {
			at := time.Since(began)
			if at >= time.Second {
				at += 300 * time.Millisecond
			}
			return at
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		want := []checker.Span{{From: time.Second, To: 1300 * time.Millisecond}}
		if diff := cmp.Diff(want, measureStalls(ctx, now)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// TestStrikes: what a fault spares comes to the checker, and what that found comes back to the
// fault.
func TestStrikes(t *testing.T) {
	faults := []report.Fault{
		{Name: "power-all", From: 1, To: 2},
		{Name: "disk-hung", From: 3, To: 9, Effect: &report.Effect{
			Began: 4, Struck: 5, Healing: 8, Healthy: []string{"n1", "n2"}, Victims: []string{"n3"}, Allowed: 4,
			Why: "it takes longer",
		}},
	}
	want := []availability.Strike{
		{Name: "power-all", From: time.Second, To: 2 * time.Second},
		{
			Name: "disk-hung", From: 3 * time.Second, Began: 4 * time.Second, Struck: 5 * time.Second, Healing: 8 * time.Second,
			To:      9 * time.Second,
			Healthy: []string{"n1", "n2"}, Victims: []string{"n3"}, Allowed: 4 * time.Second,
		},
	}
	if diff := cmp.Diff(want, strikes(faults)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	judged(faults, []availability.Result{{}, {Served: map[string]time.Duration{"n1": 1500 * time.Millisecond},
		Slack: time.Second}})
	if got := faults[1].Availability; faults[0].Availability != nil || got == nil || got.Served["n1"] != 1.5 ||
		got.Slack != 1 {
		t.Errorf("have %+v and %+v", faults[0].Availability, faults[1].Availability)
	}
}

// TestReadStatuses reads the statuses of a run, all of them or none.
func TestReadStatuses(t *testing.T) {
	dir, h := t.TempDir(), history.New()
	h.AddStatus(history.Status{Node: "n1", Asked: 1, Answered: 2})
	h.AddStatus(history.Status{Node: "n2", Asked: 3, Answered: 4, Problems: []string{"node n1 does not answer"}})
	var text bytes.Buffer
	if err := h.WriteStatuses(&text); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, statusName), text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	again := history.New()
	if err := readStatuses(dir, &record{Statuses: 2}, again); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(h.Statuses(), again.Statuses()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := readStatuses(dir, &record{Statuses: 3}, history.New()); err == nil {
		t.Error("one status is missing, and is not missed")
	}
	if err := readStatuses(t.TempDir(), &record{}, history.New()); err != nil {
		t.Errorf("a run of old, without statuses: %v", err)
	}
}
