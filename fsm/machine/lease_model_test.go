package machine_test

import (
	"testing"
	"time"

	"github.com/belfrydb/belfry/fsm"
)

// A lease is 30 s long unless a command says otherwise.
const leaseEnd = 30 * time.Second

func TestModelScenarioReserve(t *testing.T) {
	t.Parallel()
	runScenarios(t, []scenario{
		{name: "jobs leave by priority, due time, put order", steps: []step{
			{do: do(put("a"), put("b", priority(-1)), put("c", dueAt(after(-ms))), put("d", priority(127)),
				put("e", priority(-1), dueAt(after(-ms)))),
				want: results(created(1, fsm.Ready, 0), created(2, fsm.Ready, 0), created(3, fsm.Ready, -ms),
					created(4, fsm.Ready, 0), created(5, fsm.Ready, -ms))},
			{do: do(reserve(4), reserve(4), reserve(4)), want: results(
				granted(lease(5, 6, -ms, leaseEnd), lease(2, 7, 0, leaseEnd), lease(3, 8, -ms, leaseEnd), lease(1, 9, 0, leaseEnd)),
				granted(lease(4, 10, 0, leaseEnd)), okay())},
		}},
		{name: "a job is never handed out early", steps: []step{
			{do: do(put("a", delay(time.Second)), reserve(1)), want: results(created(1, fsm.Delayed, time.Second), okay())},
			{at: time.Second - 1, do: do(reserve(1)), want: results(okay())},
			{at: time.Second, do: do(reserve(1)), want: results(granted(lease(1, 2, time.Second, time.Second+leaseEnd)))},
		}},
		{name: "the length of a lease is the command's, the job's, the queue's, 30 s", steps: []step{
			{
				do:   do(put("a", ttr(3*ms)), put("b"), put("c", ttr(0))),
				want: results(created(1, fsm.Ready, 0), created(2, fsm.Ready, 0), created(3, fsm.Ready, 0)),
			},
			{do: do(&fsm.Reserve{
				Queues: []string{"q"}, Max: 1, TTR: 2 * ms,
			}, &fsm.Release{Ref: ref(1, 4)}, reserve(1)), want: results(
				granted(lease(1, 4, 0, 2*ms)), waiting(fsm.Ready, 0), granted(lease(1, 5, 0, 3*ms)))},
			{do: do(configure(1, fsm.Settings{TTR: 4 * ms}), reserve(1)), want: results(okay(), granted(lease(2, 6, 0, 4*ms)))},
			{do: do(configure(2, fsm.Settings{}), reserve(1)), want: results(okay(), granted(lease(3, 7, 0, leaseEnd)))},
		}},
		{name: "several queues are tried in the order given", steps: []step{
			{
				do:   do(put("a"), put("b", into("r", 0, 1)), put("c", into("r", 0, 1))),
				want: results(created(1, fsm.Ready, 0), created(2, fsm.Ready, 0), created(3, fsm.Ready, 0)),
			},
			{do: do(&fsm.Reserve{
				Queues: []string{"r", "unknown", "q"}, Max: 1,
			}, &fsm.Reserve{Queues: []string{"unknown", "r", "q"}, Max: 2}),
				want: results(
					granted(fsm.Grant{Queue: "r", Serial: 2, Fence: 4, Attempt: 1, Due: start, Until: after(leaseEnd)}),
					granted(fsm.Grant{
						Queue: "r", Serial: 3, Fence: 5, Attempt: 1, Due: start, Until: after(leaseEnd),
					}, lease(1, 6, 0, leaseEnd)))},
		}},
		{name: "none are asked for, none are given", steps: []step{
			{do: do(put("a"), reserve(0)), want: results(created(1, fsm.Ready, 0), okay())},
		}},
		{name: "a paused queue gives nothing, until its time", steps: []step{
			{
				do:   do(configure(1, fsm.Settings{Paused: true}), put("a"), reserve(1)),
				want: results(okay(), created(1, fsm.Ready, 0), okay()),
			},
			{do: do(configure(2, fsm.Settings{Paused: true, PausedUntil: after(time.Second)})), want: results(okay())},
			{at: time.Second - 1, do: do(reserve(1)), want: results(okay())},
			{at: time.Second, do: do(reserve(1)), want: results(granted(lease(1, 2, 0, time.Second+leaseEnd)))},
		}},
		{name: "a job whose ttl passes within the entry is expired on the way", steps: []step{
			{do: do(put("a", ttl(0)), put("b"), reserve(1)),
				want: results(created(1, fsm.Ready, 0), created(2, fsm.Ready, 0), granted(lease(2, 3, 0, leaseEnd))),
				held: map[string]fsm.State{"a": fsm.StateNone}},
			{do: do(put("a", ttl(0))), want: results(met(1, fsm.Expired, 0))},
		}},
	})
}

