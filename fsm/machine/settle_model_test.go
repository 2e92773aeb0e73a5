package machine_test

import (
	"testing"
	"time"

	"github.com/belfrydb/belfry/fsm"
)

func TestModelScenarioSettling(t *testing.T) {
	t.Parallel()
	look := cancel("unknown")
	nothing := code(fsm.JobNotFound)
	runScenarios(t, []scenario{
		{name: "the clock never goes back", steps: []step{
			{at: time.Minute, do: do(put("a")), want: results(created(1, fsm.Ready, time.Minute))},
			{at: 0, do: do(put("b")), want: results(created(2, fsm.Ready, time.Minute))},
		}},
		{name: "any command that names the queue settles it", steps: []step{
			{do: do(put("a", delay(time.Second))), want: results(created(1, fsm.Delayed, time.Second))},
			{at: time.Second, do: do(look), want: results(nothing), held: map[string]fsm.State{"a": fsm.Ready}},
		}},
		{name: "only the first of an entry does", steps: []step{
			{do: do(put("a", ttl(0)), look), want: results(created(1, fsm.Ready, 0), nothing),
				look: func(t *testing.T, s shard) {
					t.Helper()
					if q, _ := s.Queue("q", s.Clock()); q.Counts.Ready != 1 || q.Counters.Expired != 0 {
						t.Errorf("the job was expired in the entry that put it: %+v", q.Counters)
					}
				}},
			{do: do(look), want: results(nothing), look: func(t *testing.T, s shard) {
				t.Helper()
				if q, _ := s.Queue("q", s.Clock()); q.Counts.Ready != 0 || q.Counters.Expired != 1 {
					t.Errorf("the job was not expired: %+v", q.Counters)
				}
			}},
		}},
		{name: "ttl counts from the put and ends waiting jobs", steps: []step{
			{do: do(put("a", ttl(time.Second)), put("b", ttl(time.Second), delay(time.Hour)),
				put("c", ttl(time.Second), priority(-1)), reserve(1)), want: results(created(1, fsm.Ready, 0),
				created(2, fsm.Delayed, time.Hour), created(3, fsm.Ready, 0), granted(lease(3, 4, 0, leaseEnd)))},
			{
				at: time.Second, do: do(look), want: results(nothing),
				held: map[string]fsm.State{"a": fsm.StateNone, "b": fsm.StateNone, "c": fsm.Reserved},
			},
			{at: time.Second, do: do(put("a", ttl(time.Second))), want: results(met(1, fsm.Expired, 0))},
		}},
		{name: "ttl to the dead letters", steps: []step{
			{
				do:   do(configure(1, fsm.Settings{ExpireToDead: true}), put("a", ttl(time.Second))),
				want: results(okay(), created(1, fsm.Ready, 0)),
			},
			{at: time.Second, do: do(&fsm.Expire{}), want: results(count(1)), held: map[string]fsm.State{"a": fsm.Dead}},
			{
				at: time.Second, do: do(&fsm.Redrive{Queue: "q"}), want: results(count(1)),
				held: map[string]fsm.State{"a": fsm.Ready},
			},
		}},
		{name: "the next deadline is the first of all", steps: []step{
			{do: do(put("a", delay(3*time.Second)), put("b", ttl(2*time.Second), into("r", 0, 1)), put("c", ttr(time.Second)),
				reserve(1)), want: results(created(1, fsm.Delayed, 3*time.Second),
				created(2, fsm.Ready, 0), created(3, fsm.Ready, 0), granted(lease(3, 4, 0, time.Second))),
				look: deadlineIs(after(time.Second))},
			{do: do(ack(3, 4)), want: results(acked()), look: deadlineIs(after(2 * time.Second))},
			{do: do(&fsm.DeleteQueue{Queue: "r"}), want: results(count(1)), look: deadlineIs(after(3 * time.Second))},
			{do: do(cancel("a")), want: results(ended(fsm.Delayed)), look: deadlineIs(0)},
		}},
	})
}

