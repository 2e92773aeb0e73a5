package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node/clock"
	"github.com/belfrydb/belfry/node/outcome"
	"github.com/belfrydb/belfry/node/propose"
)

// poll is a Reserve that runs in its own goroutine.
type poll struct {
	cancel context.CancelFunc
	ended  chan struct{}
	at     time.Time // of its end
	reply  propose.Reply
	err    error
}

// grants waits for the end of the poll and returns what it was granted.
func (p *poll) grants(t *testing.T) []fsm.Grant {
	t.Helper()
	<-p.ended
	if p.err != nil {
		t.Fatalf("reserving: %v", p.err)
	}
	return p.reply.Results[0].Grants
}

// running reports whether the poll still waits, once everything else has come to rest.
func (p *poll) running() bool {
	synctest.Wait()
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// startPoll starts a Reserve of up to most jobs and returns when it is parked or has ended.
func startPoll(t *testing.T, n *Node, wait time.Duration, most uint32, queues ...string) *poll {
	t.Helper()
	return startWaiting(t, n, Wait{For: wait}, most, queues...)
}

// startWaiting is startPoll with all of a wait.
func startWaiting(t *testing.T, n *Node, wait Wait, most uint32, queues ...string) *poll {
	t.Helper()
	return startRequest(t, n, wait, &fsm.Request{Commands: []fsm.Command{&fsm.Reserve{Queues: queues, Max: most,
		TTR: time.Minute}}})
}

// startRequest is startWaiting for a request.
func startRequest(t *testing.T, n *Node, wait Wait, req *fsm.Request) *poll {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	p := &poll{cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		p.reply, p.err = n.Reserve(ctx, 0, req, wait)
		p.at = time.Now()
	}()
	synctest.Wait()
	return p
}

// lastIndex returns the index of the last entry in the log of shard 0.
func lastIndex(n *Node) uint64 { return n.shards[0].Load().LastIndex() }

// expectEntries fails the test unless exactly want entries were logged since before.
func expectEntries(t *testing.T, n *Node, before, want uint64) {
	t.Helper()
	synctest.Wait()
	if got := lastIndex(n) - before; got != want {
		t.Errorf("%d entries were logged, want %d", got, want)
	}
}

func refOf(g fsm.Grant) fsm.Ref {
	return fsm.Ref{Queue: g.Queue, Partition: g.Partition, Serial: g.Serial, Fence: g.Fence}
}

func TestReserveIsGrantedAtTheDueTime(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := openNode(t, testConfig(t, dir))
		before := lastIndex(n)
		start := time.Now()
		due := do(t, n, 0, put("orders", "x", 2*time.Second)).Results[0].Due
		p := startPoll(t, n, time.Minute, 1, "orders")
		g := p.grants(t)
		if len(g) != 1 || g[0].Due != due || p.reply.Witness.Time < due {
			t.Errorf("granted %+v at %d, want the job that was due at %d", g, p.reply.Witness.Time, due)
		}
		if late := p.at.Sub(start) - 2*time.Second; late < 0 || late > time.Millisecond {
			t.Errorf("granted %v after the due time", late)
		}
		expectEntries(t, n, before, 2)
		if h := n.Stats().Shards[0].Queues["orders"].LatenessSeconds; h.Count != 1 || h.Sum > 0.001 {
			t.Errorf("lateness is %+v, want one value below a millisecond", h)
		}
	})
}

// wakeUp is a way in which something comes to be had in a queue that has one job, which is
// reserved.
type wakeUp struct {
	name string
	// prepare brings the queue to a state in which nothing is to be had, given a job that is reserved.
	prepare []fsm.Command
	// wake makes something available; nil for what time does by itself.
	wake  func(g fsm.Grant) fsm.Command
	after time.Duration
}

