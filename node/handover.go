package node

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

const (
	// handoverGrace is how long the leader that stops waits for calls under way before it hands over: nearly all are done by then, and the
	// shard has nobody to take new ones meanwhile.
	handoverGrace = 50 * time.Millisecond
	// handoverTimeout bounds the handing over of all groups.
	handoverTimeout = 3 * time.Second
)

// handOver gives the leadership of each group that this node leads to another voter. It runs once, when the node drains.
func (n *Node) handOver() {
	defer close(n.handedOver)
	grace := time.NewTimer(handoverGrace)
	defer grace.Stop()
	select {
	case <-n.idle:
	case <-grace.C:
	}
	ctx, cancel := context.WithTimeout(context.Background(), handoverTimeout)
	defer cancel()
	var all sync.WaitGroup
	for _, g := range n.allGroups() {
		all.Go(func() { g.handOver(ctx) })
	}
	all.Wait()
}

// handOver gives the leadership to the voter that is alive and has come furthest, and if that fails to the next, until this node leads no
// more, ctx ends, or nobody is left, as when all nodes stop at once.
func (g *group) handOver(ctx context.Context) {
	g.handOverExcept(ctx, map[raft.ServerID]bool{})
}

// handOverExcept is handOver to none of failed, to which those are added with which it fails.
func (g *group) handOverExcept(ctx context.Context, failed map[raft.ServerID]bool) {
	start := time.Now()
	for ctx.Err() == nil {
		i := g.instance()
		if i.State() != raft.Leader {
			return
		}
		heir, ok := g.heir(i, failed)
		if !ok {
			if !g.soleVoter() {
				g.logger.Info("the leadership cannot be handed over", "reason", "no other voter answers that could lead")
			}
			return
		}
		transfer := make(chan error, 1)
		if !g.spawn(func() { transfer <- i.outcome(i.LeadershipTransferToServer(heir, raft.ServerAddress(heir))) }) {
			return
		}
		select {
		case err := <-transfer:
			if err == nil {
				g.logger.Info("the leadership was handed over", "to", string(heir), "seconds", time.Since(start).Seconds())
				return
			}
			failed[heir] = true
			g.logger.Info("handing the leadership over failed", "to", string(heir), "error", err)
		case <-ctx.Done():
		}
	}
}

// heir returns the voter that should lead next. Raft's own choice does not look at who is alive.
func (g *group) heir(i *instance, failed map[raft.ServerID]bool) (heir raft.ServerID, ok bool) {
	var candidates []raft.ServerID
	voters, _ := g.members()
	for _, voter := range voters {
		if id := raft.ServerID(voter); voter != g.node.id.serverID() && !failed[id] {
			candidates = append(candidates, id)
		}
	}
	return i.transport.furthest(candidates, i.CurrentTerm())
}
