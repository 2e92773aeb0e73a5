package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/belfrydb/belfry/node"
)

const (
	// strayLook is how often it is looked whether the nodes at which calls are under way still lead.
	strayLook = 250 * time.Millisecond
	// strayGrace is how long another leader must have been known before a call that waits for nothing but its answer is given up: a leader that was
	// replaced and still runs says within this time what became of it. Where there is no replica here to tell who leads, the others are asked once a call
	// has not been answered for as long.
	strayGrace = time.Second
)

// stays are the calls that are under way at other nodes. The zero value is ready for use.
type stays struct {
	mu  sync.Mutex
	all map[*stay]struct{}
}

// stay is one of them.
type stay struct {
	shard  uint32
	server string
	leave  context.CancelFunc
	grace  time.Duration // how long another leader must have been known
	since  time.Time     // since when one is; zero if none is
	direct bool          // the call goes straight to the server
}

// add adds a call until end is called.
func (s *stays) add(st *stay) (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[*stay]struct{}{}
	}
	s.all[st] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.all, st)
	}
}

// look has those calls leave that are at a node which leads no more, as leader says, once their grace is over, or at one that is lost, as this node does not
// reach it. Where no leader is known they stay: the old one may go on.
func (s *stays) look(leader func(shard uint32) string, lost func(server string) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := map[uint32]string{}
	for st := range s.all {
		now, asked := known[st.shard]
		if !asked {
			now = leader(st.shard)
			known[st.shard] = now
		}
		st.hear(now)
		if st.direct && lost(st.server) {
			st.leave()
		}
	}
}

// hear tells one call who leads its shard, empty if nobody is known to.
func (s *stays) hear(st *stay, leader string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st.hear(leader)
}

// hear is stays.hear, with its lock held.
func (st *stay) hear(leader string) {
	switch {
	case leader == "":
		return
	case leader == st.server:
		st.since = time.Time{}
		return
	case st.since.IsZero():
		st.since = time.Now()
	}
	if time.Since(st.since) >= st.grace {
		st.leave()
	}
}

// stayAt makes a call of a shard at another node, for as long as this one does not hear of another leader: a leader that is cut off, or whose process
// stands still, says nothing. The outcome of a call that was sent and given up is unknown; one that was not sent yet may go on to the other leader.
func (r *Router) stayAt(ctx context.Context, to forwardedTo, grace time.Duration, call func(ctx context.Context) error) error {
	staying, leave := context.WithCancel(ctx)
	defer leave()
	st := &stay{shard: to.shard, server: to.server, leave: leave, grace: grace, direct: r.peers.direct(to.server)}
	defer r.stays.add(st)()
	if _, err := r.Node.Leader(to.shard); err != nil && grace > 0 { // no replica here will tell
		defer time.AfterFunc(strayGrace, func() { r.doubt(staying, st) }).Stop()
	}
	err := call(staying)
	if staying.Err() != nil && ctx.Err() == nil && errors.Is(err, node.ErrCanceled) {
		return fmt.Errorf("%w: %w: %s leads shard %d no more", node.ErrNoLeader, errAgain, to.server, to.shard)
	}
	return err
}

// doubt asks the nodes that run a shard who leads it, again and again while a call is not answered.
func (r *Router) doubt(ctx context.Context, st *stay) {
	again := time.NewTicker(strayLook)
	defer again.Stop()
	for {
		r.rumours.forget(st.shard, st.server)
		r.stays.hear(st, r.rumours.leader(ctx, st.shard))
		select {
		case <-again.C:
		case <-ctx.Done():
			return
		}
	}
}

// watch looks again and again until ctx ends.
func (r *Router) watch(ctx context.Context) {
	tick := time.NewTicker(strayLook)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		r.stays.look(func(shard uint32) string {
			server, err := r.Node.Leader(shard)
			if err != nil {
				return ""
			}
			return server
		}, r.peers.contacts.lost)
	}
}
