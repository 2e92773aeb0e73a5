package machine_test

import (
	"testing"
	"time"

	"github.com/belfrydb/belfry/fsm"
)

func TestModelScenarioJob(t *testing.T) {
	t.Parallel()
	move := func(id string, d time.Duration) *fsm.Reschedule {
		return &fsm.Reschedule{Queue: "q", ID: id, Given: fsm.GivenDelay, Delay: d}
	}
	notFound := code(fsm.JobNotFound)
	gone := func(s fsm.State) fsm.Result { return fsm.Result{Code: fsm.JobNotFound, State: s} }
	runScenarios(t, []scenario{
		{name: "cancel ends what nobody holds, and with force what somebody does", steps: []step{
			{
				do: do(cancel("a"), put("a"), put("b", delay(time.Hour)), reserve(1)),
				want: results(notFound, created(1, fsm.Ready, 0), created(2, fsm.Delayed, time.Hour),
					granted(lease(1, 3, 0, leaseEnd))),
			},
			{do: do(cancel("a"), cancel("b"), cancel("b")), want: results(reserved(), ended(fsm.Delayed), gone(fsm.Cancelled))},
			{
				do:   do(&fsm.Cancel{Queue: "q", ID: "a", Force: true}, ack(1, 3)),
				want: results(ended(fsm.Reserved), code(fsm.StaleLease)),
			},
			{at: 10 * time.Minute, do: do(cancel("a")), want: results(notFound)},
		}},
		{name: "a dead job can be cancelled", steps: []step{
			{
				do:   do(put("a"), reserve(1), &fsm.Nack{Ref: ref(1, 2), Dead: true}, cancel("a")),
				want: results(created(1, fsm.Ready, 0), granted(lease(1, 2, 0, leaseEnd)), ended(fsm.Dead), ended(fsm.Dead)),
			},
		}},
		{name: "reschedule moves what waits", steps: []step{
			{
				do:   do(move("a", 1), put("a"), move("a", time.Second)),
				want: results(notFound, created(1, fsm.Ready, 0), waiting(fsm.Delayed, time.Second)),
			},
			{
				do:   do(&fsm.Reschedule{Queue: "q", ID: "a", Given: fsm.GivenDueAt, DueAt: after(-5 * ms)}),
				want: results(waiting(fsm.Ready, -5*ms)),
			},
			{
				do:   do(reserve(1), move("a", 1), &fsm.Nack{Ref: ref(1, 2), Dead: true}, move("a", 1)),
				want: results(granted(lease(1, 2, -5*ms, leaseEnd)), reserved(), ended(fsm.Dead), gone(fsm.Dead)),
			},
			{do: do(cancel("a"), move("a", 1)), want: results(ended(fsm.Dead), gone(fsm.Cancelled))},
		}},
	})
}

func TestModelScenarioQueue(t *testing.T) {
	t.Parallel()
	dead := func(serial, fence uint64) *fsm.Nack { return &fsm.Nack{Ref: ref(serial, fence), Dead: true} }
	purge := func(n uint32, states ...fsm.State) *fsm.Purge {
		return &fsm.Purge{Queue: "q", States: fsm.Set(states...), Max: n}
	}
	unknown := code(fsm.QueueNotFound)
	threeDead := step{do: do(put("a", dueAt(after(-ms)), ttl(time.Second)), put("b", dueAt(after(-3*ms))),
		put("c", dueAt(after(-2*ms))), reserve(3), dead(1, 6), dead(2, 4), dead(3, 5)),
		want: results(created(1, fsm.Ready, -ms), created(2, fsm.Ready, -3*ms), created(3, fsm.Ready, -2*ms),
			granted(lease(2, 4, -3*ms, leaseEnd), lease(3, 5, -2*ms, leaseEnd), lease(1, 6, -ms, leaseEnd)), ended(fsm.Dead),
			ended(fsm.Dead), ended(fsm.Dead))}
	runScenarios(t, []scenario{
		{name: "an unknown queue has nothing to act on", steps: []step{
			{
				do:   do(&fsm.Redrive{Queue: "q"}, purge(0, fsm.Ready), &fsm.DeleteQueue{Queue: "q"}),
				want: results(unknown, unknown, unknown),
			},
		}},
		{name: "redrive by ids passes over what is not dead", steps: []step{
			threeDead,
			{at: time.Minute, do: do(&fsm.Redrive{
				Queue: "q", IDs: []string{"c", "x", "c", "a"}, Max: 1,
			}, reserve(9)), want: results(count(2),
				granted(lease(1, 7, time.Minute, time.Minute+leaseEnd), lease(3, 8, time.Minute, time.Minute+leaseEnd)))},
		}},
		{name: "redrive takes the longest due first", steps: []step{
			threeDead,
			{
				do: do(&fsm.Redrive{Queue: "q", Max: 2}), want: results(count(2)),
				held: map[string]fsm.State{"a": fsm.Dead, "b": fsm.Ready, "c": fsm.Ready},
			},
			{at: time.Hour, do: do(&fsm.Redrive{Queue: "q"}), want: results(count(1)),
				held: map[string]fsm.State{"a": fsm.Ready}, look: func(t *testing.T, s shard) {
					t.Helper()
					if j, _ := s.Job("q", "a", s.Clock()); j.TTL != 0 || j.Redrives != 1 || j.Attempt != 0 ||
						j.Due != after(time.Hour) {
						t.Errorf("the job that was made ready again is %+v", j)
					}
				}},
		}},
		{name: "purge goes state by state and is remembered as cancelled", steps: []step{
			{do: do(put("a"), put("b"), put("c", delay(time.Hour)), put("d", delay(time.Minute)), reserve(1)),
				want: results(created(1, fsm.Ready, 0), created(2, fsm.Ready, 0),
					created(3, fsm.Delayed, time.Hour), created(4, fsm.Delayed, time.Minute), granted(lease(1, 5, 0, leaseEnd)))},
			{
				do: do(purge(1, fsm.Ready, fsm.Delayed)), want: results(fsm.Result{Count: 1, More: true}),
				held: map[string]fsm.State{"d": fsm.StateNone},
			},
			{
				do: do(purge(2, fsm.Ready, fsm.Delayed), purge(9, fsm.Ready, fsm.Delayed)), want: results(count(2), count(0)),
				held: map[string]fsm.State{"a": fsm.Reserved},
			},
			{
				do:   do(purge(0, fsm.Reserved, fsm.Acked), put("a"), ack(1, 5)),
				want: results(count(1), met(1, fsm.Cancelled, 0), code(fsm.StaleLease)),
			},
		}},
	})
}