func TestModelScenarioSettlingLimits(t *testing.T) {
	t.Parallel()
	stale := code(fsm.StaleLease)
	runScenarios(t, []scenario{
		{name: "expire has a limit and says if there is more", steps: []step{
			{do: puts(fsm.StepMax+1, delay(ms)), want: createdDelayed(1, fsm.StepMax+1, ms)},
			{do: do(put("", into("r", 0, 1), delay(ms))), want: results(created(fsm.StepMax+2, fsm.Delayed, ms))},
			{at: ms, do: do(&fsm.Expire{}), want: results(fsm.Result{Count: fsm.StepMax, More: true})},
			{at: ms, do: do(&fsm.Expire{}), want: results(count(2))},
		}},
		{name: "a lease that no settling has come to is stale all the same", steps: []step{
			{do: puts(fsm.StepMax + 1), want: createdReady(1, fsm.StepMax+1, 0)},
			{
				do:   do(&fsm.Reserve{Queues: []string{"q"}, Max: fsm.StepMax + 1, TTR: ms}),
				want: results(granted(leases(fsm.StepMax + 1)...)),
			},
			{
				at: ms, do: do(ack(fsm.StepMax+1, 2*fsm.StepMax+2), &fsm.Extend{Ref: ref(fsm.StepMax+1, 2*fsm.StepMax+2)}),
				want: results(stale, stale), look: deadlineIs(after(ms)),
			},
		}},
		{name: "a reserve expires so many on its way and then leaves the queue", steps: []step{
			{do: puts(2*fsm.StepMax+1, ttl(ms)), want: createdReady(1, 2*fsm.StepMax+1, 0)},
			{
				do:   do(put("", priority(1)), put("", into("r", 0, 1))),
				want: results(created(2*fsm.StepMax+2, fsm.Ready, 0), created(2*fsm.StepMax+3, fsm.Ready, 0)),
			},
			{at: ms, do: do(&fsm.Reserve{Queues: []string{"q", "r"}, Max: 2}), want: results(granted(
				fsm.Grant{
					Queue: "r", Serial: 2*fsm.StepMax + 3, Fence: 2*fsm.StepMax + 4, Attempt: 1, Due: start,
					Until: after(leaseEnd + ms),
				}))},
			{at: ms, do: do(reserve(2)), want: results(granted(lease(2*fsm.StepMax+2, 2*fsm.StepMax+5, 0, leaseEnd+ms)))},
		}},
		{name: "a settling has a limit, and the backlog is passed over", steps: []step{
			{do: puts(fsm.StepMax, delay(ms)), want: createdDelayed(1, fsm.StepMax, ms)},
			{do: do(put("", delay(2*ms), priority(-1))), want: results(created(fsm.StepMax+1, fsm.Delayed, 2*ms))},
			{
				at: 2 * ms, do: do(reserve(1), reserve(1)),
				want: results(granted(lease(1, fsm.StepMax+2, ms, 2*ms+leaseEnd)),
					granted(lease(2, fsm.StepMax+3, ms, 2*ms+leaseEnd))),
			},
			{at: 2 * ms, do: do(reserve(1)), want: results(granted(lease(fsm.StepMax+1, fsm.StepMax+4, 2*ms, 2*ms+leaseEnd)))},
		}},
	})
}

func TestModelScenarioLead(t *testing.T) {
	t.Parallel()
	lead := &fsm.Lead{Grace: time.Second}
	look := cancel("unknown")
	nothing := code(fsm.JobNotFound)
	overdue := func(p fsm.OverduePolicy, period time.Duration) *fsm.Configure {
		return configure(1, fsm.Settings{Overdue: p, OverduePeriod: period, ExpireToDead: true})
	}
	three := do(put("a", delay(10*time.Second)), put("b", delay(40*time.Second)), put("c", delay(100*time.Second)),
		unsettled())
	threeCreated := results(created(1, fsm.Delayed, 10*time.Second), created(2, fsm.Delayed, 40*time.Second),
		created(3, fsm.Delayed, 100*time.Second), created(4, fsm.Ready, 0))
	runScenarios(t, []scenario{
		{name: "leases last at least the grace", steps: []step{
			{do: do(put("a"), put("b"), reserve(1), &fsm.Reserve{
				Queues: []string{"q"}, Max: 1, TTR: time.Hour,
			}), want: results(created(1, fsm.Ready, 0), created(2, fsm.Ready, 0),
				granted(lease(1, 3, 0, leaseEnd)), granted(lease(2, 4, 0, time.Hour)))},
			{at: leaseEnd + 7*ms, do: do(lead), want: results(okay()), look: deadlineIs(after(leaseEnd + 7*ms + time.Second))},
			{at: leaseEnd + 6*ms + time.Second, do: do(ack(1, 3)), want: results(acked()), look: deadlineIs(after(time.Hour))},
		}},
		{name: "grace counts from the clock if the stamp is behind", steps: []step{
			{
				at: time.Minute, do: do(put("a"), &fsm.Reserve{Queues: []string{"q"}, Max: 1, TTR: ms}),
				want: results(created(1, fsm.Ready, time.Minute), granted(lease(1, 2, time.Minute, time.Minute+ms))),
			},
			{at: 0, do: do(lead), want: results(okay()), look: deadlineIs(after(time.Minute + time.Second))},
		}},
		{name: "fire: all are ready at once", steps: []step{
			{do: three, want: threeCreated},
			{
				at: time.Minute, do: do(lead, look), want: results(okay(), nothing),
				held: map[string]fsm.State{"a": fsm.Ready, "b": fsm.Ready, "c": fsm.Delayed},
			},
		}},
		{name: "spread: over the period, in proportion", steps: []step{
			{
				do:   append(do(overdue(fsm.SpreadOverdue, 6*time.Minute)), three...),
				want: append(results(okay()), threeCreated...),
			},
			{
				at: time.Minute, do: do(lead, look), want: results(okay(), nothing),
				held: map[string]fsm.State{"a": fsm.Delayed, "b": fsm.Delayed, "c": fsm.Delayed},
				look: deadlineIs(after(100 * time.Second)),
			},
			{
				at: 2*time.Minute - 1, do: do(look), want: results(nothing),
				held: map[string]fsm.State{"a": fsm.Delayed, "c": fsm.Ready}, look: deadlineIs(after(2 * time.Minute)),
			},
			{
				at: 5 * time.Minute, do: do(look), want: results(nothing),
				held: map[string]fsm.State{"a": fsm.Ready, "b": fsm.Ready},
			},
		}},
		{name: "spread rounds up and so never comes back to the window", steps: []step{
			{do: do(overdue(fsm.SpreadOverdue, 1), put("a", delay(ms))), want: results(okay(), created(1, fsm.Delayed, ms))},
			{at: time.Hour, do: do(lead, look), want: results(okay(), nothing), look: deadlineIs(after(time.Hour + ms))},
		}},
	})
}

