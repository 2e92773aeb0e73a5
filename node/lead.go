package node

import (
	"context"
	"sync"
	"time"
)

// yieldPoll is how often it is looked whether the entries in flight are done.
const yieldPoll = 2 * time.Millisecond

// Serves reports whether this node leads a shard and serves. One that was elected a moment ago does not serve yet.
func (n *Node) Serves(shard uint32) bool {
	s, err := n.replicaOf(shard)
	return err == nil && s.serves()
}

// Offers reports whether a Reserve of these queues that does not wait would find something, as far as the leader knows at this moment. Nothing
// is logged. Only the shard's leader answers.
func (n *Node) Offers(shard uint32, queues []string) (bool, error) {
	s, done, err := n.begin(shard)
	if err != nil {
		return false, err
	}
	defer done()
	if _, err := s.leader(); err != nil {
		return false, err
	}
	return s.hasFreeJobs(queues), nil
}

// HandOver gives each leadership of this node to another voter where there is one, and returns when that is done, has failed, or ctx ends. The node
// goes on: what it leads no more it refuses with ErrNotLeader. It is for a node that is about to stop, whose callers shall find the next leaders
// before it does. Calls that wait for jobs end with ErrNoLeader.
func (n *Node) HandOver(ctx context.Context) {
	n.leaving.Store(true)
	ctx, cancel := context.WithTimeout(ctx, handoverTimeout)
	defer cancel()
	var all sync.WaitGroup
	for _, s := range n.here() {
		if s.serves() && !s.soleVoter() {
			all.Go(func() { s.yield(ctx) })
		}
	}
	n.mu.Lock()
	groups := n.groups
	n.mu.Unlock()
	for _, g := range groups {
		all.Go(func() { g.group.handOver(ctx) })
	}
	all.Wait()
}

// yield hands the leadership over, after the entries in flight or a while: one that is still being committed then may be left without an answer.
// Until it is over, or has failed, nothing new is taken.
func (s *shard) yield(ctx context.Context) {
	s.proposer.close(ErrNoLeader)
	s.waiters.close(ErrNoLeader)
	grace := time.NewTimer(handoverGrace)
	defer grace.Stop()
	look := time.NewTicker(yieldPoll)
	defer look.Stop()
	for waited := false; !waited && len(s.proposer.slots) > 0; {
		select {
		case <-look.C:
		case <-grace.C:
			waited = true
		case <-ctx.Done():
			waited = true
		}
	}
	s.handOver(ctx)
	// Under this lock the leadership does not end between the look and the opening: whoever ends it closes both afterwards.
	s.submitting.Lock()
	defer s.submitting.Unlock()
	if s.serves() { // nobody took it
		s.proposer.open()
		s.waiters.open()
	}
}
