package node

import (
	"context"
	"sync"
	"time"

	"github.com/belfrydb/belfry/node/outcome"
)

// yieldPoll is the time between two checks whether the entries in flight are done.
const yieldPoll = 2 * time.Millisecond

// Serves reports whether this node leads a shard and serves. A node that was elected a moment ago
// does not serve yet.
func (n *Node) Serves(shard uint32) bool {
	s, err := n.replicaOf(shard)
	return err == nil && s.Serves()
}

// Offers reports whether a Reserve of these queues that does not wait would be granted a job, as
// far as the leader knows now. Nothing is logged. Only the leader of the shard answers.
func (n *Node) Offers(shard uint32, queues []string) (bool, error) {
	s, done, err := n.beginCall(shard)
	if err != nil {
		return false, err
	}
	defer done()
	if _, err := s.Leadership(); err != nil {
		return false, err
	}
	return s.calls.HasFreeJobs(queues), nil
}

// HandOver transfers each leadership of this node to another voter, if there is one. It returns
// when all transfers are done or have failed, or ctx ends. The node goes on, and refuses calls for
// shards that it does not lead with ErrNotLeader. Parked calls end with ErrNoLeader. HandOver is
// for a node that is about to stop: its callers find the next leaders first.
func (n *Node) HandOver(ctx context.Context) {
	n.leaving.Store(true)
	ctx, cancel := context.WithTimeout(ctx, handoverTimeout)
	defer cancel()
	var all sync.WaitGroup
	for _, s := range n.here() {
		if s.Serves() && !s.SoleVoter() {
			all.Go(func() { s.yield(ctx) })
		}
	}
	n.mu.Lock()
	groups := n.groups
	n.mu.Unlock()
	for _, g := range groups {
		all.Go(func() { g.group.HandOver(ctx) })
	}
	all.Wait()
}

// yield transfers the leadership after the entries in flight are done, at the latest after a while:
// an entry that is still being committed then may have an unknown outcome. Until the transfer ends,
// the shard takes no new requests.
func (s *shard) yield(ctx context.Context) {
	s.calls.Pause(outcome.ErrNoLeader)
	grace := time.NewTimer(handoverGrace)
	defer grace.Stop()
	look := time.NewTicker(yieldPoll)
	defer look.Stop()
	for waited := false; !waited && s.proposer.InFlight() > 0; {
		select {
		case <-look.C:
		case <-grace.C:
			waited = true
		case <-ctx.Done():
			waited = true
		}
	}
	s.HandOver(ctx)
	s.IfServing(s.calls.Resume) // the transfer failed; the goroutine that ends a leadership closes both afterwards
}
