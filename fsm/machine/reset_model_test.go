package machine_test

import (
	"testing"
	"time"

	"github.com/belfrydb/belfry/fsm"
)

// back is a reset of the time to the given distance from start.
func back(to time.Duration) *fsm.ResetClock {
	return &fsm.ResetClock{To: after(to), Grace: time.Second}
}

// clockIs checks the shard's time.
func clockIs(want time.Duration) func(*testing.T, shard) {
	return func(t *testing.T, s shard) {
		t.Helper()
		if got := s.Clock(); got != after(want) {
			t.Errorf("the time is start%+v, want start%+v", got.Sub(start), want)
		}
	}
}

func TestModelScenarioReset(t *testing.T) {
	t.Parallel()
	const year = 365 * 24 * time.Hour
	look, nothing := cancel("unknown"), code(fsm.JobNotFound)
	runScenarios(t, []scenario{
		{name: "time goes back and on from there", steps: []step{
			{at: time.Hour, do: do(&fsm.Open{Queue: "q", Partitions: 1}), want: results(opened())},
			{at: time.Hour, do: do(back(part)), want: results(okay()), look: clockIs(ms)},
			{at: 5 * ms, do: do(&fsm.Expire{}), want: results(count(0)), look: clockIs(5 * ms)},
		}},
		{name: "a reset to what is not before the present does nothing", steps: []step{
			{at: time.Hour, do: do(put("a", delay(time.Hour))), want: results(created(1, fsm.Delayed, 2*time.Hour))},
			{at: time.Hour, do: do(back(time.Hour), back(year)), want: results(okay(), okay()), look: clockIs(time.Hour)},
			{at: 2 * time.Hour, do: do(look), want: results(nothing), held: map[string]fsm.State{"a": fsm.Ready}},
		}},
		{name: "what was put by the wrong clock keeps what was left of its delay", steps: []step{
			{at: year, do: do(put("a", delay(30*time.Minute)), put("b", ttl(time.Hour)), put("c", dueAt(after(time.Hour)))),
				want: results(created(1, fsm.Delayed, year+30*time.Minute), created(2, fsm.Ready, year),
					created(3, fsm.Ready, time.Hour))},
			// The job whose due time was named waits for that, as it should have at once.
			{
				at: year + 10*time.Minute, do: do(back(0)), want: results(okay()),
				held: map[string]fsm.State{"a": fsm.Delayed, "b": fsm.Ready, "c": fsm.Delayed},
			},
			{at: 20*time.Minute - 1, do: do(look), want: results(nothing), held: map[string]fsm.State{"a": fsm.Delayed}},
			{
				at: 20 * time.Minute, do: do(look), want: results(nothing),
				held: map[string]fsm.State{"a": fsm.Ready, "b": fsm.Ready},
			},
			{
				at: 50 * time.Minute, do: do(look), want: results(nothing),
				held: map[string]fsm.State{"b": fsm.StateNone, "c": fsm.Delayed},
			},
			{at: time.Hour, do: do(look), want: results(nothing), held: map[string]fsm.State{"c": fsm.Ready}},
		}},
		{name: "what was put by the right clock keeps its times, and waits again if it was ready too early", steps: []step{
			{
				do:   do(put("a", delay(time.Hour)), put("b", delay(2*year)), put("c")),
				want: results(created(1, fsm.Delayed, time.Hour), created(2, fsm.Delayed, 2*year), created(3, fsm.Ready, 0)),
			},
			{at: year, do: do(look), want: results(nothing), held: map[string]fsm.State{"a": fsm.Ready, "b": fsm.Delayed}},
			{
				at: year, do: do(back(time.Minute)), want: results(okay()),
				held: map[string]fsm.State{"a": fsm.Delayed, "b": fsm.Delayed, "c": fsm.Ready}, look: deadlineIs(after(time.Hour)),
			},
		}},
	})
}