func TestModelScenarioLeadSpreadOrDrop(t *testing.T) {
	t.Parallel()
	lead := &fsm.Lead{Grace: time.Second}
	look := cancel("unknown")
	nothing := code(fsm.JobNotFound)
	overdue := func(p fsm.OverduePolicy, period time.Duration) *fsm.Configure {
		return configure(1, fsm.Settings{Overdue: p, OverduePeriod: period, ExpireToDead: true})
	}
	three := do(put("a", delay(10*time.Second)), put("b", delay(40*time.Second)), put("c", delay(100*time.Second)),
		unsettled())
	threeCreated := results(created(1, fsm.Delayed, 10*time.Second), created(2, fsm.Delayed, 40*time.Second),
		created(3, fsm.Delayed, 100*time.Second), created(4, fsm.Ready, 0))
	runScenarios(t, []scenario{
		{name: "spread rounds up every part of a millisecond", steps: []step{
			{do: do(configure(1, fsm.Settings{
				Overdue: fsm.SpreadOverdue, OverduePeriod: 4 * ms, OverdueAfter: 3 * ms,
			}), put("a", delay(ms)), put("b", delay(2*ms)), put("c", delay(3*ms)), unsettled()),
				want: results(okay(), created(1, fsm.Delayed, ms), created(2, fsm.Delayed, 2*ms), created(3, fsm.Delayed, 3*ms),
					created(4, fsm.Ready, 0))},
			// 4/3, 8/3 and 12/3 of a millisecond after the window's end at 3.
			{at: 3 * ms, do: do(lead, look), want: results(okay(), nothing), look: deadlineIs(after(5 * ms))},
			{
				at: 5 * ms, do: do(look), want: results(nothing), held: map[string]fsm.State{"a": fsm.Ready},
				look: deadlineIs(after(6 * ms)),
			},
			{
				at: 6 * ms, do: do(look), want: results(nothing), held: map[string]fsm.State{"b": fsm.Ready},
				look: deadlineIs(after(7 * ms)),
			},
		}},
		{name: "spread over no time is fire", steps: []step{
			{do: do(overdue(fsm.SpreadOverdue, 0), put("a", delay(ms))), want: results(okay(), created(1, fsm.Delayed, ms))},
			{at: time.Hour, do: do(lead, look), want: results(okay(), nothing), held: map[string]fsm.State{"a": fsm.Ready}},
		}},
		{name: "drop: gone, even if the queue keeps expired jobs", steps: []step{
			{do: append(do(overdue(fsm.DropOverdue, 0)), three...), want: append(results(okay()), threeCreated...)},
			{
				at: time.Minute, do: do(lead, put("a", delay(10*time.Second))),
				want: results(okay(), met(1, fsm.Expired, 10*time.Second)),
				held: map[string]fsm.State{"b": fsm.StateNone, "c": fsm.Delayed},
			},
			{at: 2 * time.Minute, do: do(look), want: results(nothing), held: map[string]fsm.State{"c": fsm.Ready}},
		}},
		{name: "a short pause is none", steps: []step{
			{do: append(do(overdue(fsm.DropOverdue, 0)), three...), want: append(results(okay()), threeCreated...)},
			{
				at: time.Minute - 1, do: do(lead, look), want: results(okay(), nothing),
				held: map[string]fsm.State{"a": fsm.Ready, "b": fsm.Ready},
			},
		}},
		{name: "a queue says how long a pause must be", steps: []step{
			{
				do: do(configure(1, fsm.Settings{
					Overdue: fsm.DropOverdue, OverdueAfter: 2 * ms,
				}), put("a", delay(ms)), unsettled()),
				want: results(okay(), created(1, fsm.Delayed, ms), created(2, fsm.Ready, 0)),
			},
			{at: 2 * ms, do: do(lead, look), want: results(okay(), nothing), held: map[string]fsm.State{"a": fsm.StateNone}},
		}},
	})
}

