package scheduler

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/fsm/machine"
	"github.com/belfrydb/belfry/fsm/schedules"
	"github.com/belfrydb/belfry/node/outcome"
)

// everySecond is a calendar of every whole second.
type everySecond struct{}

const second = fsm.Time(time.Second)

func (everySecond) Next(t fsm.Time) fsm.Time      { return (t/second + 1) * second }
func (everySecond) Due(nominal fsm.Time) fsm.Time { return nominal }
func (everySecond) ZoneData() string              { return "" }

// once is a calendar of a schedule that fires once.
type once struct{ everySecond }

func (once) Next(fsm.Time) fsm.Time { return 0 }

// ends is a calendar of every whole second before a time.
type ends struct {
	everySecond
	end fsm.Time
}

func (e ends) Next(t fsm.Time) fsm.Time {
	if next := e.everySecond.Next(t); next < e.end {
		return next
	}
	return 0
}

// shard is a machine whose entries are applied at once, at the time of the bubble.
type shard struct {
	t        *testing.T
	mu       sync.Mutex // guards the machine, as the lock of a replica does, and what is counted
	m        *machine.Machine
	s        *Scheduler
	ahead    atomic.Int64  // of the clock of the shard, in nanoseconds
	fails    error         // of every proposal
	stands   chan struct{} // if there is one, proposals wait for it to be closed
	proposed int
	refused  int           // commands
	late     time.Duration // the most that a firing was late
	notes    []string
	// looked counts the schedules that the scheduler looked at, lookedMost those of one look.
	looked, lookedMost int
}

func newShard(t *testing.T) *shard {
	d := &shard{t: t, m: machine.New(fsm.Config{})}
	d.s = New(Config{
		Now: d.now,
		Next: func() fsm.Time {
			d.mu.Lock()
			defer d.mu.Unlock()
			return d.m.NextFiring()
		},
		Due: func(query *schedules.DueQuery) schedules.Due {
			d.mu.Lock()
			defer d.mu.Unlock()
			skip, looked := query.Skip, 0
			counted := *query
			counted.Skip = func(queue string, name []byte) bool {
				looked++
				return skip(queue, name)
			}
			due := d.m.DueSchedules(&counted)
			d.looked, d.lookedMost = d.looked+looked, max(d.lookedMost, looked)
			return due
		},
		Calendar: func(s *fsm.Schedule) (schedules.Calendar, error) {
			switch s.Spec.Cron {
			case "unreadable":
				return nil, errors.New("it is unreadable")
			case "once":
				return once{}, nil
			case "ends":
				return ends{end: s.Spec.End}, nil
			default:
				return everySecond{}, nil
			}
		},
		Propose: d.propose,
		Fired: func(fire *fsm.Fire, result *fsm.Result, late time.Duration) {
			d.mu.Lock()
			defer d.mu.Unlock()
			if result.Created && !strings.HasPrefix(fire.Queue, "short") {
				d.late = max(d.late, late)
			}
			if result.Code == fsm.QueueFull || result.Code == fsm.VersionChanged {
				d.refused++
			}
		},
		Note: func(doing string, err error) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.notes = append(d.notes, fmt.Sprintf("%s: %v", doing, err))
		},
	})
	return d
}

// propose applies a request, after a second if it is of a namespace without quota.
func (d *shard) propose(ctx context.Context, req *fsm.Request, beforeWait func()) ([]fsm.Result, error) {
	d.mu.Lock()
	d.proposed++
	d.mu.Unlock()
	if d.fails != nil {
		return nil, d.fails
	}
	if d.stands != nil {
		<-d.stands
	}
	if namespace := fsm.NamespaceOf(fsm.QueueOf(req.Commands[0])); strings.HasPrefix(namespace, "short") {
		beforeWait()
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return nil, outcome.ErrNoLeader
		}
		if namespace != "short" {
			return nil, outcome.ErrQuota
		}
	}
	return d.apply(req.Commands...), nil
}

func now() fsm.Time { return fsm.Time(time.Now().UnixNano()) }

// now is the time of the shard.
func (d *shard) now() fsm.Time { return now() + fsm.Time(d.ahead.Load()) }

func (d *shard) apply(commands ...fsm.Command) []fsm.Result {
	d.t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	request := codec.AppendRequestIn(nil, 4, &fsm.Request{Commands: commands})
	results, err := d.m.Apply(d.m.Index()+1, codec.AppendEntryIn(nil, 4, d.now(), [][]byte{request}))
	if err != nil {
		d.t.Fatal(err)
	}
	d.s.Moved(d.m.NextFiring())
	return results
}

