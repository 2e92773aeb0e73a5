package node

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/node/longpoll"
	"github.com/belfrydb/belfry/node/outcome"
)

// reserveOrder is a request for one order, with an id.
func reserveOrder() *fsm.Request {
	return &fsm.Request{Caller: "c", ID: "r1", Commands: []fsm.Command{&fsm.Reserve{Queues: []string{"orders"}, Max: 1,
		TTR: time.Minute}}}
}

// ways are how a reservation may be made: at once, or by a caller that waits.
func ways() []time.Duration { return []time.Duration{0, time.Minute} }

// abandonedOrder is a request for one order whose caller has left while its reservation was on its
// way.
type abandonedOrder struct {
	node  *Node
	shard *shard
	let   func() // has the reservation applied
}

// whileAbandoned runs a test in a bubble for each way to make a reservation.
func whileAbandoned(t *testing.T, test func(t *testing.T, o abandonedOrder)) {
	t.Helper()
	for _, wait := range ways() {
		t.Run(fmt.Sprint("a wait of ", wait), func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				n := openNode(t, testConfig(t, dir))
				do(t, n, 0, put("orders", "x", 0))
				held := make(chan struct{})
				s := n.shards[0].Load()
				submit := s.submit
				holdEntry(s, held)
				first := startRequest(t, n, Wait{For: wait}, reserveOrder())
				let := sync.OnceFunc(func() {
					close(held)
					synctest.Wait()
					s.submit = submit
					s.calls.Pending() // its lock makes the change visible to release
				})
				t.Cleanup(let)
				first.cancel()
				if <-first.ended; outcome.Of(first.err) != outcome.Unknown {
					t.Fatalf("the first attempt ended with %v", first.err)
				}
				test(t, abandonedOrder{n, s, let})
				synctest.Wait()
				if left := s.calls.Pending(); left > 0 {
					t.Errorf("%d pending grants are kept", left)
				}
			})
		})
	}
}

// expectFree fails the test unless the next caller gets the job, in its first attempt.
func (o abandonedOrder) expectFree(t *testing.T, released uint64) {
	t.Helper()
	expectReleased(t, o.node, "orders", released)
	if g := startPoll(t, o.node, 0, 1, "orders").grants(t); len(g) != 1 || g[0].Attempt != 1 {
		t.Errorf("the next was granted %+v, want the job in its first attempt", g)
	}
}

func TestGrantForWhichNobodyComesGoesBack(t *testing.T) {
	whileAbandoned(t, func(t *testing.T, o abandonedOrder) {
		o.let()
		time.Sleep(longpoll.RepeatWait - 1)
		expectReleased(t, o.node, "orders", 0)
		time.Sleep(time.Nanosecond)
		o.expectFree(t, 1)
	})
}

// A repeat that does not wait, as of a caller that wants to give back what it may have got, gets
// also what is still being logged.
func TestRepeatThatDoesNotWaitGetsWhatIsOnItsWay(t *testing.T) {
	whileAbandoned(t, func(t *testing.T, o abandonedOrder) {
		second := startRequest(t, o.node, Wait{}, reserveOrder())
		if !second.running() {
			t.Fatalf("the repeat was answered %+v, %v", second.reply, second.err)
		}
		o.let()
		g := second.grants(t)
		if len(g) != 1 || g[0].Attempt != 1 {
			t.Fatalf("the repeat was granted %+v", g)
		}
		time.Sleep(2 * longpoll.RepeatWait)
		expectReleased(t, o.node, "orders", 0)
		do(t, o.node, 0, &fsm.Ack{Ref: refOf(g[0])})
	})
}

// A caller that gets the grants before they are released keeps them, however it asked.
func TestGrantThatIsCollectedStays(t *testing.T) {
	for _, tt := range []struct {
		name    string
		collect func(t *testing.T, n *Node) int
	}{
		{"by a repeat", func(t *testing.T, n *Node) int {
			return len(startRequest(t, n, Wait{}, reserveOrder()).grants(t))
		}},
		{"by a repeat that waits", func(t *testing.T, n *Node) int {
			return len(startRequest(t, n, Wait{For: time.Minute}, reserveOrder()).grants(t))
		}},
		{"by a recall", func(t *testing.T, n *Node) int {
			r, _, err := n.Query(t.Context(), 0, codec.RecallOf(reserveOrder()))
			if err != nil {
				t.Fatal(err)
			}
			return len(r.Jobs)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			whileAbandoned(t, func(t *testing.T, o abandonedOrder) {
				o.let()
				time.Sleep(longpoll.RepeatWait - 1)
				if got := tt.collect(t, o.node); got != 1 {
					t.Fatalf("%d jobs were collected", got)
				}
				time.Sleep(2 * longpoll.RepeatWait)
				expectReleased(t, o.node, "orders", 0)
			})
		})
	}
}

// A recall that finds nothing yet takes nothing.
func TestRecallBeforeTheGrantTakesNothing(t *testing.T) {
	whileAbandoned(t, func(t *testing.T, o abandonedOrder) {
		if r, _, err := o.node.Query(t.Context(), 0, codec.RecallOf(reserveOrder())); err != nil || len(r.Jobs) != 0 {
			t.Fatalf("the recall found %+v, %v", r.Jobs, err)
		}
		o.let()
		time.Sleep(longpoll.RepeatWait)
		o.expectFree(t, 1)
	})
}