func TestModelScenarioLease(t *testing.T) {
	t.Parallel()
	other, partition := ack(1, 2), ack(1, 2)
	other.Queue, partition.Partition = "r", 1
	stale := code(fsm.StaleLease)
	runScenarios(t, []scenario{
		{name: "only queue, partition, serial and fence together are a lease", steps: []step{
			{
				do:   do(put("a"), put("b", into("r", 0, 1)), reserve(1)),
				want: results(created(1, fsm.Ready, 0), created(2, fsm.Ready, 0), granted(lease(1, 3, 0, leaseEnd))),
			},
			{do: do(other, partition, ack(1, 2), ack(2, 3), ack(1, 4)), want: results(stale, stale, stale, stale, stale)},
			{do: do(nack(1, 2), &fsm.Release{Ref: ref(1, 2)}, &fsm.Extend{Ref: ref(1, 2)}), want: results(stale, stale, stale)},
			{do: do(ack(1, 3)), want: results(acked())},
		}},
		{name: "a lease is stale from its end on, and the lapse counts as an attempt", steps: []step{
			{do: do(put("a"), reserve(1)), want: results(created(1, fsm.Ready, 0), granted(lease(1, 2, 0, leaseEnd)))},
			{at: leaseEnd - 1, do: do(&fsm.Extend{Ref: ref(1, 2), TTR: 1}), want: results(fsm.Result{Until: after(leaseEnd)})},
			{at: leaseEnd, do: do(ack(1, 2)), want: results(stale), held: map[string]fsm.State{"a": fsm.Ready}},
			{at: time.Hour, do: do(reserve(1)), want: results(granted(attempt(2, lease(1, 3, leaseEnd, time.Hour+leaseEnd))))},
		}},
		{name: "a lapsed job has been ready since the lapse, whenever that is noticed", steps: []step{
			{do: do(put("a"), reserve(1)), want: results(created(1, fsm.Ready, 0), granted(lease(1, 2, 0, leaseEnd)))},
			{at: time.Hour, do: do(reserve(1)), want: results(granted(attempt(2, lease(1, 3, leaseEnd, time.Hour+leaseEnd))))},
		}},
		{name: "extend counts from now, never shortens, and is remembered as the length", steps: []step{
			{do: do(put("a"), reserve(1)), want: results(created(1, fsm.Ready, 0), granted(lease(1, 2, 0, leaseEnd)))},
			{
				at: time.Second, do: do(&fsm.Extend{Ref: ref(1, 2), TTR: time.Second}),
				want: results(fsm.Result{Until: after(leaseEnd)}),
			},
			{
				at: leaseEnd - ms, do: do(&fsm.Extend{Ref: ref(1, 2)}),
				want: results(fsm.Result{Until: after(leaseEnd - ms + time.Second)}),
			},
			{
				at: leaseEnd, do: do(&fsm.Extend{Ref: ref(1, 2), TTR: time.Hour}),
				want: results(fsm.Result{Until: after(leaseEnd + time.Hour)}),
			},
		}},
		{name: "an ack is repeated for a minute after the lease's end, even without the queue", steps: []step{
			{
				do:   do(put("a"), reserve(1), ack(1, 2), ack(1, 2)),
				want: results(created(1, fsm.Ready, 0), granted(lease(1, 2, 0, leaseEnd)), acked(), acked()),
			},
			{do: do(nack(1, 2), ack(1, 3), &fsm.DeleteQueue{Queue: "q"}), want: results(stale, stale, count(0))},
			{at: leaseEnd + time.Minute, do: do(ack(1, 2)), want: results(acked())},
			{at: leaseEnd + time.Minute + 1, do: do(ack(1, 2)), want: results(stale)},
		}},
	})
}

