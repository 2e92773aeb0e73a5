package node

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node/outcome"
	"github.com/belfrydb/belfry/node/propose"
)

// expectReleased fails the test unless exactly want jobs of the queue were given back so far.
func expectReleased(t *testing.T, n *Node, queue string, want uint64) {
	t.Helper()
	synctest.Wait()
	if released := queueOf(t, n, queue).Counters.Released; released != want {
		t.Errorf("%d jobs were released, want %d", released, want)
	}
}

func TestPollThatIsStoppedWhileParked(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := openNode(t, testConfig(t, dir))
		before := lastIndex(n)
		stop := make(chan struct{})
		p := startWaiting(t, n, Wait{For: time.Hour, Stop: stop}, 1, "a", "b")
		next := startPoll(t, n, time.Hour, 1, "b")
		start := time.Now()
		close(stop)
		if g := p.grants(t); len(g) != 0 || p.at != start || p.reply.Witness != (propose.Witness{}) {
			t.Errorf("after %v the poll ended with %+v", p.at.Sub(start), p.reply)
		}
		expectEntries(t, n, before, 0)
		do(t, n, 0, put("b", "x", 0))
		if g := next.grants(t); len(g) != 1 {
			t.Errorf("the next poll got %+v", g)
		}
		if waiting := n.Stats().Shards[0].Waiters; waiting != 0 {
			t.Errorf("%d calls seem to wait", waiting)
		}
	})
}

// granting is a poll of one job whose reservation is on its way until let is called.
type granting struct {
	*poll
	node *Node
	stop chan struct{} // ends its wait
	let  func()
}

// whileGranting runs a test in a bubble with such a poll.
func whileGranting(t *testing.T, test func(t *testing.T, p granting)) {
	t.Helper()
	whileGrantingTo(t, "", test)
}

// whileGrantingTo is whileGranting with a request id.
func whileGrantingTo(t *testing.T, id string, test func(t *testing.T, p granting)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		p := granting{node: openNode(t, testConfig(t, dir)), stop: make(chan struct{})}
		reserve := &fsm.Reserve{Queues: []string{"orders"}, Max: 1, TTR: time.Minute}
		p.poll = startRequest(t, p.node, Wait{For: time.Hour, Stop: p.stop},
			&fsm.Request{ID: id, Commands: []fsm.Command{reserve}})
		do(t, p.node, 0, put("orders", "x", time.Second))
		p.let = p.node.shards[0].Load().proposer.Hold()
		time.Sleep(time.Second)
		synctest.Wait()
		if requests, _ := p.node.shards[0].Load().proposer.Waiting(); requests != 1 || !p.running() {
			t.Fatalf("%d reservations are on their way", requests)
		}
		test(t, p)
	})
}

// A grant that is under way when the wait is stopped goes to the caller, which is still there.
func TestPollThatIsStoppedWhileItIsGranted(t *testing.T) {
	whileGranting(t, func(t *testing.T, p granting) {
		close(p.stop)
		if !p.running() {
			t.Fatalf("the poll ended with %+v, %v while its reservation was on the way", p.reply, p.err)
		}
		p.let()
		if g := p.grants(t); len(g) != 1 || g[0].Attempt != 1 {
			t.Errorf("granted %+v, want the job", g)
		}
		expectReleased(t, p.node, "orders", 0)
	})
}

// A reservation that comes back empty after the wait was stopped ends the poll; it does not wait
// again.
func TestPollThatIsStoppedWhileItsJobGoes(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := openNode(t, testConfig(t, dir))
		s := n.shards[0].Load()
		stop := make(chan struct{})
		p := startWaiting(t, n, Wait{For: time.Hour, Stop: stop}, 1, "orders")
		job := put("orders", "x", time.Second)
		job.ID = "x"
		do(t, n, 0, job)
		let := s.proposer.Hold()
		time.Sleep(time.Second - time.Millisecond)
		canceled := make(chan error, 1)
		go func() { // it comes before the reservation
			_, err := n.Do(t.Context(), 0, &fsm.Request{Commands: []fsm.Command{&fsm.Cancel{Queue: "orders", ID: "x"}}})
			canceled <- err
		}()
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if requests, _ := s.proposer.Waiting(); requests != 2 {
			t.Fatalf("%d requests are on their way, want the cancel and the reservation", requests)
		}
		close(stop)
		synctest.Wait()
		let()
		if err := <-canceled; err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if g := p.grants(t); len(g) != 0 || p.at != start {
			t.Errorf("after %v the poll ended with %+v", p.at.Sub(start), p.reply)
		}
	})
}

// A caller that has stopped its wait may leave all the same; what it is granted then goes back.
func TestPollThatLeavesAfterItWasStopped(t *testing.T) {
	whileGranting(t, func(t *testing.T, p granting) {
		close(p.stop)
		synctest.Wait()
		p.cancel()
		<-p.ended
		if outcome.Of(p.err) != outcome.Unknown || !errors.Is(p.err, context.Canceled) {
			t.Errorf("error is %v with outcome %v", p.err, outcome.Of(p.err))
		}
		p.let()
		if g := startPoll(t, p.node, time.Hour, 1, "orders").grants(t); len(g) != 1 || g[0].Attempt != 1 {
			t.Errorf("granted %+v, want the job at once with attempt 1", g)
		}
		expectReleased(t, p.node, "orders", 1)
	})
}

// A call that comes after the stop takes nothing but what its request was granted before.
func TestPollThatComesStopped(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := openNode(t, testConfig(t, dir))
		do(t, n, 0, put("orders", "x", 0), put("orders", "y", 0))
		stop := make(chan struct{})
		close(stop)
		req := &fsm.Request{Caller: "c", ID: "r1", Commands: []fsm.Command{&fsm.Reserve{Queues: []string{"orders"}, Max: 1,
			TTR: time.Minute}}}
		before := lastIndex(n)
		for _, wait := range []Wait{{Stop: stop}, {For: time.Hour, Stop: stop}} {
			if reply, err := n.Reserve(t.Context(), 0, req, wait); err != nil || len(reply.Results[0].Grants) != 0 {
				t.Errorf("a stopped wait of %v: %+v, %v", wait.For, reply, err)
			}
		}
		expectEntries(t, n, before, 0)
		first, err := n.Reserve(t.Context(), 0, req, Wait{})
		if err != nil {
			t.Fatal(err)
		}
		again, err := n.Reserve(t.Context(), 0, req, Wait{For: time.Hour, Stop: stop})
		if diff := cmp.Diff(first.Results[0].Grants, again.Results[0].Grants); err != nil || diff != "" ||
			len(first.Results[0].Grants) != 1 {
			t.Errorf("the repetition: %v (-first +second):\n%s", err, diff)
		}
	})
}