// put creates a schedule that fires at the next whole second.
func (d *shard) put(queue, name string, spec fsm.ScheduleSpec) {
	d.t.Helper()
	d.apply(&fsm.PutSchedule{
		Queue: queue, Partitions: 1, Name: name, Spec: spec, Policy: fsm.SchedulePolicy{CatchUp: fsm.CatchUpAll},
		Next: everySecond{}.Next(d.now()),
	})
}

// jobs returns how many jobs a queue holds.
func (d *shard) jobs(queue string) uint64 {
	q, _ := d.m.Queue(queue, d.now())
	return q.Counts.Jobs()
}

// lead runs the scheduler for a while, and waits until it has ended.
func (d *shard) lead(length time.Duration) {
	ctx, cancel := context.WithTimeout(d.t.Context(), length)
	defer cancel()
	d.s.Run(ctx)
}

// TestFires: each nominal time has one job, put at that very time, whichever leader puts it. What was
// missed between two leaders is caught up with.
func TestFires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newShard(t)
		d.put("q", "one", fsm.ScheduleSpec{})
		d.put("ns/q", "two", fsm.ScheduleSpec{})
		d.lead(30*time.Second + 500*time.Millisecond)
		if one, two := d.jobs("q"), d.jobs("ns/q"); one != 30 || two != 30 || d.late != 0 {
			t.Errorf("%d and %d jobs after 30 seconds, %v late", one, two, d.late)
		}
		time.Sleep(10 * time.Second)
		d.lead(time.Second)
		if one, two := d.jobs("q"), d.jobs("ns/q"); one != 41 || two != 41 {
			t.Errorf("%d and %d jobs after 41 seconds, of which 10 had no leader", one, two)
		}
	})
}

// TestWakesForAnEarlierFiring: a schedule that is put while the scheduler waits for a later one fires in
// time.
func TestWakesForAnEarlierFiring(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newShard(t)
		go func() {
			time.Sleep(time.Minute + time.Millisecond)
			d.put("q", "first", fsm.ScheduleSpec{})
		}()
		d.lead(time.Minute + 1500*time.Millisecond)
		if n := d.jobs("q"); n != 1 || d.late != 0 {
			t.Errorf("%d jobs, %v late", n, d.late)
		}
	})
}

// TestHeldQueues: a full queue, and one with a rule that cannot be read, do not keep others from firing,
// and are not asked for all the time.
func TestHeldQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newShard(t)
		d.apply(&fsm.Configure{Queue: "full", Partitions: 1, Version: 1, Settings: fsm.Settings{MaxJobs: 2}})
		d.put("full", "s", fsm.ScheduleSpec{})
		d.put("broken", "s", fsm.ScheduleSpec{Cron: "unreadable"})
		d.put("q", "s", fsm.ScheduleSpec{})
		d.apply(&fsm.PutSchedule{ // between the seconds at which the others are tried again
			Queue: "other", Partitions: 1, Name: "s", Next: now().Add(3*time.Second + 150*time.Millisecond),
		})
		d.lead(10*time.Second + 500*time.Millisecond)
		full, broken, n := d.jobs("full"), d.jobs("broken"), d.jobs("q")
		if full != 2 || broken != 0 || n != 10 || d.late != 0 {
			t.Errorf("%d jobs of the full queue, %d of the broken one, %d of the other, %v late", full, broken, n, d.late)
		}
		if n := d.jobs("other"); n != 8 {
			t.Errorf("%d jobs of the queue that fires at other times", n)
		}
		if d.proposed > 30 || len(d.notes) < 5 || len(d.notes) > 12 {
			t.Errorf("%d requests, notes %q", d.proposed, d.notes)
		}
		d.apply(&fsm.Configure{Queue: "full", Partitions: 1, Version: 2})
		d.lead(2 * time.Second)
		if n := d.jobs("full"); n != 12 {
			t.Errorf("%d jobs once the queue had room again, want all 12", n)
		}
	})
}

// TestProposalsThatFail: they are tried again after a while, and no firing is lost.
func TestProposalsThatFail(t *testing.T) {
	for _, tc := range []struct {
		err   error
		notes bool
	}{{outcome.ErrNoLeader, false}, {outcome.ErrQuota, true}} {
		synctest.Test(t, func(t *testing.T) {
			d := newShard(t)
			d.put("q", "s", fsm.ScheduleSpec{})
			d.fails = tc.err
			d.lead(5*time.Second + 500*time.Millisecond)
			if d.proposed < 4 || d.proposed > 6 || (len(d.notes) > 0) != tc.notes {
				t.Errorf("%v: %d requests, notes %q", tc.err, d.proposed, d.notes)
			}
			d.fails = nil
			d.lead(2 * time.Second)
			if n := d.jobs("q"); n != 7 {
				t.Errorf("%v: %d jobs, want 7", tc.err, n)
			}
		})
	}
}