func TestModelScenarioLeaseGivenBack(t *testing.T) {
	t.Parallel()
	stale := code(fsm.StaleLease)
	runScenarios(t, []scenario{
		{name: "a shard remembers at most so many finished leases", cfg: fsm.Config{FinishedMax: 1}, steps: []step{
			{do: do(put("a"), put("b"), reserve(1), &fsm.Reserve{
				Queues: []string{"q"}, Max: 1, TTR: ms,
			}), want: results(created(1, fsm.Ready, 0), created(2, fsm.Ready, 0),
				granted(lease(1, 3, 0, leaseEnd)), granted(lease(2, 4, 0, ms)))},
			{
				do:   do(ack(1, 3), ack(1, 3), ack(2, 4), ack(2, 4), ack(1, 3)),
				want: results(acked(), acked(), acked(), acked(), stale),
			},
		}},
		{name: "a release takes the attempt back and keeps the due time", steps: []step{
			{do: do(put("a"), reserve(1)), want: results(created(1, fsm.Ready, 0), granted(lease(1, 2, 0, leaseEnd)))},
			{
				at: ms, do: do(&fsm.Release{Ref: ref(1, 2)}, reserve(1)),
				want: results(waiting(fsm.Ready, 0), granted(lease(1, 3, 0, leaseEnd+ms))),
			},
			{
				at: 2 * ms, do: do(&fsm.Release{Ref: ref(1, 3), Delay: time.Second}),
				want: results(waiting(fsm.Delayed, time.Second+2*ms)),
			},
			{at: time.Minute, do: do(reserve(1)), want: results(granted(lease(1, 4, time.Second+2*ms, time.Minute+leaseEnd)))},
		}},
		{name: "a release after the ttl expires the job", steps: []step{
			{
				do:   do(put("a", ttl(time.Second)), reserve(1)),
				want: results(created(1, fsm.Ready, 0), granted(lease(1, 2, 0, leaseEnd))),
			},
			{at: time.Second, do: do(&fsm.Release{Ref: ref(1, 2)}), want: results(ended(fsm.Expired))},
		}},
	})
}

// jittered is a default delay after the failed attempt of a fence, in whole milliseconds from a
// whole millisecond on.
func jittered(delay time.Duration, fence uint64) time.Duration {
	return (fsm.Jitter(delay, fence) + ms - 1).Truncate(ms)
}

