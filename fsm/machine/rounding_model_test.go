package machine_test

import (
	"testing"
	"time"

	"github.com/belfrydb/belfry/fsm"
)

// part is a part of a millisecond, so that after(part) is a clock with a fraction.
const part = 400 * time.Microsecond

func TestModelScenarioRoundingDue(t *testing.T) {
	t.Parallel()
	reschedule := func(d time.Duration) *fsm.Reschedule {
		return &fsm.Reschedule{Queue: "q", ID: "a", Given: fsm.GivenDelay, Delay: d}
	}
	rescheduleAt := func(at fsm.Time) *fsm.Reschedule {
		return &fsm.Reschedule{Queue: "q", ID: "a", Given: fsm.GivenDueAt, DueAt: at}
	}
	runScenarios(t, []scenario{
		{name: "due at once is due in the running millisecond, while the put keeps its exact time", steps: []step{
			{at: part, do: do(put("a"), put("b", delay(0))), want: results(created(1, fsm.Ready, 0), created(2, fsm.Ready, 0)),
				look: func(t *testing.T, s shard) {
					t.Helper()
					if j, _ := s.Job("q", "a", s.Clock()); j.Created != after(part) || j.FirstDue != start || j.Due != start {
						t.Errorf("created %d, first due %d, due %d; want %d, 0, 0", j.Created-start, j.FirstDue-start, j.Due-start, part)
					}
				}},
			{
				at: ms - 1, do: do(put("a"), reserve(1)),
				want: results(met(1, fsm.Ready, 0), granted(lease(1, 3, 0, ms+leaseEnd))),
			},
		}},
		{name: "a delay of a nanosecond is over with the millisecond, not before", steps: []step{
			{do: do(put("a", delay(1))), want: results(created(1, fsm.Delayed, ms)), look: deadlineIs(after(ms))},
			{at: ms - 1, do: do(reserve(1)), want: results(okay())},
			{
				at: ms, do: do(put("a", delay(1)), reserve(1)),
				want: results(met(1, fsm.Ready, ms), granted(lease(1, 2, ms, ms+leaseEnd))),
			},
		}},
		{name: "the sum is rounded, not the delay", steps: []step{
			{at: part, do: do(put("", delay(1)), put("", delay(ms-part)), put("", delay(ms-part+1)), put("", delay(ms))),
				want: results(
					created(1, fsm.Delayed, ms), created(2, fsm.Delayed, ms), created(3, fsm.Delayed, 2*ms),
					created(4, fsm.Delayed, 2*ms))},
		}},
		{name: "a due time is rounded up, also one within the running millisecond", steps: []step{
			{at: part, do: do(put("", dueAt(start)), put("", dueAt(after(1))), put("", dueAt(after(part))),
				put("", dueAt(after(ms)))), want: results(
				created(1, fsm.Ready, 0), created(2, fsm.Delayed, ms), created(3, fsm.Delayed, ms), created(4, fsm.Delayed, ms))},
			{
				at: part, do: do(put("", dueAt(after(-1))), put("", dueAt(after(-ms-1)))),
				want: results(created(5, fsm.Ready, 0), created(6, fsm.Ready, -ms)),
			},
		}},
		{name: "reschedule as a put", steps: []step{
			{at: part, do: do(put("a"), reschedule(1), reschedule(ms), reschedule(0)), want: results(
				created(1, fsm.Ready, 0), waiting(fsm.Delayed, ms), waiting(fsm.Delayed, 2*ms), waiting(fsm.Ready, 0))},
			{at: part, do: do(rescheduleAt(after(ms+1)), rescheduleAt(after(1)), rescheduleAt(after(-1))), want: results(
				waiting(fsm.Delayed, 2*ms), waiting(fsm.Delayed, ms), waiting(fsm.Ready, 0))},
		}},
	})
}