func wakeUps() []wakeUp {
	paused := fsm.Settings{Paused: true}
	bubbleStart := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // of every bubble of package synctest
	pausedFor7s := fsm.Settings{Paused: true, PausedUntil: fsm.Time(bubbleStart.Add(7 * time.Second).UnixNano())}
	return []wakeUp{
		{name: "a put", wake: func(fsm.Grant) fsm.Command { return put("orders", "x", 0) }},
		{name: "a nack", wake: func(g fsm.Grant) fsm.Command { return &fsm.Nack{Ref: refOf(g)} }},
		{name: "a release", wake: func(g fsm.Grant) fsm.Command { return &fsm.Release{Ref: refOf(g)} }},
		{name: "a nack with delay", after: 3 * time.Second, wake: func(g fsm.Grant) fsm.Command {
			return &fsm.Nack{Ref: refOf(g), Delay: 3 * time.Second, DelayGiven: true}
		}},
		{name: "a lapse", after: time.Minute},
		{name: "a due time", prepare: []fsm.Command{put("orders", "y", 5*time.Second)}, after: 5 * time.Second},
		{
			name: "an ack below the limit in flight",
			prepare: []fsm.Command{put("orders", "y", 0), &fsm.Configure{Queue: "orders", Partitions: 1, Version: 1,
				Settings: fsm.Settings{MaxInFlight: 1}}},
			wake: func(g fsm.Grant) fsm.Command { return &fsm.Ack{Ref: refOf(g)} },
		},
		{
			name: "a resume",
			prepare: []fsm.Command{put("orders", "y", 0), &fsm.Configure{Queue: "orders", Partitions: 1, Version: 1,
				Settings: paused}},
			wake: func(fsm.Grant) fsm.Command { return &fsm.Configure{Queue: "orders", Partitions: 1, Version: 2} },
		},
		{
			name: "the end of a pause",
			prepare: []fsm.Command{put("orders", "y", 0), &fsm.Configure{Queue: "orders", Partitions: 1, Version: 1,
				Settings: pausedFor7s}},
			after: 7 * time.Second,
		},
		{
			name: "not by a cancel that leaves nothing", after: -1,
			wake: func(fsm.Grant) fsm.Command { return &fsm.Cancel{Queue: "orders", ID: "reserved", Force: true} },
		},
	}
}

func TestReserveIsWokenBy(t *testing.T) {
	for _, tt := range wakeUps() {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				n := openNode(t, testConfig(t, dir))
				first := put("orders", "x", 0)
				first.ID = "reserved"
				do(t, n, 0, first)
				held := reserve(t, n, 0, "orders", 0)[0]
				if len(tt.prepare) > 0 {
					do(t, n, 0, tt.prepare...)
				}
				p := startPoll(t, n, time.Hour, 1, "orders")
				if !p.running() {
					t.Fatalf("the poll ended at once: %+v, %v", p.reply, p.err)
				}
				start := time.Now()
				if tt.wake != nil {
					do(t, n, 0, tt.wake(held))
				}
				if tt.after < 0 { // nothing to be had after all
					if !p.running() {
						t.Errorf("granted %+v", p.reply)
					}
					return
				}
				if g := p.grants(t); len(g) != 1 {
					t.Errorf("granted %+v, want one job", g)
				}
				if late := p.at.Sub(start) - tt.after; late < 0 || late > time.Millisecond {
					t.Errorf("granted after %v, want %v", p.at.Sub(start), tt.after)
				}
			})
		})
	}
}

// A machine that was suspended, or learns the time late, finds its clock far behind: what is due by
// then is handed out without waiting for timers that know nothing of it.
func TestJobsFallDueWhenTheClockCatchesUp(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig(t, dir)
		shifted := shiftedClock(0)
		cfg.Clock = shifted
		n := openNode(t, cfg)
		do(t, n, 0, put("orders", "x", 10*time.Hour), put("unwatched", "y", 10*time.Hour))
		p := startPoll(t, n, time.Hour, 1, "orders")
		time.Sleep(time.Minute)
		shifted.off.Store(int64(10 * time.Hour))
		start := time.Now()
		if g := p.grants(t); len(g) != 1 {
			t.Errorf("granted %+v", g)
		}
		if late := p.at.Sub(start); late > clock.Recheck {
			t.Errorf("granted %v after the clock caught up", late)
		}
		time.Sleep(2 * clock.Recheck)
		if q := queueOf(t, n, "unwatched"); q.Counts.Ready != 1 {
			t.Errorf("the job that nobody waits for is not ready: %+v", q.Counts)
		}
	})
}

func TestManyPollsAndOneJobCostOneEntry(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := openNode(t, testConfig(t, dir))
		polls := make([]*poll, 1000)
		for i := range polls {
			polls[i] = startPoll(t, n, time.Hour, 1, "orders")
		}
		if got := n.Stats().Shards[0].Waiters; got != len(polls) {
			t.Errorf("%d calls wait, want %d", got, len(polls))
		}
		before := lastIndex(n)
		do(t, n, 0, put("orders", "x", time.Second))
		time.Sleep(2 * time.Second)
		expectEntries(t, n, before, 2)
		for i, p := range polls {
			if p.running() == (i == 0) {
				t.Fatalf("poll %d runs: %v; the first alone should have ended", i, p.running())
			}
		}
	})
}

