package batching

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestWhenBatchesMayLeave: calls leave at once, behind few others, or when the last batch takes too
// long; polls that wait leave for half of the last callers too.
func TestWhenBatchesMayLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits, now := Limits{InFlight: 2, MaxCalls: 1000}, time.Now()
		for name, try := range map[string]struct {
			inFlight, pending int
			last              lastBatch
			calls, polls      bool
		}{
			"nothing to send":               {0, 0, lastBatch{}, false, false},
			"the first":                     {0, 1, lastBatch{1000, now}, true, true},
			"a few of the last callers":     {1, 49, lastBatch{100, now}, false, false},
			"half of the last callers":      {1, 50, lastBatch{100, now}, false, true},
			"few callers":                   {1, 1, lastBatch{3, now}, false, true},
			"a full batch":                  {1, 1000, lastBatch{5000, now}, true, true},
			"the last batch takes too long": {1, 1, lastBatch{100, now.Add(-HoldMax - 1)}, true, true},
			"all slots taken":               {2, 1000, lastBatch{1, now}, false, false},
			"all slots taken, and for long": {2, 1000, lastBatch{1, now.Add(-time.Hour)}, false, false},
		} {
			calls, polls := Source{Limits: limits}, Source{Limits: limits, Waits: true}
			if got := calls.mayLeave(try.inFlight, try.pending, try.last); got != try.calls {
				t.Errorf("%s: %v", name, got)
			}
			if got := polls.mayLeave(try.inFlight, try.pending, try.last); got != try.polls {
				t.Errorf("polls, %s: %v", name, got)
			}
		}
	})
}

// TestGateForgetsOldBatches: a large batch of long ago does not make a single call wait.
func TestGateForgetsOldBatches(t *testing.T) {
	source := Source{Limits: Limits{MaxCalls: 1000}, Gate: &Gate{}}
	for age, want := range map[time.Duration]bool{0: true, 2 * gateMaxAge: false} {
		if got := source.passesGate(1, lastBatch{GateMinCalls, time.Now().Add(-age)}); got != want {
			t.Errorf("one call %v after a large batch passes the gate: %v", age, got)
		}
	}
}

// TestExpectedCallsCount, also after a larger batch of long ago.
func TestExpectedCallsCount(t *testing.T) {
	source := Source{
		Limits: Limits{MaxCalls: 1000}, Gate: &Gate{}, Expected: func() int { return GateMinCalls },
	}
	if !source.passesGate(1, lastBatch{10 * GateMinCalls, time.Now().Add(-2 * gateMaxAge)}) {
		t.Error("the batch does not pass the gate")
	}
}