func TestModelScenarioRoundingDueAgain(t *testing.T) {
	t.Parallel()
	runScenarios(t, []scenario{
		{name: "a nack and its schedule", steps: []step{
			{
				at: part, do: do(put("a", retries(0, ms)), reserve(1), nack(1, 2)),
				want: results(created(1, fsm.Ready, 0), granted(lease(1, 2, 0, ms+leaseEnd)), waiting(fsm.Ready, 0)),
			},
			{
				at: part, do: do(reserve(1), nack(1, 3)),
				want: results(granted(attempt(2, lease(1, 3, 0, ms+leaseEnd))), waiting(fsm.Delayed, 2*ms)),
			},
			{
				at: 2*ms + part, do: do(reserve(1), &fsm.Nack{Ref: ref(1, 4), DelayGiven: true}),
				want: results(granted(attempt(3, lease(1, 4, 2*ms, 3*ms+leaseEnd))), waiting(fsm.Ready, 2*ms)),
			},
			{
				at: 2*ms + part, do: do(reserve(1), &fsm.Nack{Ref: ref(1, 5), DelayGiven: true, Delay: 1}),
				want: results(granted(attempt(4, lease(1, 5, 2*ms, 3*ms+leaseEnd))), waiting(fsm.Delayed, 3*ms)),
			},
		}},
		{name: "a release", steps: []step{
			{
				at: part, do: do(put("a"), reserve(1), &fsm.Release{Ref: ref(1, 2), Delay: 1}),
				want: results(created(1, fsm.Ready, 0), granted(lease(1, 2, 0, ms+leaseEnd)), waiting(fsm.Delayed, ms)),
			},
			{
				at: ms + part, do: do(reserve(1), &fsm.Release{Ref: ref(1, 3), Delay: ms}),
				want: results(granted(lease(1, 3, ms, 2*ms+leaseEnd)), waiting(fsm.Delayed, 3*ms)),
			},
		}},
		{name: "a redriven job is due in the running millisecond", steps: []step{
			{
				do:   do(put("a"), reserve(1), &fsm.Nack{Ref: ref(1, 2), Dead: true}),
				want: results(created(1, fsm.Ready, 0), granted(lease(1, 2, 0, leaseEnd)), ended(fsm.Dead)),
			},
			{
				at: ms + part, do: do(&fsm.Redrive{Queue: "q"}, reserve(1)),
				want: results(count(1), granted(lease(1, 3, ms, 2*ms+leaseEnd))),
			},
		}},
	})
}

func TestModelScenarioRoundingLease(t *testing.T) {
	t.Parallel()
	reserveFor := func(ttr time.Duration) *fsm.Reserve {
		return &fsm.Reserve{Queues: []string{"q"}, Max: 1, TTR: ttr}
	}
	extend := func(ttr time.Duration) *fsm.Extend { return &fsm.Extend{Ref: ref(1, 2), TTR: ttr} }
	lead := func(grace time.Duration) *fsm.Lead { return &fsm.Lead{Grace: grace} }
	until := func(d time.Duration) fsm.Result { return fsm.Result{Until: after(d)} }
	stale := code(fsm.StaleLease)
	runScenarios(t, []scenario{
		{name: "a lease ends with a millisecond and holds until then", steps: []step{
			{
				at: part, do: do(put("a"), reserveFor(ms)), want: results(created(1, fsm.Ready, 0), granted(lease(1, 2, 0, 2*ms))),
				look: deadlineIs(after(2 * ms)),
			},
			{at: 2*ms - 1, do: do(extend(1)), want: results(until(2 * ms))},
			{at: 2 * ms, do: do(ack(1, 2)), want: results(stale)},
			// The lapse was at the end of the lease, so the job has been ready since a whole millisecond.
			{at: 3*ms + part, do: do(reserveFor(1)), want: results(granted(attempt(2, lease(1, 3, 2*ms, 4*ms))))},
		}},
		{name: "the length of a lease is kept exactly, its ends are rounded", steps: []step{
			{do: do(put("a", ttr(ms+1)), reserve(1)), want: results(created(1, fsm.Ready, 0), granted(lease(1, 2, 0, 2*ms)))},
			{at: ms - 1, do: do(extend(0)), want: results(until(2 * ms))},
			{at: ms, do: do(extend(0)), want: results(until(3 * ms))},
			{at: ms + part, do: do(extend(2 * ms)), want: results(until(4 * ms))},
		}},
		{name: "an ack is remembered for a minute after the rounded end", steps: []step{
			{
				at: part, do: do(put("a"), reserveFor(1), ack(1, 2)),
				want: results(created(1, fsm.Ready, 0), granted(lease(1, 2, 0, ms)), acked()),
			},
			{at: ms + time.Minute, do: do(ack(1, 2)), want: results(acked())},
			{at: ms + time.Minute + 1, do: do(ack(1, 2)), want: results(stale)},
		}},
		{name: "the grace of a leader", steps: []step{
			{do: do(put("a"), reserveFor(ms)), want: results(created(1, fsm.Ready, 0), granted(lease(1, 2, 0, ms)))},
			{at: ms + part, do: do(lead(1)), want: results(okay()), look: deadlineIs(after(2 * ms))},
			{at: ms + part, do: do(lead(ms)), want: results(okay()), look: deadlineIs(after(3 * ms))},
			// No grace is the running millisecond, which ends no lease later.
			{at: 5*ms + part, do: do(lead(0)), want: results(okay()), look: deadlineIs(after(5 * ms))},
			{at: 5*ms + part, do: do(ack(1, 2)), want: results(stale)},
		}},
	})
}