func TestPollThatComesWhileTheOnlyJobIsOnItsWay(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := openNode(t, testConfig(t, dir))
		startPoll(t, n, time.Hour, 1, "orders")
		do(t, n, 0, put("orders", "x", time.Second))
		p := n.shards[0].Load().proposer
		release := p.Hold() // no entry may be in flight: the reservation stays on its way
		time.Sleep(time.Second)
		synctest.Wait()
		late := startPoll(t, n, time.Hour, 1, "orders")
		if now := startPoll(t, n, 0, 1, "orders"); now.running() {
			t.Error("a poll without wait tries for a job that is on its way to another")
		}
		if requests, _ := p.Waiting(); requests != 1 {
			t.Errorf("%d reservations are on their way for one job", requests)
		}
		release()
		if !late.running() {
			t.Errorf("the late poll ended with %+v, %v", late.reply, late.err)
		}
	})
}

func TestPollsAreServedInTheOrderOfArrival(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := openNode(t, testConfig(t, dir))
		var polls []*poll
		for i := range 9 {
			polls = append(polls, startPoll(t, n, time.Hour, 1+uint32(i%2), "orders"))
		}
		for i := range 13 { // what nine polls take that ask for one and two in turn
			do(t, n, 0, put("orders", fmt.Sprint(i), time.Second))
		}
		var serials []uint64
		for _, p := range polls {
			for _, g := range p.grants(t) {
				serials = append(serials, g.Serial)
			}
		}
		if len(serials) != 13 || !slices.IsSorted(serials) {
			t.Errorf("in the order of the polls, the jobs were granted %v", serials)
		}
	})
}

func TestPollEndsEmpty(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := openNode(t, testConfig(t, dir))
		before := lastIndex(n)
		start := time.Now()
		p := startPoll(t, n, 20*time.Second, 1, "orders", "others")
		if g := p.grants(t); len(g) != 0 || p.reply.Witness != (propose.Witness{}) || time.Since(start) != 20*time.Second {
			t.Errorf("after %v the poll ended with %+v", time.Since(start), p.reply)
		}
		if p := startPoll(t, n, 0, 1, "orders"); p.running() || len(p.reply.Results) != 1 {
			t.Errorf("a poll without wait ended with %+v, %v", p.reply, p.err)
		}
		expectEntries(t, n, before, 0)
		if parked := n.shards[0].Load().calls.Parked(); parked != 0 {
			t.Errorf("%d calls stayed behind", parked)
		}
	})
}

func TestPollOnSeveralQueues(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := openNode(t, testConfig(t, dir))
		both := startPoll(t, n, time.Hour, 1, "a", "b", "a")
		second := startPoll(t, n, time.Hour, 1, "b")
		do(t, n, 0, put("b", "x", 0))
		if g := both.grants(t); len(g) != 1 || g[0].Queue != "b" {
			t.Errorf("granted %+v, want the job of b", g)
		}
		do(t, n, 0, put("a", "nobody waits for this any more", 0))
		if !second.running() {
			t.Errorf("the second poll got %+v", second.reply)
		}
		do(t, n, 0, put("b", "y", 0))
		if g := second.grants(t); len(g) != 1 {
			t.Errorf("the second poll got %+v", g)
		}
	})
}

func TestPollThatLeavesWhileParked(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := openNode(t, testConfig(t, dir))
		leaver := startPoll(t, n, time.Hour, 1, "orders")
		next := startPoll(t, n, time.Hour, 1, "orders")
		leaver.cancel()
		<-leaver.ended
		if !errors.Is(leaver.err, outcome.ErrCanceled) || outcome.Of(leaver.err) != outcome.NotApplied {
			t.Errorf("error is %v with outcome %v", leaver.err, outcome.Of(leaver.err))
		}
		do(t, n, 0, put("orders", "x", 0))
		if g := next.grants(t); len(g) != 1 {
			t.Errorf("the next poll got %+v", g)
		}
	})
}