func TestModelScenarioResetAgain(t *testing.T) {
	t.Parallel()
	const year = 365 * 24 * time.Hour
	look, nothing := cancel("unknown"), code(fsm.JobNotFound)
	runScenarios(t, []scenario{
		{name: "a second reset moves nothing a second time", steps: []step{
			{at: year, do: do(put("a", delay(30*time.Minute))), want: results(created(1, fsm.Delayed, year+30*time.Minute))},
			{at: year, do: do(back(time.Hour)), want: results(okay()), look: deadlineIs(after(90 * time.Minute))},
			{
				at: 70 * time.Minute, do: do(back(65 * time.Minute)), want: results(okay()),
				look: deadlineIs(after(90 * time.Minute)),
			},
		}},
		{name: "a retry that the wrong clock counted moves back, one of the right clock stays", steps: []step{
			{do: do(put("a"), put("b"), reserve(1), &fsm.Nack{Ref: ref(1, 3), Delay: time.Hour, DelayGiven: true}),
				want: results(created(1, fsm.Ready, 0), created(2, fsm.Ready, 0), granted(lease(1, 3, 0, leaseEnd)),
					waiting(fsm.Delayed, time.Hour))},
			{at: ms, do: do(reserve(1)), want: results(granted(lease(2, 4, 0, ms+leaseEnd)))},
			{at: ms, do: do(&fsm.Release{Ref: ref(2, 4)}), want: results(waiting(fsm.Ready, 0))},
			{at: year, do: do(reserve(1)), want: results(granted(lease(2, 5, 0, year+leaseEnd)))},
			{
				at: year, do: do(&fsm.Nack{Ref: ref(2, 5), Delay: time.Minute, DelayGiven: true}),
				want: results(waiting(fsm.Delayed, year+time.Minute)),
			},
			{
				at: year, do: do(back(time.Second)), want: results(okay()),
				held: map[string]fsm.State{"a": fsm.Delayed, "b": fsm.Delayed}, look: deadlineIs(after(time.Minute + time.Second)),
			},
			{
				at: time.Minute + time.Second, do: do(look), want: results(nothing),
				held: map[string]fsm.State{"a": fsm.Delayed, "b": fsm.Ready}, look: deadlineIs(after(time.Hour)),
			},
		}},
	})
}

func TestModelScenarioResetLeases(t *testing.T) {
	t.Parallel()
	const year = 365 * 24 * time.Hour
	stale := code(fsm.StaleLease)
	longer := time.Minute + leaseEnd + time.Second // from the reset: the whole length and the grace
	runScenarios(t, []scenario{
		{name: "a lease ends its whole length and the grace after the reset", steps: []step{
			{
				at: year, do: do(put("a"), reserve(1)),
				want: results(created(1, fsm.Ready, year), granted(lease(1, 2, year, year+leaseEnd))),
			},
			{at: year + time.Second, do: do(back(time.Minute)), want: results(okay()), look: deadlineIs(after(longer))},
			{at: longer - 1, do: do(reserve(1)), want: results(granted())},
			{at: longer, do: do(reserve(1)), want: results(granted(attempt(2, lease(1, 3, longer, longer+leaseEnd))))},
		}},
		{name: "a lease that ends before that stays as it is", steps: []step{
			{do: do(put("a"), reserve(1)), want: results(created(1, fsm.Ready, 0), granted(lease(1, 2, 0, leaseEnd)))},
			{at: 2 * time.Second, do: do(back(time.Second)), want: results(okay()), look: deadlineIs(after(leaseEnd))},
			{at: leaseEnd - 1, do: do(ack(1, 2)), want: results(acked())},
		}},
		{name: "what was left of a lease counts if it is more than its length", steps: []step{
			{at: year, do: do(put("a"), &fsm.Reserve{
				Queues: []string{"q"}, Max: 1, TTR: time.Hour,
			}, &fsm.Extend{Ref: ref(1, 2), TTR: ms}),
				want: results(created(1, fsm.Ready, year), granted(lease(1, 2, year, year+time.Hour)),
					fsm.Result{Until: after(year + time.Hour)})},
			{at: year, do: do(back(0)), want: results(okay()), look: deadlineIs(after(time.Hour + time.Second))},
		}},
		{name: "a repeated ack is ok after the reset, as long as it would have been", steps: []step{
			{
				at: year, do: do(put("a"), reserve(1), ack(1, 2)),
				want: results(created(1, fsm.Ready, year), granted(lease(1, 2, year, year+leaseEnd)), acked()),
			},
			{at: year, do: do(back(0), ack(1, 2)), want: results(okay(), acked())},
			{at: leaseEnd + time.Minute, do: do(ack(1, 2)), want: results(acked())},
			{at: leaseEnd + time.Minute + 1, do: do(ack(1, 2)), want: results(stale)},
		}},
	})
}