func TestModelScenarioRoundingRest(t *testing.T) {
	t.Parallel()
	lead, look := &fsm.Lead{}, cancel("unknown")
	nothing := code(fsm.JobNotFound)
	spread := func(period time.Duration) *fsm.Configure {
		return configure(1, fsm.Settings{Overdue: fsm.SpreadOverdue, OverduePeriod: period, OverdueAfter: ms})
	}
	runScenarios(t, []scenario{
		{name: "a ttl ends with a millisecond", steps: []step{
			{
				at: part, do: do(put("a", ttl(1)), put("b", ttl(ms))),
				want: results(created(1, fsm.Ready, 0), created(2, fsm.Ready, 0)),
			},
			{at: ms - 1, do: do(look), want: results(nothing), held: map[string]fsm.State{"a": fsm.Ready}},
			{
				at: ms, do: do(look), want: results(nothing), held: map[string]fsm.State{"a": fsm.StateNone},
				look: deadlineIs(after(2 * ms)),
			},
			{at: 2*ms - 1, do: do(look), want: results(nothing), held: map[string]fsm.State{"b": fsm.Ready}},
			{
				at: 2 * ms, do: do(look), want: results(nothing), held: map[string]fsm.State{"b": fsm.StateNone},
				look: deadlineIs(0),
			},
		}},
		{name: "no ttl at all is over already", steps: []step{
			{
				at: part, do: do(put("a", ttl(0)), reserve(1)), want: results(created(1, fsm.Ready, 0), okay()),
				held: map[string]fsm.State{"a": fsm.StateNone},
			},
		}},
		{name: "spread: a window that ends within a millisecond", steps: []step{
			{
				at: part, do: do(spread(3*ms), put("a", dueAt(after(ms))), put("b", dueAt(after(2*ms))), unsettled()),
				want: results(okay(), created(1, fsm.Delayed, ms), created(2, fsm.Delayed, 2*ms), created(3, fsm.Ready, 0)),
			},
			// The window is 3 ms, and so is the period: both keep their distance, and are whole again.
			{at: part + 3*ms, do: do(lead, look), want: results(okay(), nothing), look: deadlineIs(after(4 * ms))},
			{
				at: 4 * ms, do: do(look), want: results(nothing), held: map[string]fsm.State{"a": fsm.Ready, "b": fsm.Delayed},
				look: deadlineIs(after(5 * ms)),
			},
		}},
		{name: "spread: a third of a nanosecond is enough for a millisecond more", steps: []step{
			{
				do:   do(spread(3*ms+1), put("a", delay(ms)), unsettled()),
				want: results(okay(), created(1, fsm.Delayed, ms), created(2, fsm.Ready, 0)),
			},
			{at: 3 * ms, do: do(lead, look), want: results(okay(), nothing), look: deadlineIs(after(5 * ms))},
		}},
		{name: "spread: a due time that is whole is not rounded", steps: []step{
			{
				do:   do(spread(3*ms), put("a", delay(ms)), unsettled()),
				want: results(okay(), created(1, fsm.Delayed, ms), created(2, fsm.Ready, 0)),
			},
			{at: 3 * ms, do: do(lead, look), want: results(okay(), nothing), look: deadlineIs(after(4 * ms))},
		}},
		{name: "a pause and what is remembered end exactly", steps: []step{
			{
				do: do(configure(1, fsm.Settings{
					PausedUntil: after(part), Paused: true, DedupWindowSet: true, DedupWindow: ms,
				}), put("a")),
				want: results(okay(), created(1, fsm.Ready, 0)),
			},
			{at: part - 1, do: do(reserve(1)), want: results(okay())},
			{at: part, do: do(reserve(1), ack(1, 2)), want: results(granted(lease(1, 2, 0, ms+leaseEnd)), acked())},
			{at: part + ms - 1, do: do(put("a")), want: results(met(1, fsm.Acked, 0))},
			{at: part + ms, do: do(put("a")), want: results(created(3, fsm.Ready, ms))},
		}},
	})
}