// TestResetClock: what was held by a clock that is set back is not held by the one that is right.
func TestResetClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newShard(t)
		d.put("other", "resumed", fsm.ScheduleSpec{})
		d.apply(&fsm.PauseSchedules{Queue: "other", Names: []string{"resumed"}})
		d.ahead.Store(int64(1000 * time.Hour))
		d.apply(&fsm.Configure{Queue: "full", Partitions: 1, Version: 1, Settings: fsm.Settings{MaxJobs: 1}})
		d.put("full", "early", fsm.ScheduleSpec{})
		d.put("q", "early", fsm.ScheduleSpec{})
		go func() {
			time.Sleep(5*time.Second + 50*time.Millisecond) // just after a firing, behind what is held
			d.ahead.Store(0)
			d.apply(&fsm.ResetClock{To: now()}, &fsm.Configure{Queue: "full", Partitions: 1, Version: 2})
			d.put("full", "new", fsm.ScheduleSpec{})
			d.apply(&fsm.PauseSchedules{Queue: "other", Names: []string{"resumed"}, Resume: true})
		}()
		d.lead(14*time.Second + 500*time.Millisecond)
		if full, other := d.jobs("full"), d.jobs("other"); full != 10 || other != 14 {
			t.Errorf("%d jobs of the queue that was full, %d of the other one; want 10 and 14", full, other)
		}
	})
}

// TestNamespacesWithoutQuota: firings that wait for quota keep no others from firing, however many
// namespaces wait, and have their jobs as soon as there is quota.
func TestNamespacesWithoutQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newShard(t)
		for i := range 2 * requestsAtOnce {
			d.put(fmt.Sprintf("short%d/q", i), "s", fsm.ScheduleSpec{})
		}
		d.put("short/q", "s", fsm.ScheduleSpec{})
		d.put("q", "s", fsm.ScheduleSpec{})
		d.put("ns/q", "s", fsm.ScheduleSpec{})
		go func() {
			time.Sleep(500 * time.Millisecond)
			d.put("between", "s", fsm.ScheduleSpec{})
		}()
		d.lead(10*time.Second + 500*time.Millisecond)
		for _, queue := range []string{"q", "ns/q", "between"} {
			if n := d.jobs(queue); n != 10 || d.late != 0 {
				t.Errorf("%d jobs of queue %s, %v late", n, queue, d.late)
			}
		}
		if n := d.jobs("short/q"); n < 9 {
			t.Errorf("%d jobs of the queue that waits a second each time", n)
		}
		if d.proposed < 150 || d.proposed > 250 {
			t.Errorf("%d requests", d.proposed)
		}
	})
}

// TestNamespaceGoesOnAtOnce: a firing that came while its namespace waited for quota is proposed as soon as
// that has ended.
func TestNamespaceGoesOnAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newShard(t)
		begins := everySecond{}.Next(d.now())
		for queue, next := range map[string]fsm.Time{
			"short/first": begins, "short/second": begins + second*55/100, // each takes a second
			// At 0.97 s all before it were passed over. The look at them is not repeated before 1.05 s,
			// since another namespace without quota is passed over until then.
			"short0/q": begins + second*5/100, "q": begins + second*97/100,
		} {
			d.apply(&fsm.PutSchedule{
				Queue: queue, Partitions: 1, Name: "s", Next: next, Spec: fsm.ScheduleSpec{Cron: "once"},
			})
		}
		d.lead(begins.Sub(d.now()) + 2*time.Second + time.Millisecond)
		if first, after := d.jobs("short/first"), d.jobs("short/second"); first != 1 || after != 1 {
			t.Errorf("%d and %d jobs", first, after)
		}
	})
}

// TestSettle: it returns when what has come is proposed, and with an error when nobody leads.
func TestSettle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newShard(t)
		d.put("q", "s", fsm.ScheduleSpec{})
		if err := d.s.Settle(t.Context()); !errors.Is(err, outcome.ErrNoLeader) {
			t.Errorf("before the first leadership: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		d.s.Begin()
		go func() {
			time.Sleep(time.Second) // this node leads, and its duties are about to begin
			d.s.Run(ctx)
			d.s.End()
		}()
		d.ahead.Store(10 * int64(second))
		if err := d.s.Settle(t.Context()); err != nil || d.jobs("q") < 10 {
			t.Errorf("%d jobs, %v", d.jobs("q"), err)
		}
		d.ahead.Add(int64(second))
		d.stands = make(chan struct{})
		settled := make(chan error)
		go func() { settled <- d.s.Settle(t.Context()) }()
		synctest.Wait() // Run waits for a proposal, and Settle for Run
		cancel()
		close(d.stands)
		if err := <-settled; !errors.Is(err, outcome.ErrNoLeader) {
			t.Errorf("as the leadership ended: %v", err)
		}
	})
}