func TestModelScenarioResetMemory(t *testing.T) {
	t.Parallel()
	const year = 365 * 24 * time.Hour
	again := func(r fsm.Result) fsm.Result {
		r.Replayed = true
		return r
	}
	runScenarios(t, []scenario{
		{name: "requests are remembered for the whole window from the reset on", steps: []step{
			{at: year, id: "r", do: do(put("")), want: results(created(1, fsm.Ready, year))},
			{at: year + time.Minute, do: do(back(0)), want: results(okay())},
			{at: fsm.RequestWindow, id: "r", do: do(put("")), want: results(again(created(1, fsm.Ready, year)))},
			{at: fsm.RequestWindow + 1, id: "r", do: do(put("")), want: results(created(2, fsm.Ready, fsm.RequestWindow))},
		}},
		{name: "what was forgotten in the wrong year does not expire the requests of the right one",
			cfg: fsm.Config{AnswersBytesMax: 1}, steps: []step{
				{at: year, id: "r", do: do(put("")), want: results(created(1, fsm.Ready, year))},
				{at: year, id: uuidAt(start), do: do(put("")), want: results(code(fsm.RequestExpired))},
				{at: year, do: do(back(0)), want: results(okay())},
				{at: ms, id: uuidAt(start.Add(ms)), do: do(put("")), want: results(created(2, fsm.Ready, ms))},
			}},
		{name: "an ended id answers for the whole window from the reset on", steps: []step{
			{at: year, do: do(put("a"), cancel("a")), want: results(created(1, fsm.Ready, year), ended(fsm.Ready))},
			{at: year, do: do(back(0)), want: results(okay())},
			{at: fsm.DefaultDedupWindow - 1, do: do(put("a")), want: results(met(1, fsm.Cancelled, year))},
			{at: fsm.DefaultDedupWindow, do: do(put("a")), want: results(created(2, fsm.Ready, fsm.DefaultDedupWindow))},
		}},
		{name: "the rate has no debt from the wrong year", steps: []step{
			{
				at: year, do: do(configure(1, fsm.Settings{PutsPerSecond: 1}), put("")),
				want: results(okay(), created(1, fsm.Ready, year)),
			},
			{at: year, do: do(back(0), put("")), want: results(okay(), fsm.Result{Code: fsm.RateLimited, Wait: time.Second})},
			{at: time.Second, do: do(put("")), want: results(created(2, fsm.Ready, time.Second))},
		}},
		{name: "an outage that never was has no policy", steps: []step{
			{do: do(configure(1, fsm.Settings{Overdue: fsm.DropOverdue}), put("a", delay(time.Hour)),
				put("b", delay(2*time.Hour))),
				want: results(okay(), created(1, fsm.Delayed, time.Hour), created(2, fsm.Delayed, 2*time.Hour))},
			{at: year, do: do(&fsm.Lead{}), want: results(okay())},
			{at: year, do: do(back(time.Minute)), want: results(okay())},
			{
				at: 2 * time.Hour, do: do(cancel("unknown")), want: results(code(fsm.JobNotFound)),
				held: map[string]fsm.State{"a": fsm.Ready, "b": fsm.Ready},
			},
		}},
	})
}
