package client

import (
	"context"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/belfrydb/belfry/client/internal/failure"
	"github.com/belfrydb/belfry/client/internal/placement"
	"github.com/belfrydb/belfry/client/internal/routes"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

const (
	// routesWait bounds the time to get a map and to try the leaders in it.
	routesWait = 5 * time.Second
	// namedMax is how many addresses named by servers a client remembers.
	namedMax = 64
)

// answered records that a call was answered, and asks for a map of the shards when it is time. So
// no map is requested before a server has answered at all.
func (c *Client) answered(p placement.Place) {
	if c.endpoints.routes.Due(p) && !c.start(func() { c.explore(c.lifetime()) }) {
		c.endpoints.routes.Failed(net.ErrClosed)
	}
}

// explore asks a server for the leaders of the shards, and tries the leaders that it names.
func (c *Client) explore(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, routesWait)
	defer cancel()
	queues := c.endpoints.routes.Questions()
	ep, n := c.endpoints.pick()
	m, err := ep.queue.GetRouting(ctx, &belfryv1.GetRoutingRequest{Queues: queues})
	if err != nil {
		c.endpoints.routes.Failed(err)
		if !routes.HasNoMap(err) {
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
	c.endpoints.routes.Learn(m, queues, servers)
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