func TestModelScenarioFailing(t *testing.T) {
	t.Parallel()
	runScenarios(t, []scenario{
		{name: "the retry schedule of the job, its last delay repeated", steps: []step{
			{
				do:   do(put("a", retries(0, time.Second)), reserve(1), nack(1, 2)),
				want: results(created(1, fsm.Ready, 0), granted(lease(1, 2, 0, leaseEnd)), waiting(fsm.Ready, 0)),
			},
			{
				do:   do(reserve(1), nack(1, 3)),
				want: results(granted(attempt(2, lease(1, 3, 0, leaseEnd))), waiting(fsm.Delayed, time.Second)),
			},
			{
				at: time.Second, do: do(reserve(1), nack(1, 4)),
				want: results(granted(attempt(3, lease(1, 4, time.Second, time.Second+leaseEnd))),
					waiting(fsm.Delayed, 2*time.Second)),
			},
		}},
		{name: "the schedule of the queue, unless the nack says", steps: []step{
			{do: do(configure(1, fsm.Settings{RetryDelays: []time.Duration{time.Minute}}), put("a"), reserve(1), nack(1, 2)),
				want: results(okay(), created(1, fsm.Ready, 0), granted(lease(1, 2, 0, leaseEnd)),
					waiting(fsm.Delayed, time.Minute))},
			{
				do:   do(put("b", retries()), reserve(1), nack(3, 4)),
				want: results(created(3, fsm.Ready, 0), granted(lease(3, 4, 0, leaseEnd)), waiting(fsm.Ready, 0)),
			},
			{
				do:   do(reserve(1), &fsm.Nack{Ref: ref(3, 5), Delay: ms, DelayGiven: true}),
				want: results(granted(attempt(2, lease(3, 5, 0, leaseEnd))), waiting(fsm.Delayed, ms)),
			},
		}},
	})
}

func TestModelScenarioFailingWithoutSchedule(t *testing.T) {
	t.Parallel()
	runScenarios(t, []scenario{
		{name: "the schedule of nobody: none in the first format, growing delays with jitter in the second", steps: []step{
			{
				do:   do(put("a"), reserve(1), nack(1, 2)),
				want: results(created(1, fsm.Ready, 0), granted(lease(1, 2, 0, leaseEnd)), waiting(fsm.Ready, 0)),
			},
			// What is there when the format is raised keeps its default, and so after a leader that has not
			// heard of it.
			{
				format: 2, do: do(reserve(1), nack(1, 3)),
				want: results(granted(attempt(2, lease(1, 3, 0, leaseEnd))), waiting(fsm.Ready, 0)),
			},
			{do: do(&fsm.DeleteQueue{Queue: "q"}), want: results(count(1))},
			{
				format: 1, do: do(put("b"), reserve(1), nack(4, 5)),
				want: results(created(4, fsm.Ready, 0), granted(lease(4, 5, 0, leaseEnd)),
					waiting(fsm.Delayed, jittered(time.Second, 5))),
			},
			{format: 2, at: time.Minute, do: do(reserve(1), nack(4, 6)),
				want: results(granted(attempt(2, lease(4, 6, jittered(time.Second, 5), time.Minute+leaseEnd))),
					waiting(fsm.Delayed, time.Minute+jittered(5*time.Second, 6)))},
			// Delays that are given are exact, and none at all means at once.
			{
				do: do(put("c", retries(time.Second)), reserve(1), nack(7, 8)),
				want: results(created(7, fsm.Ready, time.Minute), granted(lease(7, 8, time.Minute, time.Minute+leaseEnd)),
					waiting(fsm.Delayed, time.Minute+time.Second)),
			},
			{
				do: do(put("d", retries()), reserve(1), nack(9, 10)),
				want: results(created(9, fsm.Ready, time.Minute), granted(lease(9, 10, time.Minute, time.Minute+leaseEnd)),
					waiting(fsm.Ready, time.Minute)),
			},
			{
				do:   do(configure(1, fsm.Settings{RetryDelays: []time.Duration{0}}), reserve(1)),
				want: results(okay(), granted(attempt(2, lease(9, 11, time.Minute, time.Minute+leaseEnd)))),
			},
			{do: do(nack(9, 11), &fsm.Purge{
				Queue: "q", States: fsm.Set(fsm.Ready, fsm.Delayed),
			}, put("e"), reserve(1), nack(12, 13)), want: results(waiting(fsm.Ready, time.Minute), count(3),
				created(12, fsm.Ready, time.Minute), granted(lease(12, 13, time.Minute, time.Minute+leaseEnd)),
				waiting(fsm.Ready, time.Minute))},
			// Without a list of its own the queue has its default again. A lapse returns the job at once.
			{
				do:   do(configure(2, fsm.Settings{}), reserve(1)),
				want: results(okay(), granted(attempt(2, lease(12, 14, time.Minute, time.Minute+leaseEnd)))),
			},
			{at: time.Hour, do: do(&fsm.Expire{}), want: results(count(1)), held: map[string]fsm.State{"e": fsm.Ready}},
		}},
	})
}