// unsettled puts a job that is over at once. Since no command settles it in the same entry, an
// outage that follows began with it.
func unsettled() *fsm.Put { return put("", ttl(0)) }

func TestModelScenarioOutage(t *testing.T) {
	t.Parallel()
	lead, look, elsewhere := &fsm.Lead{Grace: time.Second}, cancel("unknown"), &fsm.Cancel{Queue: "never", ID: "unknown"}
	nothing := code(fsm.JobNotFound)
	drop := configure(1, fsm.Settings{Overdue: fsm.DropOverdue})
	const due = 10 * time.Second
	one := step{do: do(drop, put("a", delay(due))), want: results(okay(), created(1, fsm.Delayed, due))}
	ready, dropped := map[string]fsm.State{"a": fsm.Ready}, map[string]fsm.State{"a": fsm.StateNone}
	runScenarios(t, []scenario{
		{name: "a quiet time is none", steps: []step{
			{do: do(drop, put("a", delay(time.Hour))), want: results(okay(), created(1, fsm.Delayed, time.Hour))},
			{at: time.Hour, do: do(lead, look), want: results(okay(), nothing), held: ready},
		}},
		{name: "it begins a nanosecond before what nobody settled", steps: []step{
			one,
			{at: due + time.Minute - 1, do: do(lead, look), want: results(okay(), nothing), held: dropped},
		}},
		{name: "and counts from there", steps: []step{
			one,
			{at: due + time.Minute - 2, do: do(lead, look), want: results(okay(), nothing), held: ready},
		}},
		{name: "it begins with any queue's deadline, be it a lease", steps: []step{
			one,
			{do: do(put("", into("r", 0, 1)), &fsm.Reserve{
				Queues: []string{"r"}, Max: 1, TTR: time.Second,
			}), want: results(created(2, fsm.Ready, 0),
				granted(fsm.Grant{Queue: "r", Serial: 2, Fence: 3, Attempt: 1, Due: start, Until: after(time.Second)}))},
			{at: time.Second + time.Minute, do: do(lead, look), want: results(okay(), nothing), held: dropped},
		}},
		{name: "it begins after the entry before, though that settled nothing", steps: []step{
			{
				do:   do(drop, put("a", delay(due)), put("b", delay(40*time.Second))),
				want: results(okay(), created(1, fsm.Delayed, due), created(2, fsm.Delayed, 40*time.Second)),
			},
			{at: 30 * time.Second, do: do(elsewhere), want: results(nothing)},
			{
				at: 90 * time.Second, do: do(lead, look), want: results(okay(), nothing),
				held: map[string]fsm.State{"a": fsm.Ready, "b": fsm.StateNone},
			},
		}},
		{name: "what the entry settled before the lead is not overdue", steps: []step{
			one,
			{at: time.Hour, do: do(look, lead), want: results(nothing, okay()), held: ready},
		}},
	})
}

func deadlineIs(want fsm.Time) func(*testing.T, shard) {
	return func(t *testing.T, s shard) {
		t.Helper()
		if got, ok := s.NextDeadline(); got != want || ok != (want != 0) {
			t.Errorf("next deadline is %d (%t), want %d", got-start, ok, want-start)
		}
	}
}

// puts are n puts without ids.
func puts(n int, options ...func(*fsm.Put)) []fsm.Command {
	list := make([]fsm.Command, n)
	for i := range list {
		list[i] = put("", options...)
	}
	return list
}

// createdDelayed are the results of n puts of delayed jobs.
func createdDelayed(first uint64, n int, due time.Duration) []fsm.Result {
	list := make([]fsm.Result, n)
	for i := range list {
		list[i] = created(first+uint64(i), fsm.Delayed, due)
	}
	return list
}

// createdReady are the results of n puts of jobs that are due at once.
func createdReady(first uint64, n int, due time.Duration) []fsm.Result {
	list := createdDelayed(first, n, due)
	for i := range list {
		list[i].State = fsm.Ready
	}
	return list
}

// leases are the grants of n jobs, put one after the other and reserved at once for a millisecond.
func leases(n uint64) []fsm.Grant {
	list := make([]fsm.Grant, n)
	for i := range list {
		list[i] = lease(uint64(i)+1, n+uint64(i)+1, 0, ms)
	}
	return list
}
