package soak

import (
	"testing"

	"github.com/belfrydb/belfry/fsm"
)

// TestTook: what is OK and changed nothing is no effect. Such a request is not remembered, so that a
// repeat of it may take effect.
func TestTook(t *testing.T) {
	for name, tt := range map[string]struct {
		command fsm.Command
		result  fsm.Result
		want    bool
	}{
		"a run that put a job":        {&fsm.RunSchedule{}, fsm.Result{Count: 1}, true},
		"a run whose jobs were there": {&fsm.RunSchedule{}, fsm.Result{}, false},
		"a pause":                     {&fsm.PauseSchedules{}, fsm.Result{Count: 1}, true},
		"a pause of none":             {&fsm.PauseSchedules{}, fsm.Result{}, false},
		"a put that meets its first":  {&fsm.Put{}, fsm.Result{}, false},
		"a put of a schedule":         {&fsm.PutSchedule{}, fsm.Result{Replaced: true}, true},
		"a deletion":                  {&fsm.DeleteSchedule{}, fsm.Result{}, true},
		"a repeat that is known":      {&fsm.DeleteSchedule{}, fsm.Result{Replayed: true}, false},
		"a refusal":                   {&fsm.DeleteSchedule{}, fsm.Result{Code: fsm.ScheduleNotFound}, false},
	} {
		if got := took(tt.command, tt.result); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
