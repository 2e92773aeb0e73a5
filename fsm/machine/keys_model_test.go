package machine_test

import (
	"fmt"
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

// TestModelWakesInSteps: more keys get a token at one time than an entry may wake, in a queue by ranks
// and in a fair one. Reserves wake them alike in machine and model, with a snapshot restored between two
// of them.
func TestModelWakesInSteps(t *testing.T) {
	t.Parallel()
	for _, fair := range []bool{false, true} {
		t.Run(fmt.Sprintf("fair %v", fair), func(t *testing.T) {
			t.Parallel()
			d := newDuel(fsm.Config{WakeMax: 3}, asItIs())
			enter := func(at time.Duration, snapshot snapshotKind, commands ...fsm.Command) (granted int) {
				t.Helper()
				list, err := d.step(&event{
					snapshot: snapshot, format: fsm.KeysFormat, stamp: after(at), requests: []fsm.Request{{Commands: commands}},
				})
				if err != nil {
					t.Fatal(err)
				}
				for i := range list {
					granted += len(list[i].Grants)
				}
				return granted
			}
			enter(0, noSnapshot, &fsm.Configure{Queue: "q", Partitions: 1, Version: 1, Settings: fsm.Settings{
				Keys: fsm.KeySettings{Rate: fsm.KeyRate{Count: 1, Per: time.Minute}, Fair: fair},
			}})
			var puts []fsm.Command
			for i := range 30 {
				puts = append(puts, put("", func(p *fsm.Put) { p.Key, p.Priority = fmt.Sprint("k", i%10), int64(-i%10) }))
			}
			enter(0, noSnapshot, puts...)
			for i, step := range []struct {
				at    time.Duration
				most  []uint32
				wants int
			}{
				{0, []uint32{10}, 10},
				{time.Minute, []uint32{1, 2}, 3}, // wakes 3 keys and 2 more: 2 stay awake
				{time.Minute, []uint32{10}, 5},
				{time.Minute, []uint32{10}, 2},
			} {
				var commands []fsm.Command
				for _, most := range step.most {
					commands = append(commands, &fsm.Reserve{Queues: []string{"q"}, Max: most, TTR: time.Hour})
				}
				if got := enter(step.at, restored, commands...); got != step.wants {
					t.Errorf("reservation %d got %d jobs, should get %d", i, got, step.wants)
				}
			}
			if err := d.close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}
