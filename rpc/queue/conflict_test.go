package queue

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/rpc/backend"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/shardcall"
)

// silentNode is a node that answers no query.
type silentNode struct {
	backend.Node
	asked atomic.Int32
}

func (*silentNode) ShardCount() int { return 1 }

func (n *silentNode) Query(ctx context.Context, _ uint32, _ fsm.Query) (fsm.Reading, node.Witness, error) {
	n.asked.Add(1)
	<-ctx.Done()
	return fsm.Reading{}, node.Witness{}, node.ErrCanceled
}

// TestConflictsKeepNobodyWaiting: the reads of a batch's conflicts share one short wait. A call
// with hardly any time left makes no such read.
func TestConflictsKeepNobodyWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &silentNode{}
		s := newService(t, n)
		conflicts := func() *putBatch {
			b := &putBatch{puts: make([]*fsm.Put, 10), answers: make([]shardcall.Answer, 10)}
			for i := range b.puts {
				b.puts[i], b.answers[i].Fault = &fsm.Put{
					Queue: "q", ID: strconv.Itoa(i),
				}, fault.New(belfryv1.Reason_REASON_JOB_EXISTS)
				b.answers[i].Fault.Shard = new(uint32)
			}
			return b
		}
		start := time.Now()
		s.nameConflicts(t.Context(), conflicts())
		if took := time.Since(start); took != conflictWait || n.asked.Load() != conflictsNamedMax {
			t.Errorf("%d reads took %v", n.asked.Load(), took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), conflictWait)
		defer cancel()
		start = time.Now()
		s.nameConflicts(ctx, conflicts())
		if took := time.Since(start); took != 0 || n.asked.Load() != conflictsNamedMax {
			t.Errorf("with little time left the reads, %d in all, took %v", n.asked.Load(), took)
		}
	})
}
