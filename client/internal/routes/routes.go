// Package routes remembers which servers lead which shards, and when to ask for that again.
package routes

import (
	"maps"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/belfrydb/belfry/client/internal/placement"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/portcheck"
)

const (
	// Fresh is how long a map of the shards is used before the client asks for it again.
	Fresh = 10 * time.Second
	// Pause is how long it does not ask after a failure.
	Pause = 2 * time.Second
	// shun is the same if the servers have no map, or one that makes no sense here.
	shun = time.Minute
	// AskMax is the most queues in one request, which is the servers' limit.
	AskMax = 64
	// Gap is the time from one request to the next, for queues that came meanwhile.
	Gap = 50 * time.Millisecond
	// queuesMax is how many queues' partitions a client remembers, besides as many older ones.
	queuesMax = 4096
)

// A Table is what a client knows about the leaders of shards. It is only a hint: any server takes any
// call, and forwards a call that it does not lead. A server is in the table only after it has said
// that it belongs to the cluster, and not after a call has failed there. S is a server, with the zero
// value for none. The zero Table knows nothing.
type Table[S comparable] struct {
	mu      sync.Mutex
	shards  int
	leaders []S // by shard; zero where calls go to any server
	queues  map[string]spread
	older   map[string]spread // due to be asked for again; used until then
	wanted  map[string]bool   // queues to ask for
	began   time.Time         // when queues was empty
	asked   time.Time         // when the map was last asked for
	next    time.Time         // when it may be asked for again after a failure; zero once a map came
	asking  bool
}

// spread says in which shards a queue is.
type spread struct {
	partitions uint32 // 1 if nothing else is known
	first      int    // the shard of its partition 0
}

// Leader returns the server that leads the shard of a place, zero if that is not known.
func (r *Table[S]) Leader(p placement.Place) (leader S) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, known := r.queues[p.Queue]
	if !known {
		at, known = r.older[p.Queue]
	}
	if r.shards == 0 || !known {
		return leader
	}
	switch {
	case p.Known:
	case p.Key != "":
		p.Partition = placement.PartitionOfKey(p.Key, at.partitions)
	case p.ID != "":
		p.Partition = placement.PartitionOf(p.ID, at.partitions)
	case at.partitions > 1:
		return leader
	}
	if p.Partition == 0 {
		return r.leaders[at.first]
	}
	return r.leaders[placement.ShardOf(p.Queue, p.Partition, r.shards)]
}

// Due records the place of a call, and reports whether it is time to ask for a map. If so, Learn or
// Failed must follow.
func (r *Table[S]) Due(p placement.Place) bool {
	if p.Queue == "" {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if stale := now.Sub(r.began) >= Fresh || len(r.queues) >= queuesMax; r.queues == nil || stale && r.next.IsZero() {
		// those in use come again; while no map comes, they stay
		r.queues, r.older, r.began = map[string]spread{}, r.queues, now
	}
	if _, known := r.queues[p.Queue]; !known && len(r.wanted) < AskMax {
		if r.wanted == nil {
			r.wanted = map[string]bool{}
		}
		r.wanted[p.Queue] = true
	}
	pause := Fresh
	if len(r.wanted) > 0 {
		pause = Gap
	}
	if r.asking || now.Sub(r.asked) < pause || now.Before(r.next) {
		return false
	}
	r.asking, r.asked = true, now
	return true
}

// Doubt forgets a server at which a call failed.
func (r *Table[S]) Doubt(server S) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for shard, leader := range r.leaders {
		if leader == server {
			var none S
			r.leaders[shard] = none
		}
	}
	r.asked = time.Time{}
}

// Questions returns the queues to ask for.
func (r *Table[S]) Questions() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.wanted))
}

// Failed records that no map came. One queue that the servers do not accept must not make every
// later request fail. So Failed forgets the wanted queues; those in use are added again.
func (r *Table[S]) Failed(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pause := Pause
	if HasNoMap(err) {
		pause = shun
	}
	r.asking, r.next = false, time.Now().Add(pause)
	clear(r.wanted)
}

// HasNoMap reports whether an error says that a server, or a proxy before it, knows no maps.
func HasNoMap(err error) bool {
	return connect.CodeOf(err) == connect.CodeUnimplemented || portcheck.Misconfigured(err)
}

// Learn takes over a map. servers are the servers that answered, by address.
func (r *Table[S]) Learn(m *belfryv1.GetRoutingResponse, queues []string, servers map[string]S) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asking, r.next = false, time.Time{}
	if m.GetHashVersion() != placement.HashVersion || m.GetShards() == 0 || len(m.GetLeaders()) != int(m.GetShards()) {
		r.shards, r.leaders, r.next = 0, nil, time.Now().Add(shun)
		return
	}
	if shards := int(m.GetShards()); shards != r.shards { // as when the first map comes
		r.shards, r.older = shards, nil
		clear(r.queues)
	}
	r.leaders = make([]S, r.shards)
	for shard, address := range m.GetLeaders() {
		r.leaders[shard] = servers[address]
	}
	for _, queue := range queues {
		r.queues[queue] = spread{max(1, m.GetPartitions()[queue]), placement.ShardOf(queue, 0, r.shards)}
		delete(r.wanted, queue)
	}
}