// A grant that is being released is handed out neither by a recall nor to a repeat: the repeat gets
// the job anew.
func TestGrantOnItsWayBackIsHandedToNobody(t *testing.T) {
	whileAbandoned(t, func(t *testing.T, o abandonedOrder) {
		o.let()
		held := make(chan struct{})
		submit := o.shard.submit
		holdEntry(o.shard, held)
		o.shard.calls.Pending() // as above
		time.Sleep(longpoll.RepeatWait)
		synctest.Wait()
		o.shard.submit = submit
		r, _, err := o.node.Query(t.Context(), 0, codec.RecallOf(reserveOrder()))
		if err != nil || len(r.Jobs) != 0 {
			t.Errorf("the recall found %+v, %v", r.Jobs, err)
		}
		close(held)
		o.expectFree(t, 1)
	})
}

// A repeat that leaves as well does not keep the job from others; one of whom the grants are not
// says nothing about them.
func TestRepeatThatLeavesToo(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := openNode(t, testConfig(t, dir))
		do(t, n, 0, put("orders", "x", 0))
		s := n.shards[0].Load()
		if g := startRequest(t, n, Wait{}, reserveOrder()).grants(t); len(g) != 1 {
			t.Fatalf("granted %+v", g)
		}
		ctx, cancel := context.WithCancel(t.Context())
		held := make(chan struct{})
		holdEntry(s, held)
		ended := make(chan error, 1)
		go func() {
			_, err := n.Reserve(ctx, 0, reserveOrder(), Wait{})
			ended <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-ended; outcome.Of(err) != outcome.Unknown {
			t.Fatalf("the repeat ended with %v", err)
		}
		close(held)
		time.Sleep(2 * longpoll.RepeatWait)
		expectReleased(t, n, "orders", 0) // the first has them
	})
}

// When the leadership ends, nothing is given back: the next leader may hand the grants out.
func TestGrantOfAnEndedLeadershipStays(t *testing.T) {
	whileAbandoned(t, func(t *testing.T, o abandonedOrder) {
		o.let()
		o.shard.calls.End(outcome.ErrNoLeader)
		time.Sleep(2 * longpoll.RepeatWait)
		expectReleased(t, o.node, "orders", 0)
		o.shard.calls.Begin()
	})
}

// A release of which it is not known what became is proposed again until that is known, and the
// pending grant ends with it: it would hide what the request is granted later, for as long as the
// leadership lasts.
func TestReleaseOfUnknownOutcomeIsRepeated(t *testing.T) {
	for _, tt := range []struct {
		name string
		// what becomes of the first release, after its callers were given up
		let func(held chan struct{})
	}{
		{"it is applied late", func(held chan struct{}) { close(held) }},
		{"it is never applied", func(chan struct{}) {}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			whileAbandoned(t, func(t *testing.T, o abandonedOrder) {
				o.let()
				held := make(chan struct{})
				submit := o.shard.submit
				holdEntry(o.shard, held)
				o.shard.calls.Pending() // its lock makes the change visible to release
				time.Sleep(longpoll.RepeatWait)
				synctest.Wait()
				o.shard.submit = submit
				o.shard.calls.Pending()
				time.Sleep(defaultProposeTimeout)
				synctest.Wait()
				if r, _, err := o.node.Query(t.Context(), 0, codec.RecallOf(reserveOrder())); err != nil || len(r.Jobs) != 0 {
					t.Errorf("the recall found %+v, %v, which may be free already", r.Jobs, err)
				}
				expectReleased(t, o.node, "orders", 0)
				tt.let(held)
				time.Sleep(2 * longpoll.RepeatWait)
				o.expectFree(t, 1)
				if left := o.shard.calls.Pending(); left > 0 {
					t.Errorf("%d pending grants are kept", left)
				}
				select {
				case <-held:
				default:
					close(held) // the entry comes all the same, and changes nothing
				}
				synctest.Wait()
				expectReleased(t, o.node, "orders", 1)
			})
		})
	}
}

// TestRepeatDuringADoubtedRelease: a repeat that comes while it is not known whether the first
// grants were released is granted anew. When its caller leaves as well, those grants go back too.
func TestRepeatDuringADoubtedRelease(t *testing.T) {
	whileAbandoned(t, func(t *testing.T, o abandonedOrder) {
		o.let()
		submit := o.shard.submit
		release, repeat := make(chan struct{}), make(chan struct{})
		holdEntry(o.shard, release)
		o.shard.calls.Pending() // its lock makes the change visible to release
		time.Sleep(longpoll.RepeatWait)
		synctest.Wait()
		o.shard.submit = submit
		o.shard.calls.Pending()
		time.Sleep(defaultProposeTimeout)
		synctest.Wait() // the release is doubted
		close(release)  // and applied late
		synctest.Wait()
		holdEntry(o.shard, repeat)
		second := startRequest(t, o.node, Wait{}, reserveOrder())
		synctest.Wait()
		second.cancel()
		<-second.ended
		o.shard.submit = submit
		o.shard.calls.Pending()
		close(repeat)
		synctest.Wait()
		time.Sleep(5 * longpoll.RepeatWait)
		synctest.Wait()
		if kept := o.shard.calls.Pending(); kept > 0 {
			t.Errorf("%d pending grants are kept", kept)
		}
		o.expectFree(t, 2)
	})
}
