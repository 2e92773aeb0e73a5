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

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

const (
	// routesFresh is how long a map of the shards counts before it is asked for again, routesPause how long after a failure nobody asks, and
	// routesShun how long if the servers have no map or one that makes no sense here.
	routesFresh = 10 * time.Second
	routesPause = 2 * time.Second
	routesShun  = time.Minute
	// routesWait bounds the time to get a map and to try the leaders in it.
	routesWait = 5 * time.Second
	// routesAskMax is how many queues one question is about, which is what servers take; routesGap is the time from one question to the next for queues
	// that came meanwhile.
	routesAskMax = 64
	routesGap    = 50 * time.Millisecond
	// routesQueuesMax is how many queues' partitions a client keeps in mind, and as many older ones.
	routesQueuesMax = 4096
	// namedMax is how many addresses that servers named a client keeps in mind.
	namedMax = 64
)

// routes are what a client knows of where shards are led. It is a hint and nothing more: any server takes any call, and a call that goes astray is
// forwarded. An address is used only after a server there has said that it belongs to the cluster, and no more once a call failed there.
type routes struct {
	mu         sync.Mutex
	shards     int
	leaders    []*endpoint       // by shard; nil where calls go to any server
	partitions map[string]uint32 // of queues; 1 if nothing else is known of them
	older      map[string]uint32 // those that are to be asked for again, and serve until then
	wanted     map[string]bool   // queues to ask for
	began      time.Time         // when partitions was empty
	asked      time.Time         // when the map was last asked for
	next       time.Time         // when it may be asked for again; zero once one came
	asking     bool
}

// leader gives the server that leads the shard of a place, nil if that is not known.
func (r *routes) leader(p place) *endpoint {
	r.mu.Lock()
	defer r.mu.Unlock()
	partitions, known := r.partitions[p.queue]
	if !known {
		partitions, known = r.older[p.queue]
	}
	if r.shards == 0 || !known {
		return nil
	}
	switch {
	case p.known:
	case p.id != "":
		p.partition = partitionOf(p.id, partitions)
	case partitions > 1:
		return nil
	}
	return r.leaders[shardOf(p.queue, p.partition, r.shards)]
}

// due notes what a call was about, and reports whether it is time to ask for a map. If so, learn or failed must follow.
func (r *routes) due(p place) bool {
	if p.queue == "" {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if stale := now.Sub(r.began) >= routesFresh || len(r.partitions) >= routesQueuesMax; r.partitions == nil || stale && r.next.IsZero() {
		r.partitions, r.older, r.began = map[string]uint32{}, r.partitions, now // those in use come again; while no map comes, they stay
	}
	if _, known := r.partitions[p.queue]; !known && len(r.wanted) < routesAskMax {
		if r.wanted == nil {
			r.wanted = map[string]bool{}
		}
		r.wanted[p.queue] = true
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

// questions gives the queues to ask for.
func (r *routes) questions() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.wanted))
}

// failed notes that no map came. One queue of which the servers will not hear must not have it refused for ever, so those in use are to come again.
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

// hasNoMap reports whether an error says that a server, or what is before it, knows nothing of maps.
func hasNoMap(err error) bool {
	return connect.CodeOf(err) == connect.CodeUnimplemented || misconfigured(err)
}

// learn takes a map, and the servers that were tried, by address.
func (r *routes) learn(m *belfryv1.GetRoutingResponse, queues []string, servers map[string]*endpoint) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asking, r.next = false, time.Time{}
	if m.GetHashVersion() != hashVersion || m.GetShards() == 0 || len(m.GetLeaders()) != int(m.GetShards()) {
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

// answered notes that a call was answered, and has a map of the shards asked for when it is time: not before a server has answered at all.
func (c *Client) answered(p place) {
	if c.endpoints.routes.due(p) && !c.start(func() { c.explore(c.lifetime()) }) {
		c.endpoints.routes.failed(net.ErrClosed)
	}
}

// explore asks a server where the shards are led, and tries the leaders that it names.
func (c *Client) explore(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, routesWait)
	defer cancel()
	queues := c.endpoints.routes.questions()
	ep, n := c.endpoints.pick()
	m, err := ep.queue.GetRouting(ctx, &belfryv1.GetRoutingRequest{Queues: queues})
	if err != nil {
		c.endpoints.routes.failed(err)
		if !hasNoMap(err) {
			c.endpoints.leave(asError(err), nil, n)
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

// at gives the endpoint of an address that a server named, nil if it makes no sense here.
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