func TestModelScenarioQueueChanges(t *testing.T) {
	t.Parallel()
	quota := code(fsm.Quota)
	runScenarios(t, []scenario{
		{name: "a deleted queue is forgotten with its ids and settings", steps: []step{
			{
				do:   do(configure(7, fsm.Settings{MaxJobs: 1}), put("a"), cancel("a"), put("b")),
				want: results(okay(), created(1, fsm.Ready, 0), ended(fsm.Ready), created(2, fsm.Ready, 0)),
			},
			{do: do(&fsm.DeleteQueue{Queue: "q"}, cancel("b")), want: results(count(1), code(fsm.JobNotFound))},
			{
				do:   do(put("a", body("x")), put("b", body("x"))),
				want: results(created(3, fsm.Ready, 0), created(4, fsm.Ready, 0)),
			},
		}},
		{name: "configure takes only higher versions, and makes a queue", steps: []step{
			{
				do:   do(configure(0, fsm.Settings{MaxJobs: 1}), put(""), put("")),
				want: results(okay(), created(1, fsm.Ready, 0), created(2, fsm.Ready, 0)),
			},
			{
				do: do(configure(2, fsm.Settings{MaxJobs: 2}), configure(2, fsm.Settings{}), configure(1, fsm.Settings{}),
					put("")),
				want: results(okay(), okay(), okay(), code(fsm.QueueFull)),
			},
			{
				do: do(&fsm.Configure{
					Queue: "q", Partitions: 2, Version: 3,
				}, &fsm.Configure{Queue: "r", Partitions: 2, Version: 3}),
				want: results(code(fsm.QueueChanged), code(fsm.QueueChanged)),
			},
		}},
		{name: "a shard has at most so many queues", cfg: fsm.Config{QueuesMax: 1}, steps: []step{
			{do: do(put("a"), put("", into("r", 0, 1)), &fsm.Open{
				Queue: "r", Partition: 1, Partitions: 2,
			}, &fsm.Configure{Queue: "r", Partitions: 1, Version: 1}, put("", into("r", 0, 2))),
				want: results(created(1, fsm.Ready, 0), quota, quota, quota, code(fsm.QueueChanged))},
			{
				do:   do(put(""), configure(1, fsm.Settings{}), &fsm.Open{Queue: "q", Partitions: 1}),
				want: results(created(2, fsm.Ready, 0), okay(), okay()),
			},
			{
				do:   do(&fsm.DeleteQueue{Queue: "q"}, put("", into("r", 0, 1)), put("a")),
				want: results(count(2), created(3, fsm.Ready, 0), quota),
			},
		}},
		{name: "open again is fine, open otherwise is not", steps: []step{
			{do: do(&fsm.Open{
				Queue: "q", Partition: 1, Partitions: 2,
			}, &fsm.Open{Queue: "q", Partition: 1, Partitions: 2}, &fsm.Open{Queue: "q", Partitions: 2}),
				want: results(opened(), okay(), code(fsm.QueueExists))},
		}},
	})
}
