package machine_test

import (
	"testing"
	"time"

	"github.com/belfrydb/belfry/fsm"
)

// debounced puts a job that later puts of its id put off by 10 s, for a minute at most.
func debounced() *fsm.Put {
	return put("d", delay(10*time.Second), func(p *fsm.Put) { p.OnExisting, p.MaxWait = fsm.ReplaceExisting, time.Minute })
}

// TestModelScenarioMaxWaitAfterFailure: the longest wait of a job that failed begins anew with the put
// that replaces it. A job that nobody worked on keeps its first put, and is overdue at once.
func TestModelScenarioMaxWaitAfterFailure(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	replaced := func(version uint64, state fsm.State, due time.Duration) fsm.Result {
		return fsm.Result{Replaced: true, State: state, Serial: 1, Due: after(due), Version: version}
	}
	first := created(1, fsm.Delayed, 10*time.Second)
	first.Version = 1
	fails := func(nack *fsm.Nack, want fsm.Result) []step {
		nack.Ref = ref(1, 2)
		return []step{
			{format: fsm.KeysFormat, do: do(debounced()), want: results(first)},
			{at: 10 * time.Second, do: do(reserve(1)),
				want: results(granted(lease(1, 2, 10*time.Second, 10*time.Second+fsm.DefaultTTR)))},
			{at: 11 * time.Second, do: do(nack), want: results(want)},
		}
	}
	anew := []step{ // a day later, and once more 55 s after that
		{at: day, do: do(debounced()), want: results(replaced(2, fsm.Delayed, day+10*time.Second))},
		{at: day + 55*time.Second, do: do(debounced()), want: results(replaced(3, fsm.Delayed, day+time.Minute))},
	}
	redriven := step{at: time.Minute, do: do(&fsm.Redrive{Queue: "q"}), want: results(count(1))}
	dead := func() []step { return fails(&fsm.Nack{Dead: true}, ended(fsm.Dead)) }
	runScenarios(t, []scenario{
		{name: "dead", steps: append(dead(), anew...)},
		{name: "redriven", steps: append(append(dead(), redriven), anew...)},
		{name: "nacked", steps: append(
			fails(&fsm.Nack{Delay: time.Hour, DelayGiven: true}, waiting(fsm.Delayed, time.Hour+11*time.Second)), anew...)},
		{name: "never leased", steps: []step{
			{format: fsm.KeysFormat, do: do(debounced()), want: results(first)},
			{at: day, do: do(debounced()), want: results(replaced(2, fsm.Ready, time.Minute))},
		}},
	})
}
