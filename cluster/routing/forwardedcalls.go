package routing

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/belfrydb/belfry/node"
)

const (
	// leaderCheckPause is the time between two checks whether the nodes with forwarded calls still
	// lead.
	leaderCheckPause = 250 * time.Millisecond
	// oldLeaderGrace is how long another leader must have been known before a call is given up. A
	// replaced leader that still runs answers within this time. If this node has no replica of the
	// shard, it asks the replicas once a call has been out for as long.
	oldLeaderGrace = time.Second
)

// forwardedCalls are the calls that are under way at other nodes. The zero value is ready for use.
type forwardedCalls struct {
	mu  sync.Mutex
	all map[*forwardedCall]struct{}
}

// forwardedCall is a call that is under way at another node.
type forwardedCall struct {
	shard  uint32
	server string
	cancel context.CancelFunc
	grace  time.Duration // how long another leader must have been known
	since  time.Time     // when another leader became known; zero if none is
	direct bool          // the call goes straight to the server
}

// add adds a call; end removes it.
func (f *forwardedCalls) add(call *forwardedCall) (end func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.all == nil {
		f.all = map[*forwardedCall]struct{}{}
	}
	f.all[call] = struct{}{}
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.all, call)
	}
}

// cancelMoved cancels calls at a node that does not lead any more, once their grace is over. It
// cancels direct calls to a lost node, which this node cannot reach. It keeps calls of shards
// without a known leader, since the old one may go on.
func (f *forwardedCalls) cancelMoved(leader func(shard uint32) string, lost func(server string) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	known := map[uint32]string{}
	for call := range f.all {
		now, asked := known[call.shard]
		if !asked {
			now = leader(call.shard)
			known[call.shard] = now
		}
		call.setLeader(now)
		if call.direct && lost(call.server) {
			call.cancel()
		}
	}
}

// setLeader gives a call the leader of its shard, empty if none is known.
func (f *forwardedCalls) setLeader(call *forwardedCall, leader string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	call.setLeader(leader)
}

// setLeader is forwardedCalls.setLeader. The caller holds its mu.
func (c *forwardedCall) setLeader(leader string) {
	switch {
	case leader == "":
		return
	case leader == c.server:
		c.since = time.Time{}
		return
	case c.since.IsZero():
		c.since = time.Now()
	}
	if time.Since(c.since) >= c.grace {
		c.cancel()
	}
}

// forward makes a call of a shard at another node until this node learns of another leader: a
// leader that is cut off, or whose process is stopped, does not answer. If the call was sent and
// then given up, its outcome is unknown; a call that was not sent may go to the other leader.
func (r *Router) forward(ctx context.Context, to forwardedTo, grace time.Duration,
	call func(ctx context.Context) error) error {
	calling, cancel := context.WithCancel(ctx)
	defer cancel()
	forwarded := &forwardedCall{
		shard: to.shard, server: to.server, cancel: cancel, grace: grace, direct: r.peers.direct(to.server),
	}
	defer r.forwarded.add(forwarded)()
	if _, err := r.Node.Leader(to.shard); err != nil && grace > 0 { // no replica here knows the leader
		defer time.AfterFunc(oldLeaderGrace, func() { r.checkLeader(calling, forwarded) }).Stop()
	}
	err := call(calling)
	if calling.Err() != nil && ctx.Err() == nil && errors.Is(err, node.ErrCanceled) {
		return fmt.Errorf("%w: %w: %s leads shard %d no more", node.ErrNoLeader, errAgain, to.server, to.shard)
	}
	return err
}

// checkLeader asks the replicas of a shard for its leader, repeatedly until ctx ends with the call.
func (r *Router) checkLeader(ctx context.Context, call *forwardedCall) {
	again := time.NewTicker(leaderCheckPause)
	defer again.Stop()
	for {
		r.leaders.markFailed(call.shard, call.server)
		r.forwarded.setLeader(call, r.leaders.leader(ctx, call.shard))
		select {
		case <-again.C:
		case <-ctx.Done():
			return
		}
	}
}

// Watch checks the forwarded calls repeatedly until ctx ends.
func (r *Router) Watch(ctx context.Context) {
	tick := time.NewTicker(leaderCheckPause)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		r.forwarded.cancelMoved(func(shard uint32) string {
			server, err := r.Node.Leader(shard)
			if err != nil {
				return ""
			}
			return server
		}, r.peers.reachability.isUnreached)
	}
}
