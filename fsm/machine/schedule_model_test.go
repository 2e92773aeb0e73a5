package machine_test

import (
	"testing"

	"github.com/belfrydb/belfry/fsm"
)

// TestModelScenarioFullQueue: a firing and a run wait for room in a full queue; a run puts what fits.
func TestModelScenarioFullQueue(t *testing.T) {
	t.Parallel()
	for _, of := range implementations() {
		t.Run(of.name, func(t *testing.T) {
			s := of.open(t, fsm.Config{})
			speak(s, fsm.KeysFormat)
			s.Apply(start, []fsm.Request{{Commands: do(
				&fsm.Configure{Queue: "q", Partitions: 1, Version: 1, Settings: fsm.Settings{MaxJobs: 2}},
				&fsm.PutSchedule{Queue: "q", Partitions: 1, Name: "s", Next: start + 1},
			)}})
			run := &fsm.RunSchedule{Queue: "q", Name: "s", Times: []fsm.Time{5, 6, 7}}
			list := s.Apply(start+2, []fsm.Request{{Commands: do(run, run,
				&fsm.Fire{Queue: "q", Name: "s", Serial: 1, Version: 1, Nominal: start + 1, Put: start + 1, Due: start + 1},
			)}})
			if list[0].Count != 2 || !list[0].More || list[1].Code != fsm.QueueFull || list[2].Code != fsm.QueueFull {
				t.Errorf("%+v", list)
			}
		})
	}
}
