package rpc

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/rpc/backend"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
	"github.com/belfrydb/belfry/rpc/fault"
)

// leaderlessNode is a node in memory that reaches no leader for reads, and counts how often it has
// waited for one.
type leaderlessNode struct {
	backend.Node
	waited atomic.Int64
}

func (n *leaderlessNode) Query(context.Context, uint32, fsm.Query) (fsm.Reading, node.Witness, error) {
	n.waited.Add(1)
	return fsm.Reading{}, node.Witness{}, node.ErrNoLeader
}

// TestReadsWithoutALeader: a read waits for a leader once before it says that there is none, and a
// stale one not at all.
func TestReadsWithoutALeader(t *testing.T) {
	t.Parallel()
	n := &leaderlessNode{}
	s := serve(t, func(cfg *Config) { n.Node, cfg.Node = cfg.Node, n })
	queues, admin := belfryv1connect.NewQueueServiceClient(http.DefaultClient, s.url),
		belfryv1connect.NewAdminServiceClient(http.DefaultClient, s.url)
	if _, err := queues.Put(t.Context(), &belfryv1.PutRequest{Queue: "orders", Id: "a"}); err != nil {
		t.Fatal(err)
	}
	for what, read := range map[string]func(stale bool) error{
		"Get": func(stale bool) error {
			_, err := queues.Get(t.Context(), &belfryv1.GetRequest{Queue: "orders", Id: "a", Stale: stale})
			return err
		},
		"Get of nothing": func(stale bool) error {
			_, err := queues.Get(t.Context(), &belfryv1.GetRequest{Queue: "orders", Id: "b", Stale: stale})
			if f, ok := fault.FromConnect(err); stale && ok && f.Reason == belfryv1.Reason_REASON_JOB_NOT_FOUND {
				return nil
			}
			return err
		},
		"List": func(stale bool) error {
			_, err := queues.List(t.Context(), &belfryv1.ListRequest{Queue: "orders", Stale: stale})
			return err
		},
		"GetQueue": func(stale bool) error {
			_, err := admin.GetQueue(t.Context(), &belfryv1.GetQueueRequest{Queue: "orders", Stale: stale})
			return err
		},
	} {
		n.waited.Store(0)
		if err := read(true); err != nil || n.waited.Load() != 0 {
			t.Errorf("a stale %s waited for a leader %d times: %v", what, n.waited.Load(), err)
		}
		n.waited.Store(0)
		err := read(false)
		if f, ok := fault.FromConnect(err); !ok || f.Reason != belfryv1.Reason_REASON_NO_LEADER ||
			f.Outcome() != belfryv1.Outcome_OUTCOME_NOT_APPLIED || n.waited.Load() != 1 {
			t.Errorf("%s waited for a leader %d times: %v", what, n.waited.Load(), err)
		}
	}
	_, err := admin.PurgeQueue(t.Context(), &belfryv1.PurgeQueueRequest{Queue: "orders"})
	if f, ok := fault.FromConnect(err); !ok || f.Reason != belfryv1.Reason_REASON_NO_LEADER {
		t.Errorf("a purge of which it is not known where the jobs are: %v", err)
	}
}
