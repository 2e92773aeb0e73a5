package propose

import (
	"testing"

	"github.com/belfrydb/belfry/fsm"
)

// TestCostOfKicks: a kick costs as much as the jobs that it may touch.
func TestCostOfKicks(t *testing.T) {
	for want, c := range map[uint64]*fsm.Kick{
		1: {Serial: 7, Max: 100}, 100: {Max: 100}, fsm.StepMax: {}, fsm.StepMax + 1: {Max: 1 << 31},
	} {
		if got := requestCost(&fsm.Request{Commands: []fsm.Command{c}}); got != min(want, fsm.StepMax) {
			t.Errorf("%+v costs %d, want %d", c, got, want)
		}
	}
}