func TestModelScenarioFailingForGood(t *testing.T) {
	t.Parallel()
	failed := func(serial, fence uint64, text string) *fsm.Nack {
		return &fsm.Nack{Ref: ref(serial, fence), Error: text}
	}
	runScenarios(t, []scenario{
		{name: "the job is dead when its attempts are used up, and keeps its history", steps: []step{
			{do: do(put("a", attempts(2), body("x")), reserve(1), failed(1, 2, "first"), reserve(1)),
				want: results(created(1, fsm.Ready, 0), granted(lease(1, 2, 0, leaseEnd)),
					waiting(fsm.Ready, 0), granted(attempt(2, lease(1, 3, 0, leaseEnd))))},
			// The lapse is the second failure. It has no text, so the first one's stays.
			{at: time.Minute, do: do(&fsm.Expire{}), want: results(count(1)), held: map[string]fsm.State{"a": fsm.Dead},
				look: func(t *testing.T, s shard) {
					t.Helper()
					j, _ := s.Job("q", "a", s.Clock())
					if j.LastError != "first" || j.Attempt != 2 || j.Due != start || j.Died != after(time.Minute) ||
						string(j.Body) != "x" {
						t.Errorf("the dead job is %+v", j)
					}
				}},
		}},
		{name: "a queue's attempts, none for no limit, 16 if nobody says", steps: []step{
			{
				do:   do(configure(1, fsm.Settings{MaxAttemptsSet: true, MaxAttempts: 1}), put("a"), reserve(1), nack(1, 2)),
				want: results(okay(), created(1, fsm.Ready, 0), granted(lease(1, 2, 0, leaseEnd)), ended(fsm.Dead)),
			},
			{
				do:   do(configure(2, fsm.Settings{MaxAttemptsSet: true}), put("b"), reserve(1), nack(3, 4)),
				want: results(okay(), created(3, fsm.Ready, 0), granted(lease(3, 4, 0, leaseEnd)), waiting(fsm.Ready, 0)),
			},
			{
				do: do(put("c", attempts(0)), configure(3, fsm.Settings{MaxAttemptsSet: true, MaxAttempts: 1}), reserve(2)),
				want: results(created(5, fsm.Ready, 0), okay(),
					granted(attempt(2, lease(3, 6, 0, leaseEnd)), lease(5, 7, 0, leaseEnd))),
			},
			{do: do(nack(3, 6), nack(5, 7)), want: results(ended(fsm.Dead), waiting(fsm.Ready, 0))},
		}},
		{name: "the nack says dead", steps: []step{
			{
				do:   do(put("a"), reserve(1), &fsm.Nack{Ref: ref(1, 2), Dead: true}),
				want: results(created(1, fsm.Ready, 0), granted(lease(1, 2, 0, leaseEnd)), ended(fsm.Dead)),
			},
		}},
		{name: "the ttl ends a failed job, but not one that is dead", steps: []step{
			{do: do(put("a", ttl(time.Second)), put("b", ttl(time.Second), attempts(1)), reserve(2)),
				want: results(created(1, fsm.Ready, 0), created(2, fsm.Ready, 0),
					granted(lease(1, 3, 0, leaseEnd), lease(2, 4, 0, leaseEnd)))},
			{at: time.Second, do: do(nack(1, 3), nack(2, 4)), want: results(ended(fsm.Expired), ended(fsm.Dead))},
		}},
	})
}
