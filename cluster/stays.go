package cluster

import (
	"context"
	"sync"
	"time"
)

// strayLook is how often it is looked whether the nodes that calls wait at are still the leaders.
const strayLook = 250 * time.Millisecond

// stays are the calls that wait for jobs at other nodes. The zero value is ready for use.
type stays struct {
	mu  sync.Mutex
	all map[*stay]struct{}
}

// stay is one of them.
type stay struct {
	shard  uint32
	server string
	leave  context.CancelFunc
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

// look has those calls leave that wait at a node which is, as leader says, no leader any more. Where no leader is known they stay: the old one may
// go on.
func (s *stays) look(leader func(shard uint32) string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := map[uint32]string{}
	for st := range s.all {
		now, asked := known[st.shard]
		if !asked {
			now = leader(st.shard)
			known[st.shard] = now
		}
		if now != "" && now != st.server {
			st.leave()
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
		})
	}
}
