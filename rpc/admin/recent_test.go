package admin

import (
	"testing"
	"time"

	"github.com/belfrydb/belfry/fsm"
)

// TestRecentPartsAreAddedUp: each part of a queue tells of a window of its own, and one that tells
// nothing makes the whole unknown.
func TestRecentPartsAreAddedUp(t *testing.T) {
	part := func(r *fsm.Recent) queuePart { return queuePart{Queue: &fsm.Queue{Recent: r}} }
	whole := fsm.Recent{
		Window: fsm.RecentWindow, Puts: 120, Grants: 60, Acks: 30, Late: [fsm.LateBuckets]uint64{3: 98, 10: 1},
		LateMax: 800 * time.Millisecond,
	}
	young := fsm.Recent{Window: 10 * time.Second, Puts: 50, Late: [fsm.LateBuckets]uint64{0: 1}}
	sum := sumRecent([]queuePart{part(&whole), part(&young), part(&fsm.Recent{Window: fsm.RecentWindow})})
	rates, late := sum.rates(), sum.lateness()
	if rates.GetPutsPerSecond() != 7 || rates.GetReservesPerSecond() != 1 || rates.GetAcksPerSecond() != 0.5 ||
		rates.GetWindow().AsDuration() != 10*time.Second {
		t.Errorf("rates %v", rates)
	}
	if late.GetJobs() != 100 || late.GetP50().AsDuration() != 8*time.Millisecond ||
		late.GetP99().AsDuration() != 8*time.Millisecond || late.GetMax().AsDuration() != 800*time.Millisecond {
		t.Errorf("lateness %v", late)
	}
	idle := sumRecent([]queuePart{part(&fsm.Recent{Window: fsm.RecentWindow})})
	if idle.rates() == nil || idle.rates().GetPutsPerSecond() != 0 || idle.lateness() != nil {
		t.Errorf("of an idle queue: %v, %v", idle.rates(), idle.lateness())
	}
	if sum := sumRecent([]queuePart{part(&whole), part(nil)}); sum.rates() != nil || sum.lateness() != nil {
		t.Errorf("of a part that tells nothing: %v, %v", sum.rates(), sum.lateness())
	}
}

// TestWaitingConsumers: each consumer waits in all partitions, and one that does not know makes the number
// unknown.
func TestWaitingConsumers(t *testing.T) {
	part := func(calls *uint64) queuePart { return queuePart{Queue: &fsm.Queue{Parked: calls}} }
	two, three := part(new(uint64(2))), part(new(uint64(3)))
	if n := waiting([]queuePart{two, three, two}); n == nil || *n != 3 {
		t.Errorf("%v wait, want 3", n)
	}
	if n := waiting([]queuePart{two, part(nil)}); n != nil {
		t.Errorf("%d wait, want a number that is not known", *n)
	}
}
