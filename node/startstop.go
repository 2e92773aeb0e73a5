package node

import (
	"context"
	"sync"
	"time"
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
		all.Go(func() { g.HandOver(ctx) })
	}
	all.Wait()
}

// narrateInterval is the time between two messages about a slow start.
const narrateInterval = 3 * time.Second

// narrateStart logs every few seconds how far the groups are that do not serve yet, until end is
// called.
func (n *Node) narrateStart() (end func()) {
	ended := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(narrateInterval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ended:
				return
			}
			for _, s := range n.here() {
				if !s.Serves() && s.SoleVoter() {
					s.Logger().Info("replaying the log", "applied_index", s.Replica().AppliedIndex(), "last_index",
						s.LastIndex())
				}
			}
		}
	})
	return func() {
		close(ended)
		running.Wait()
	}
}
