package node

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node/admit"
	"github.com/belfrydb/belfry/node/outcome"
	"github.com/belfrydb/belfry/node/propose"
)

// TestStartedRequestsShareAnEntry: requests that one goroutine starts are logged together, and each
// has its own answer.
func TestStartedRequestsShareAnEntry(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := openNode(t, testConfig(t, dir))
		release := n.shards[0].Load().proposer.Hold()
		before := n.shards[0].Load().LastIndex()
		finish := map[string]func() (propose.Reply, error){}
		for _, queue := range []string{"a", "b", "c"} {
			f, ok := n.Start(t.Context(), 0, &fsm.Request{Commands: []fsm.Command{put(queue, "x", 0)}})
			if !ok {
				t.Fatalf("the put into %s was not started", queue)
			}
			finish[queue] = f
		}
		release()
		for queue, f := range finish {
			if reply, err := f(); err != nil || len(reply.Results) != 1 || reply.Results[0].Code != fsm.OK {
				t.Errorf("the put into %s: %+v, %v", queue, reply, err)
			}
		}
		if entries := n.shards[0].Load().LastIndex() - before; entries != 1 {
			t.Errorf("three requests are %d entries, want 1", entries)
		}
		if left := n.active.Load(); left != 1 {
			t.Errorf("%d calls are in progress, want none besides the node's own", left-1)
		}
	})
}

// TestStartAnswersLikeDo where a request is refused, given up, or may have to wait.
func TestStartAnswersLikeDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openLimited(t, moreOf(admit.JobsLimit, 0, 0))
		if _, ok := n.Start(t.Context(), 0, &fsm.Request{Commands: []fsm.Command{put("t/q", "x", 0)}}); ok {
			t.Error("a put that may have to wait for quota was started")
		}
		n.SetNamespacesLimited(0)
		n.SetShardQuotas(0, termOf(n), nil)
		s := n.shards[0].Load()
		release := s.proposer.Hold()
		ctx, cancel := context.WithCancel(t.Context())
		finish, ok := n.Start(ctx, 0, &fsm.Request{Commands: []fsm.Command{put("t/q", "x", 0)}})
		if !ok {
			t.Fatal("the put was not started")
		}
		cancel()
		if _, err := finish(); outcome.Of(err) != outcome.NotApplied || !errors.Is(err, outcome.ErrCanceled) {
			t.Errorf("a put that was given up before it was logged: %v", err)
		}
		release()
		n.Drain()
		finish, ok = n.Start(t.Context(), 0, &fsm.Request{Commands: []fsm.Command{put("t/q", "x", 0)}})
		if !ok {
			t.Fatal("a refusal was not started")
		}
		if _, err := finish(); !errors.Is(err, outcome.ErrShuttingDown) {
			t.Errorf("a put into a node that stops: %v", err)
		}
		time.Sleep(time.Second)
		if left := n.active.Load(); left != 0 {
			t.Errorf("%d calls are in progress", left)
		}
	})
}

// termOf returns the term of shard 0.
func termOf(n *Node) uint64 {
	term, _ := n.QuotaUse(0)
	return term
}
