package machine_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belfrydb/belfry/fsm"
)

// TestModelScenarioDue puts jobs from now to years away and reads when they fall due: at once, and
// later, when no command has moved the due jobs since. The start is eight o'clock.
func TestModelScenarioDue(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	slice := func(at time.Duration, jobs uint64) fsm.DueSlice { return fsm.DueSlice{Start: after(at), Jobs: jobs} }
	seen := func(ahead time.Duration, want fsm.Due) func(*testing.T, shard) {
		return func(t *testing.T, s shard) {
			t.Helper()
			q, _ := s.Queue("q", s.Clock().Add(ahead))
			if diff := cmp.Diff(want, q.Due); diff != "" {
				t.Errorf("%v ahead (-want +got):\n%s", ahead, diff)
			}
		}
	}
	var puts []fsm.Command
	var answers []fsm.Result
	for i, d := range []time.Duration{
		20 * time.Second, 50 * time.Second, 59*time.Minute + 59*time.Second, time.Hour, 20 * time.Hour, 24 * time.Hour,
		29 * day, 30 * day, 3650 * day,
	} {
		puts, answers = append(puts, put("", delay(d))), append(answers, created(uint64(i+1), fsm.Delayed, d))
	}
	puts, answers = append(puts, put("ready")), append(answers, created(10, fsm.Ready, 0))
	runScenarios(t, []scenario{{name: "when jobs fall due", steps: []step{
		{do: puts, want: answers, look: seen(0, fsm.Due{
			Overdue: 1, Minute: 2, Hour: 3, Day: 5, Month: 7, Later: 2,
			Minutes: []fsm.DueSlice{slice(0, 2), slice(59*time.Minute, 1)},
			Hours:   []fsm.DueSlice{slice(0, 3), slice(time.Hour, 1), slice(20*time.Hour, 1)},
			Days:    []fsm.DueSlice{slice(-8*time.Hour, 4), slice(16*time.Hour, 2), slice(29*day-8*time.Hour, 1)},
		})},
		{look: seen(59*time.Minute, fsm.Due{
			Overdue: 3, Minute: 1, Hour: 2, Day: 3, Month: 5, Later: 2,
			Minutes: []fsm.DueSlice{slice(59*time.Minute, 1), slice(time.Hour, 1)},
			Hours:   []fsm.DueSlice{slice(0, 1), slice(time.Hour, 1), slice(20*time.Hour, 1)},
			Days:    []fsm.DueSlice{slice(-8*time.Hour, 2), slice(16*time.Hour, 2), slice(29*day-8*time.Hour, 1)},
		})},
		{look: seen(24*time.Hour+30*time.Minute, fsm.Due{
			Overdue: 7, Month: 2, Later: 1,
			Days: []fsm.DueSlice{slice(29*day-8*time.Hour, 1), slice(30*day-8*time.Hour, 1)},
		})},
		{at: 100 * day, do: do(&fsm.Expire{}), want: results(count(8)), look: seen(0, fsm.Due{Overdue: 9, Later: 1})},
		{
			at: 100 * day, do: do(&fsm.DeleteQueue{Queue: "q"}, put("")),
			want: results(count(10), created(11, fsm.Ready, 100*day)), look: seen(0, fsm.Due{Overdue: 1}),
		},
	}}})
}
