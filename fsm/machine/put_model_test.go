package machine_test

import (
	"strings"
	"testing"
	"time"

	"github.com/belfrydb/belfry/fsm"
)

func TestModelScenarioPut(t *testing.T) {
	t.Parallel()
	const long = 1 << 42 * ms // 139 years
	runScenarios(t, []scenario{
		{name: "a new job that is due is ready, a later one delayed", steps: []step{{
			do: do(put("a"), put("b", delay(time.Second)), put("c", dueAt(after(-time.Hour))), put("d", dueAt(after(ms)))),
			want: results(created(1, fsm.Ready, 0), created(2, fsm.Delayed, time.Second), created(3, fsm.Ready, -time.Hour),
				created(4, fsm.Delayed, ms)),
		}}},
		{name: "a sum of times stops at the end of time", steps: []step{{
			do: do(put("a", delay(long), ttl(long)), put("b", delay(1<<63-1)), put("c", dueAt(1<<63-1))),
			want: results(created(1, fsm.Delayed, long), fsm.Result{
				Created: true, State: fsm.Delayed, Serial: 2, Due: fsm.TimeMax,
			},
				fsm.Result{Created: true, State: fsm.Delayed, Serial: 3, Due: fsm.TimeMax}),
		}}},
		{name: "a generated id is made of partition and serial", steps: []step{
			{
				do: do(put("")), want: results(created(1, fsm.Ready, 0)),
				held: map[string]fsm.State{"0-1": fsm.Ready, "0-2": fsm.StateNone},
			},
			{do: do(cancel("0-1")), want: results(ended(fsm.Ready))},
			// It leaves no tombstone.
			{do: do(cancel("0-1")), want: results(code(fsm.JobNotFound))},
		}},
		{name: "a queue that is routed by another count is refused", steps: []step{
			{do: do(put("a", into("q", 1, 3))), want: results(code(fsm.QueueChanged))},
			{do: do(put("a", into("q", 0, 2))), want: results(code(fsm.QueueChanged))},
			{do: do(&fsm.Open{Queue: "q", Partition: 1, Partitions: 3}), want: results(opened())},
			{do: do(put("a"), put("a", into("q", 0, 3))), want: results(code(fsm.QueueChanged), code(fsm.QueueChanged))},
			{
				do:   do(put("a", into("q", 1, 3))),
				want: results(fsm.Result{Created: true, State: fsm.Ready, Partition: 1, Serial: 1, Due: start}),
			},
		}},
		{name: "an equal put of a held job meets it, another one does not", steps: []step{
			{do: do(put("a", delay(time.Minute), body("x"))), want: results(created(1, fsm.Delayed, time.Minute))},
			{at: time.Second, do: do(put("a", delay(time.Minute), body("x"))), want: results(met(1, fsm.Delayed, time.Minute))},
			{at: time.Second, do: do(put("a", delay(time.Minute), body("y"))), want: results(code(fsm.JobExists))},
			{at: time.Second, do: do(put("a", body("x"))), want: results(code(fsm.JobExists))},
			// Again does not let a put in while the job is held.
			{
				at: time.Second, do: do(put("a", delay(time.Minute), body("x"), again)),
				want: results(met(1, fsm.Delayed, time.Minute)),
			},
			{at: time.Second, do: do(put("a", body("y"), again)), want: results(code(fsm.JobExists))},
			// The first due time is answered even after the job was moved and rescheduled.
			{
				at: time.Second, do: do(&fsm.Reschedule{Queue: "q", ID: "a", Given: fsm.GivenDelay}),
				want: results(waiting(fsm.Ready, time.Second)),
			},
			{at: time.Hour, do: do(put("a", delay(time.Minute), body("x"))), want: results(met(1, fsm.Ready, time.Minute))},
		}},
		{name: "an omitted option is not the option given as its default", steps: []step{
			{do: do(put("a")), want: results(created(1, fsm.Ready, 0))},
			{do: do(put("a", delay(0)), put("a", priority(0)), put("a", ttr(30*time.Second))),
				want: results(code(fsm.JobExists), code(fsm.JobExists), code(fsm.JobExists))},
		}},
	})
}