func TestPollThatLeavesWhileItIsGranted(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := openNode(t, testConfig(t, dir))
		leaver := startPoll(t, n, time.Hour, 1, "orders")
		do(t, n, 0, put("orders", "x", time.Second))
		p0 := n.shards[0].Load().proposer
		release := p0.Hold() // no entry may be in flight: the reservation stays on its way
		time.Sleep(time.Second)
		synctest.Wait()
		leaver.cancel()
		<-leaver.ended
		if outcome.Of(leaver.err) != outcome.Unknown || !errors.Is(leaver.err, context.Canceled) {
			t.Errorf("error is %v with outcome %v", leaver.err, outcome.Of(leaver.err))
		}
		release()
		g := startPoll(t, n, time.Hour, 1, "orders").grants(t)
		if len(g) != 1 || g[0].Attempt != 1 {
			t.Errorf("granted %+v, want the job at once with attempt 1", g)
		}
		if waiting := n.Stats().Shards[0].Waiters; waiting != 0 {
			t.Errorf("%d calls seem to wait", waiting)
		}
		if released := queueOf(t, n, "orders").Counters.Released; released != 1 {
			t.Errorf("%d jobs were released, want 1", released)
		}
	})
}

func TestPollWhoseTimeEndsWhileItIsGranted(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := openNode(t, testConfig(t, dir))
		p := startPoll(t, n, time.Second, 1, "orders")
		do(t, n, 0, put("orders", "x", time.Second-time.Millisecond))
		p0 := n.shards[0].Load().proposer
		release := p0.Hold()
		time.Sleep(2 * time.Second)
		if !p.running() {
			t.Fatalf("the poll ended with %+v, %v while its reservation was on the way", p.reply, p.err)
		}
		release()
		if g := p.grants(t); len(g) != 1 {
			t.Errorf("granted %+v, want the job", g)
		}
	})
}

func TestDrainEndsPolls(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := openNode(t, testConfig(t, dir))
		polls := []*poll{startPoll(t, n, time.Hour, 1, "a", "b"), startPoll(t, n, time.Hour, 1, "b", "b", "a")}
		n.Drain()
		n.Drain()
		for _, p := range polls {
			if g := p.grants(t); len(g) != 0 {
				t.Errorf("granted %+v", g)
			}
		}
		late := startPoll(t, n, time.Hour, 1, "a")
		if <-late.ended; !errors.Is(late.err, outcome.ErrShuttingDown) {
			t.Errorf("a poll after Drain ended with %v", late.err)
		}
		if _, err := n.Do(t.Context(), 0, &fsm.Request{}); !errors.Is(err, outcome.ErrShuttingDown) {
			t.Errorf("a request after Drain ended with %v", err)
		}
	})
}

func TestPollsAreBounded(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig(t, dir)
		cfg.WaitersMax = 2
		n := openNode(t, cfg)
		for range 2 {
			startPoll(t, n, time.Minute, 1, "orders")
		}
		p := startPoll(t, n, time.Minute, 1, "orders")
		if <-p.ended; !errors.Is(p.err, outcome.ErrOverloaded) {
			t.Errorf("one poll too many ended with %v", p.err)
		}
	})
}

func TestReserveIsRepeatedByRequestID(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := openNode(t, testConfig(t, dir))
		do(t, n, 0, put("orders", "x", 0))
		req := &fsm.Request{Caller: "c", ID: "r1", Commands: []fsm.Command{&fsm.Reserve{Queues: []string{"orders"}, Max: 1}}}
		first, err := n.Reserve(t.Context(), 0, req, Wait{For: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		second, err := n.Reserve(t.Context(), 0, req, Wait{For: time.Minute})
		if err != nil || time.Since(start) != 0 {
			t.Fatalf("the repetition ended after %v: %v", time.Since(start), err)
		}
		if diff := cmp.Diff(first.Results[0].Grants, second.Results[0].Grants); diff != "" || !second.Results[0].Replayed {
			t.Errorf("the repetition was granted something else (-first +second):\n%s", diff)
		}
	})
}

func TestNothingIsLoggedWhileNothingHappens(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := openNode(t, testConfig(t, dir))
		do(t, n, 0, put("orders", "x", 48*time.Hour))
		p := startPoll(t, n, 2*time.Hour, 1, "orders", "others")
		before := lastIndex(n)
		time.Sleep(time.Hour)
		expectEntries(t, n, before, 0)
		if !p.running() {
			t.Errorf("the poll ended with %+v, %v", p.reply, p.err)
		}
	})
}
