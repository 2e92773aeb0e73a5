package client

import (
	"context"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/belfrydb/belfry/client/internal/failure"
	"github.com/belfrydb/belfry/client/internal/placement"
	"github.com/belfrydb/belfry/client/internal/routes"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// routesWait bounds the time to get a map and to try the leaders in it.
const routesWait = 5 * time.Second

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
	ep, n := c.endpoints.Pick()
	m, err := ep.queue.GetRouting(ctx, &belfryv1.GetRoutingRequest{Queues: queues})
	if err != nil {
		c.endpoints.routes.Failed(err)
		if !routes.HasNoMap(err) {
			c.endpoints.leaveFailed(failure.Of(err), nil, n)
		}
		return
	}
	var mu sync.Mutex // guards found
	found := map[string]*endpoint{}
	var trying sync.WaitGroup
	for _, address := range slices.Compact(slices.Sorted(slices.Values(m.GetLeaders()))) {
		at := c.endpoints.Named(address)
		if at == nil {
			continue
		}
		trying.Go(func() {
			said, err := at.queue.GetRouting(ctx, &belfryv1.GetRoutingRequest{})
			if err == nil && said.GetClusterId() == m.GetClusterId() {
				mu.Lock()
				defer mu.Unlock()
				found[address] = at
			}
		})
	}
	trying.Wait()
	c.endpoints.routes.Learn(m, queues, found)
}
