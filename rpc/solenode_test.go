package rpc

import (
	"context"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
)

// soleNode is a node without a cluster.
type soleNode struct {
	*node.Node
	locks node.RequestMutex
}

func (n *soleNode) Start(ctx context.Context, shard uint32,
	req *fsm.Request) (finish func() (reply node.Reply, again bool, err error), ok bool) {
	wait, ok := n.Node.Start(ctx, shard, req)
	return func() (node.Reply, bool, error) {
		reply, err := wait()
		return reply, false, err
	}, ok
}

func (n *soleNode) Offers(_ context.Context, shard uint32, queues []string) (bool, error) {
	return n.Node.Offers(shard, queues)
}

func (n *soleNode) LockRequest(ctx context.Context, _ uint32, name string,
	wait time.Duration) (<-chan struct{}, func(), error) {
	return n.locks.Lock(ctx, name, wait)
}

func (n *soleNode) Stale(_ context.Context, shard uint32, q fsm.Query) (fsm.Reading, node.Witness, error) {
	return n.Peek(shard, q)
}

func (n *soleNode) Unreached(context.Context) map[string]string { return nil }

func (n *soleNode) ClientAddr(uint32) string { return "" }