func TestModelScenarioTombstone(t *testing.T) {
	t.Parallel()
	runScenarios(t, []scenario{
		{name: "an ended id is remembered for the window", steps: []step{
			{
				do:   do(put("a"), reserve(1), ack(1, 2)),
				want: results(created(1, fsm.Ready, 0), granted(lease(1, 2, 0, 30*time.Second)), acked()),
			},
			{
				at: 10*time.Minute - 1, do: do(put("a"), put("a", body("x"))),
				want: results(met(1, fsm.Acked, 0), code(fsm.JobExists)),
			},
			{at: 10 * time.Minute, do: do(put("a", body("x"))), want: results(created(3, fsm.Ready, 10*time.Minute))},
		}},
		{name: "again lets a put in after the end", steps: []step{
			{do: do(put("a"), cancel("a")), want: results(created(1, fsm.Ready, 0), ended(fsm.Ready))},
			{do: do(put("a"), put("a", again)), want: results(met(1, fsm.Cancelled, 0), created(2, fsm.Ready, 0))},
		}},
		{name: "again that is refused forgets nothing", steps: []step{
			{do: do(configure(1, fsm.Settings{MaxJobs: 1}), put("a"), cancel("a"), put("b")),
				want: results(okay(), created(1, fsm.Ready, 0), ended(fsm.Ready), created(2, fsm.Ready, 0))},
			{do: do(put("a", body("x"), again), put("a")), want: results(code(fsm.QueueFull), met(1, fsm.Cancelled, 0))},
		}},
		{name: "the window of a queue is its present one", steps: []step{
			{do: do(put("a"), cancel("a")), want: results(created(1, fsm.Ready, 0), ended(fsm.Ready))},
			{at: time.Second, do: do(configure(1, fsm.Settings{DedupForever: true})), want: results(okay())},
			{at: 1000 * time.Hour, do: do(put("a")), want: results(met(1, fsm.Cancelled, 0))},
			{at: 1000 * time.Hour, do: do(configure(2, fsm.Settings{DedupWindowSet: true})), want: results(okay())},
			{at: 1000 * time.Hour, do: do(put("a")), want: results(created(2, fsm.Ready, 1000*time.Hour))},
		}},
		{name: "a shard remembers at most so many ended ids", cfg: fsm.Config{TombstonesMax: 2}, steps: []step{
			{do: do(put("a"), put("b"), put("c"), cancel("c"), cancel("b"), cancel("a")), want: results(created(1, fsm.Ready, 0),
				created(2, fsm.Ready, 0), created(3, fsm.Ready, 0), ended(fsm.Ready), ended(fsm.Ready), ended(fsm.Ready))},
			// All ended at once, so the lowest serial of those present went to make room: that of b, not
			// that of the newcomer a.
			{do: do(put("a"), put("c"), put("b")),
				want: results(met(1, fsm.Cancelled, 0), met(3, fsm.Cancelled, 0), created(4, fsm.Ready, 0)),
				look: func(t *testing.T, s shard) {
					t.Helper()
					if q, _ := s.Queue("q", s.Clock()); q.DedupSince != start || q.Tombstones != 2 {
						t.Errorf("%d tombstones, all since %d; want 2 since %d", q.Tombstones, q.DedupSince, start)
					}
				}},
		}},
	})
}

func TestModelScenarioLimits(t *testing.T) {
	t.Parallel()
	header := func(p *fsm.Put) { p.Headers = []fsm.Header{{Name: "n", Value: "12"}} }
	runScenarios(t, []scenario{
		{name: "max jobs counts the held ones", steps: []step{
			{
				do:   do(configure(1, fsm.Settings{MaxJobs: 1}), put("a"), put("b")),
				want: results(okay(), created(1, fsm.Ready, 0), code(fsm.QueueFull)),
			},
			{
				do:   do(put("a"), cancel("a"), put("b")),
				want: results(met(1, fsm.Ready, 0), ended(fsm.Ready), created(2, fsm.Ready, 0)),
			},
		}},
		{name: "max bytes counts body, chosen id, headers", steps: []step{
			{do: do(configure(1, fsm.Settings{MaxBytes: 9}), put("ab", body("123"), header), put("", body("1")), put("")),
				want: results(okay(), created(1, fsm.Ready, 0), created(2, fsm.Ready, 0), created(3, fsm.Ready, 0))},
			{do: do(put("", body("1")), put("x"), put("")),
				want: results(code(fsm.QueueFull), code(fsm.QueueFull), created(4, fsm.Ready, 0)),
				look: func(t *testing.T, s shard) {
					t.Helper()
					if q, _ := s.Queue("q", s.Clock()); q.Counts.Bytes != 9 || q.Counts.Ready != 4 {
						t.Errorf("counts are %+v, want 9 bytes in 4 ready jobs", q.Counts)
					}
				}},
		}},
		{name: "limits are shared by the partitions, rounded down but to no less than one", steps: []step{
			{do: do(&fsm.Open{Queue: "q", Partition: 1, Partitions: 3},
				&fsm.Configure{
					Queue: "q", Partition: 1, Partitions: 3, Version: 1, Settings: fsm.Settings{MaxJobs: 8},
				}), want: results(opened(), okay())},
			{do: do(put("a", into("q", 1, 3)), put("b", into("q", 1, 3)), put("c", into("q", 1, 3))), want: results(
				fsm.Result{Created: true, State: fsm.Ready, Partition: 1, Serial: 1, Due: start},
				fsm.Result{Created: true, State: fsm.Ready, Partition: 1, Serial: 2, Due: start}, code(fsm.QueueFull))},
			{do: do(&fsm.Open{
				Queue: "r", Partitions: 9,
			}, &fsm.Configure{Queue: "r", Partitions: 9, Version: 1, Settings: fsm.Settings{MaxJobs: 8}},
				put("a", into("r", 0, 9)), put("b", into("r", 0, 9))),
				want: results(opened(), okay(), created(3, fsm.Ready, 0), code(fsm.QueueFull))},
		}},
		{name: "no partitions at all do not stop the shard", steps: []step{
			{do: do(&fsm.Open{Queue: "q"}, &fsm.Configure{
				Queue: "q", Version: 1, Settings: fsm.Settings{MaxJobs: 1},
			}, put("a", into("q", 0, 0)),
				put("b", into("q", 0, 0))), want: results(opened(), okay(), created(1, fsm.Ready, 0), code(fsm.QueueFull))},
		}},
	})
}

