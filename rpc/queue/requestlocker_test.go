package queue

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/belfrydb/belfry/node"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// arbitratedNode is one of several nodes that share a lock of requests.
type arbitratedNode struct {
	*inFlightNode
	attempts *node.RequestMutex
}

func (n arbitratedNode) LockRequest(ctx context.Context, _ uint32, id string,
	wait time.Duration) (<-chan struct{}, func(), error) {
	return n.attempts.Lock(ctx, id, wait)
}

// TestRepeatThroughAnotherNode: like a repeat through the same node, it gets the jobs that the
// first attempt keeps, and none that it releases.
func TestRepeatThroughAnotherNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		attempts := &node.RequestMutex{}
		req := &belfryv1.ReserveRequest{MaxJobs: 3, RequestId: "r-1"}
		c := startPoll(t.Context(), t, 100*time.Millisecond, &belfryv1.ReserveRequest{MaxJobs: 1})
		crossed := c.queues.router.Node.(*inFlightNode)
		c.putTwo(c.fast)
		c.wait() // only the nodes of this poll are needed
		c.finish(c.attempt)
		c.remaining()
		c.queues.router.Node = arbitratedNode{crossed, attempts}
		other := newService(t, c.queues.router.Node)
		req.Queues, req.Wait = []string{c.slow, c.fast}, durationpb.New(time.Minute)
		first := c.repeat(t.Context(), req)
		c.putTwo(c.slow)
		c.putTwo(c.fast)
		synctest.Wait()
		there := &twoShardPoll{T: t, queues: other}
		second := there.repeat(t.Context(), req)
		first.wait()
		second.wait()
		if first.err != nil || second.err != nil || len(second.response.GetJobs()) != 3 {
			t.Fatalf("%v, %v: %v", first.err, second.err, second.response)
		}
		if diff := cmp.Diff(leasesOf(first.response.GetJobs()), leasesOf(second.response.GetJobs())); diff != "" {
			t.Errorf("the repeat (-first +second):\n%s", diff)
		}
		c.finish(second)
		if diff := cmp.Diff(c.spell("S"), c.remaining()); diff != "" {
			t.Errorf("left were (-want +got):\n%s", diff)
		}
		if n := attempts.Len(); n > 0 {
			t.Errorf("%d requests are kept", n)
		}
	})
}