// TestManySchedules: all schedules of one second fire in it, more than one round and one request have.
func TestManySchedules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newShard(t)
		for i := range 2500 {
			d.put("q", fmt.Sprintf("s%d", i), fsm.ScheduleSpec{})
		}
		d.lead(1500 * time.Millisecond)
		if n := d.jobs("q"); n != 2500 || d.proposed != 3 {
			t.Errorf("%d jobs in %d requests", n, d.proposed)
		}
	})
}

// TestLargeFirings: a request puts at most about 4 MiB, and every firing has its job.
func TestLargeFirings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newShard(t)
		d.apply(&fsm.PutSchedule{
			Queue: "q", Partitions: 1, Name: "s", Policy: fsm.SchedulePolicy{CatchUp: fsm.CatchUpAll},
			Next: everySecond{}.Next(now()), Job: fsm.Put{Body: make([]byte, 1<<20)},
		})
		time.Sleep(20 * time.Second)
		d.lead(500 * time.Millisecond)
		if n := d.jobs("q"); n != 20 || d.proposed != 7 { // a schedule has a few bytes beside the body
			t.Errorf("%d jobs in %d requests", n, d.proposed)
		}
	})
}

// TestLargeChanges: a request changes at most about 4 MiB of schedules, also if it puts no job.
func TestLargeChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newShard(t)
		for i := range 20 {
			d.apply(&fsm.PutSchedule{
				Queue: "q", Partitions: 1, Name: fmt.Sprintf("s%d", i), ZoneData: "earlier",
				Next: now().Add(500 * time.Millisecond), Job: fsm.Put{Body: make([]byte, 1<<20)},
			})
		}
		d.lead(700 * time.Millisecond)
		if n := d.jobs("q"); n != 0 || d.proposed != 7 { // they are planned anew
			t.Errorf("%d jobs in %d requests", n, d.proposed)
		}
	})
}

// TestLaggingSchedules: schedules with a long past do not keep others from firing in time, and all their
// nominal times are dealt with.
func TestLaggingSchedules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newShard(t)
		const lagging, past = 30, 50_000
		for i := range lagging {
			d.apply(&fsm.PutSchedule{
				Queue: "q", Partitions: 1, Name: fmt.Sprintf("s%d", i), Next: now()/second*second - past*second,
			})
		}
		d.put("other", "in time", fsm.ScheduleSpec{})
		time.Sleep(time.Second)
		d.s.reset()
		for range 3 {
			d.s.step(t.Context())
		}
		if n := d.jobs("other"); n != 1 {
			t.Errorf("%d jobs of the schedule that is in time after three steps", n)
		}
		d.lead(time.Minute - 500*time.Millisecond)
		if n := d.jobs("other"); n != 60 || d.late != 0 {
			t.Errorf("%d jobs of the schedule that is in time, late %v", n, d.late)
		}
		for _, s := range d.m.Answer(&fsm.SchedulesQuery{Queue: "q", Max: lagging}, now()).Schedules {
			if dealt := s.Counts.Fired + s.Counts.Missed; dealt != past+61 || s.Next <= now() {
				t.Errorf("%s dealt with %d nominal times, next %d", s.Name, dealt, s.Next)
			}
		}
		if len(d.s.lagging) > 0 {
			t.Errorf("%d schedules lag", len(d.s.lagging))
		}
	})
}

// TestManyHeldSchedules: those of a full queue are looked at a part at a time, and seldom.
func TestManyHeldSchedules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newShard(t)
		d.apply(&fsm.Configure{Queue: "full", Partitions: 1, Version: 1, Settings: fsm.Settings{MaxJobs: 1}})
		const full = 20_000
		for i := range full {
			d.put("full", fmt.Sprintf("s%d", i), fsm.ScheduleSpec{})
		}
		for i := range 50 {
			next := now().Add(time.Second + time.Duration(i)*time.Millisecond)
			d.apply(&fsm.PutSchedule{Queue: "q", Partitions: 1, Name: fmt.Sprintf("s%d", i), Next: next})
		}
		d.lead(1090 * time.Millisecond)
		if n := d.jobs("q"); n != 50 || d.late != 0 {
			t.Errorf("%d jobs, %v late", n, d.late)
		}
		if d.lookedMost > 5000 || d.looked > 3*full {
			t.Errorf("it looked at %d schedules, at most at %d at once", d.looked, d.lookedMost)
		}
	})
}