func TestModelScenarioLimitsRates(t *testing.T) {
	t.Parallel()
	second := time.Second
	limited := func(wait time.Duration) fsm.Result { return fsm.Result{Code: fsm.RateLimited, Wait: wait} }
	runScenarios(t, []scenario{
		{name: "the rate is a bucket of one second", steps: []step{
			{do: do(configure(1, fsm.Settings{PutsPerSecond: 3}), put(""), put(""), put(""), put("")), want: results(okay(),
				created(1, fsm.Ready, 0), created(2, fsm.Ready, 0), created(3, fsm.Ready, 0), limited(333_333_333))},
			{at: 333_333_332, do: do(put("")), want: results(limited(1))},
			{at: 333_333_333, do: do(put(""), put("")), want: results(created(4, fsm.Ready, 333*ms), limited(333_333_333))},
			{at: time.Minute, do: do(put(""), put(""), put(""), put("")), want: results(
				created(5, fsm.Ready, time.Minute), created(6, fsm.Ready, time.Minute), created(7, fsm.Ready, time.Minute),
				limited(333_333_333))},
		}},
		{name: "a refused put takes no token, and the rate is asked before the room", steps: []step{
			{do: do(configure(1, fsm.Settings{PutsPerSecond: 2, MaxJobs: 1}), put("a"), put("b"), put("c")),
				want: results(okay(), created(1, fsm.Ready, 0), code(fsm.QueueFull), code(fsm.QueueFull))},
			{
				do:   do(cancel("a"), put("b"), put("c")),
				want: results(ended(fsm.Ready), created(2, fsm.Ready, 0), limited(second/2)),
			},
			// A put that meets its own earlier one is not asked for a token.
			{do: do(put("b")), want: results(met(2, fsm.Ready, 0))},
		}},
		{name: "a rate beyond a token a nanosecond is that", steps: []step{
			{
				do:   do(configure(1, fsm.Settings{PutsPerSecond: 1 << 63}), put(""), put("")),
				want: results(okay(), created(1, fsm.Ready, 0), created(2, fsm.Ready, 0)),
			},
		}},
		{name: "in flight counts the reserved jobs", steps: []step{
			{do: do(configure(1, fsm.Settings{MaxInFlight: 1}), put(""), put(""), reserve(9), reserve(9)),
				want: results(okay(), created(1, fsm.Ready, 0),
					created(2, fsm.Ready, 0), granted(lease(1, 3, 0, 30*second)), okay())},
			{do: do(ack(1, 3), reserve(9)), want: results(acked(), granted(lease(2, 4, 0, 30*second)))},
		}},
		{name: "long names and texts are nothing special", steps: []step{
			{do: do(put(strings.Repeat("i", 300), body(strings.Repeat("b", 70_000)))), want: results(created(1, fsm.Ready, 0))},
			{do: do(cancel(strings.Repeat("i", 300))), want: results(ended(fsm.Ready))},
		}},
	})
}
