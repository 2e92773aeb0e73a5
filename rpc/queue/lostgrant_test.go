package queue

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/rpc/backend/backendtest"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
)

// cutNode is a node that was cut off while a poll waited: shard 0 has no leader, and the answers of
// shard 1's leader do not arrive.
type cutNode struct{ *backendtest.Node }

func (n *cutNode) Reserve(ctx context.Context, shard uint32, req *fsm.Request, wait node.Wait) (node.Reply, error) {
	switch {
	case wait.For == 0:
		return n.Node.Reserve(ctx, shard, req, wait)
	case shard == 0:
		<-time.NewTimer(wait.For).C
		return node.Reply{}, node.ErrNoLeader
	default:
		<-ctx.Done()
		return node.Reply{}, fmt.Errorf("%w: %w", node.ErrUnknownOutcome, context.Cause(ctx))
	}
}

// TestPollThatIsCutOffIsUnknown: if one shard refuses a poll and another does not answer, the
// latter may have granted jobs.
func TestPollThatIsCutOffIsUnknown(t *testing.T) {
	for _, id := range []string{"", "request"} {
		synctest.Test(t, func(t *testing.T) {
			n := &cutNode{backendtest.NewNode(2)}
			request := &belfryv1.ReserveRequest{
				Queues: []string{n.QueueIn(0, "refused"), n.QueueIn(1, "silent")}, Wait: durationpb.New(time.Second),
				RequestId: id,
			}
			got, err := newService(t, n).Reserve(t.Context(), request)
			if f := fault.Of(err); err == nil || f.Outcome() != belfryv1.Outcome_OUTCOME_UNKNOWN {
				t.Errorf("with the request id %q: %v, %v, want an unknown outcome", id, got, err)
			}
			time.Sleep(2 * outcomeTimeMax)
			synctest.Wait()
		})
	}
}
