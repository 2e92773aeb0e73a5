package client

import (
	"context"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/belfrydb/belfry/client/internal/failure"
	"github.com/belfrydb/belfry/client/internal/placement"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/portcheck"
)

const (
	// routesFresh is how long a map of the shards is used before the client asks for it again.
	// routesPause is how long it does not ask after a failure. routesShun is the same if the
	// servers have no map, or one that makes no sense here.
	routesFresh = 10 * time.Second
	routesPause = 2 * time.Second
	routesShun  = time.Minute
	// routesWait bounds the time to get a map and to try the leaders in it.
	routesWait = 5 * time.Second
	// routesAskMax is the most queues in one request, which is the servers' limit. routesGap is the
	// time from one request to the next, for queues that came meanwhile.
	routesAskMax = 64
	routesGap    = 50 * time.Millisecond
	// routesQueuesMax is how many queues' partitions a client remembers, besides as many older
	// ones.
	routesQueuesMax = 4096
	// namedMax is how many addresses named by servers a client remembers.
	namedMax = 64
)

// routes are what a client knows about the leaders of shards. They are only a hint: any server
// takes any call, and forwards a call that it does not lead. The client uses an address only after
// a server there has said that it belongs to the cluster, and not after a call has failed there.
type routes struct {
	mu         sync.Mutex
	shards     int
	leaders    []*endpoint       // by shard; nil where calls go to any server
	partitions map[string]uint32 // of queues; 1 if nothing else is known of them
	older      map[string]uint32 // due to be asked for again; used until then
	wanted     map[string]bool   // queues to ask for
	began      time.Time         // when partitions was empty
	asked      time.Time         // when the map was last asked for
	next       time.Time         // when it may be asked for again after a failure; zero once a map came
	asking     bool
}

// leader returns the server that leads the shard of a place, nil if that is not known.
func (r *routes) leader(p placement.Place) *endpoint {
	r.mu.Lock()
	defer r.mu.Unlock()
	partitions, known := r.partitions[p.Queue]
	if !known {
		partitions, known = r.older[p.Queue]
	}
	if r.shards == 0 || !known {
		return nil
	}
	switch {
	case p.Known:
	case p.ID != "":
		p.Partition = placement.PartitionOf(p.ID, partitions)
	case partitions > 1:
		return nil
	}
	return r.leaders[placement.ShardOf(p.Queue, p.Partition, r.shards)]
}

// due records the place of a call, and reports whether it is time to ask for a map. If so, learn or
// failed must follow.
func (r *routes) due(p placement.Place) bool {
	if p.Queue == "" {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if stale := now.Sub(r.began) >= routesFresh || len(r.partitions) >= routesQueuesMax; r.partitions == nil || stale &&
		r.next.IsZero() {
		// those in use come again; while no map comes, they stay
		r.partitions, r.older, r.began = map[string]uint32{}, r.partitions, now
	}
	if _, known := r.partitions[p.Queue]; !known && len(r.wanted) < routesAskMax {
		if r.wanted == nil {
			r.wanted = map[string]bool{}
		}
		r.wanted[p.Queue] = true
	}
	pause := routesFresh
	if len(r.wanted) > 0 {
		pause = routesGap
	}
	if r.asking || now.Sub(r.asked) < pause || now.Before(r.next) {
		return false
	}
	r.asking, r.asked = true, now
	return true
}

// doubt forgets a server at which a call failed.
func (r *routes) doubt(ep *endpoint) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for shard, leader := range r.leaders {
		if leader == ep {
			r.leaders[shard] = nil
		}
	}
	r.asked = time.Time{}
}

// questions returns the queues to ask for.
func (r *routes) questions() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.wanted))
}

// failed records that no map came. One queue that the servers do not accept must not make every
// later request fail. So failed forgets the wanted queues; those in use are added again.
func (r *routes) failed(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pause := routesPause
	if hasNoMap(err) {
		pause = routesShun
	}
	r.asking, r.next = false, time.Now().Add(pause)
	clear(r.wanted)
}

// hasNoMap reports whether an error says that a server, or a proxy before it, knows no maps.
func hasNoMap(err error) bool {
	return connect.CodeOf(err) == connect.CodeUnimplemented || portcheck.Misconfigured(err)
}

// learn takes over a map. servers are the servers that answered, by address.
func (r *routes) learn(m *belfryv1.GetRoutingResponse, queues []string, servers map[string]*endpoint) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asking, r.next = false, time.Time{}
	if m.GetHashVersion() != placement.HashVersion || m.GetShards() == 0 || len(m.GetLeaders()) != int(m.GetShards()) {
		r.shards, r.leaders, r.next = 0, nil, time.Now().Add(routesShun)
		return
	}
	r.shards, r.leaders = int(m.GetShards()), make([]*endpoint, m.GetShards())
	for shard, address := range m.GetLeaders() {
		r.leaders[shard] = servers[address]
	}
	for _, queue := range queues {
		r.partitions[queue] = max(1, m.GetPartitions()[queue])
		delete(r.wanted, queue)
	}
}

// answered records that a call was answered, and asks for a map of the shards when it is time. So
// no map is requested before a server has answered at all.
func (c *Client) answered(p placement.Place) {
	if c.endpoints.routes.due(p) && !c.start(func() { c.explore(c.lifetime()) }) {
		c.endpoints.routes.failed(net.ErrClosed)
	}
}

// explore asks a server for the leaders of the shards, and tries the leaders that it names.
func (c *Client) explore(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, routesWait)
	defer cancel()
	queues := c.endpoints.routes.questions()
	ep, n := c.endpoints.pick()
	m, err := ep.queue.GetRouting(ctx, &belfryv1.GetRoutingRequest{Queues: queues})
	if err != nil {
		c.endpoints.routes.failed(err)
		if !hasNoMap(err) {
			c.endpoints.leave(failure.Of(err), nil, n)
		}
		return
	}
	var mu sync.Mutex // guards servers
	servers := map[string]*endpoint{}
	var trying sync.WaitGroup
	for _, address := range slices.Compact(slices.Sorted(slices.Values(m.GetLeaders()))) {
		at := c.endpoints.at(address)
		if at == nil {
			continue
		}
		trying.Go(func() {
			said, err := at.queue.GetRouting(ctx, &belfryv1.GetRoutingRequest{})
			if err == nil && said.GetClusterId() == m.GetClusterId() {
				mu.Lock()
				defer mu.Unlock()
				servers[address] = at
			}
		})
	}
	trying.Wait()
	c.endpoints.routes.learn(m, queues, servers)
}

// at returns the endpoint of an address that a server named, nil if the address makes no sense
// here.
func (e *endpoints) at(address string) *endpoint {
	host, _, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err != nil || host == "" || ip != nil && ip.IsUnspecified() {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if ep := e.named[address]; ep != nil {
		return ep
	}
	u, err := url.Parse(e.urls[0])
	if err != nil || strings.Trim(u.Path, "/") != "" {
		return nil // there is a gateway before the servers
	}
	if e.named == nil || len(e.named) >= namedMax {
		e.named = map[string]*endpoint{}
	}
	e.named[address] = e.make(u.Scheme + "://" + address)
	return e.named[address]
}
