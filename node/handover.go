package node

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

const (
	// handoverGrace is how long a stopping leader waits for calls in progress before it transfers
	// its leadership. Nearly all calls end within it. Meanwhile the shard has no leader for new
	// calls.
	handoverGrace = 50 * time.Millisecond
	// handoverTimeout bounds the transfer of all leaderships.
	handoverTimeout = 3 * time.Second
)

// handOver transfers each leadership of this node to another voter. It runs once, when the node
// drains.
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

// handOver transfers the leadership to the live voter with the longest confirmed log. If that
// fails, it tries the next voter. It stops when this node no longer leads, when ctx ends, or when
// no voter is left, as when all nodes stop at once.
func (g *group) handOver(ctx context.Context) {
	g.handOverExcept(ctx, map[raft.ServerID]bool{})
}

// handOverExcept is handOver without the voters in failed. It adds those with which the transfer
// fails.
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
				g.cfg.Logger.Info("the leadership cannot be handed over", "reason", "no other voter answers that could lead")
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
				g.cfg.Logger.Info("the leadership was handed over", "to", string(heir), "seconds", time.Since(start).Seconds())
				return
			}
			failed[heir] = true
			g.cfg.Logger.Info("handing the leadership over failed", "to", string(heir), "error", err)
		case <-ctx.Done():
		}
	}
}

// heir returns the voter that should lead next. Raft's own choice ignores which voters are alive.
func (g *group) heir(i *instance, failed map[raft.ServerID]bool) (heir raft.ServerID, ok bool) {
	var candidates []raft.ServerID
	voters, _ := g.members()
	for _, voter := range voters {
		if id := raft.ServerID(voter); voter != g.cfg.Self && !failed[id] {
			candidates = append(candidates, id)
		}
	}
	return i.transport.Furthest(candidates, i.CurrentTerm())
}
