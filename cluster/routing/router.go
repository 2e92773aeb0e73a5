package routing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/belfrydb/belfry/cluster/catalog"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
)

// Router makes the calls of shards: on this node if it leads, else at the leader, in one hop. While
// no leader is known, or the known one cannot be reached, a call waits up to LeaderWait. A call
// that was sent to a leader is not sent again. If a leader refuses it because it no longer leads,
// the caller tries again. Waiting for a job is the exception; see Reserve. Apart from calls of
// shards, it behaves as this node. Its methods may be called from any goroutine.
type Router struct {
	*node.Node
	self      string // this node's server id
	catalog   *catalog.Catalog
	peers     *Peers
	leaders   *leaderCache
	forwarded forwardedCalls
	routing   leaderRouter
	// others returns the servers that this node knows, except itself. It is nil if the node can
	// know none.
	others func() []string
	// attempts locks requests whose first shard this node leads.
	attempts node.RequestMutex
}

// NewRouter returns the router of a node. others returns the servers that this node knows, except
// itself; it is nil if the node can know none.
func NewRouter(n *node.Node, c *catalog.Catalog, p *Peers, others func() []string) *Router {
	r := &Router{Node: n, self: n.Status().ServerID, catalog: c, peers: p, others: others}
	r.leaders = newLeaderCache(r.AskReplicas)
	r.routing.self, r.routing.follows = r.self, n.Follows
	r.routing.findLeader, r.routing.markFailed = r.FindLeader, r.leaders.markFailed
	return r
}

// Answer registers the calls of shards that other nodes may make, the probes of this node, and the
// calls that it relays.
func (r *Router) Answer() {
	answerShards(r.peers, r.Node, r.self)
	answerRequestLocks(r.peers, r.Node, &r.attempts)
	answerExports(r.peers, r.Node, r.Node.Status().ClusterID)
	Handle(r.peers, pathReach, func(_ context.Context, from string, _ struct{}) (reachAnswer, error) {
		a := r.peers.reachability.answerProbe(from)
		a.Memory = r.Node.MemoryFull()
		return a, nil
	})
	r.peers.answerRelay()
}

// LockedRequests returns how many requests have a lock at this node; see LockRequest.
func (r *Router) LockedRequests() int { return r.attempts.Len() }

// Do is node.Node's Do for any shard.
func (r *Router) Do(ctx context.Context, shard uint32, req *fsm.Request) (reply node.Reply, err error) {
	p := newRetryBudget(ctx, LeaderWait, nil)
	err = r.routing.route(ctx, shard, p, func() error {
		reply, err = r.Node.Do(ctx, shard, req)
		return err
	}, func(server string) error {
		to := p.target(server, shard)
		return r.forward(ctx, to, oldLeaderGrace, func(ctx context.Context) error {
			reply, err = r.peers.do(ctx, to, req)
			return err
		})
	})
	return reply, err
}

// Start is node.Node's Start, for a shard that this node leads: for all others, ok is false. If this
// node has ceased to lead before the request was logged, finish returns again.
func (r *Router) Start(ctx context.Context, shard uint32,
	req *fsm.Request) (finish func() (reply node.Reply, again bool, err error), ok bool) {
	if !r.Node.Serves(shard) {
		return nil, false
	}
	here, ok := r.Node.Start(ctx, shard, req)
	if !ok {
		return nil, false
	}
	return func() (node.Reply, bool, error) {
		reply, err := here()
		return reply, servedElsewhere(err), err
	}, true
}

// Query is node.Node's Query for any shard.
func (r *Router) Query(ctx context.Context, shard uint32,
	q fsm.Query) (reading fsm.Reading, witness node.Witness, err error) {
	p := newRetryBudget(ctx, LeaderWait, nil)
	err = r.routing.route(ctx, shard, p, func() error {
		reading, witness, err = r.Node.Query(ctx, shard, q)
		return err
	}, func(server string) error {
		to := p.target(server, shard)
		// The grace is shorter than oldLeaderGrace: a repeated query does no harm.
		err := r.forward(ctx, to, leaderCheckPause, func(ctx context.Context) error {
			reading, witness, err = r.peers.query(ctx, pathQuery, to, q)
			return err
		})
		if errors.Is(err, node.ErrUnknownOutcome) && ctx.Err() == nil {
			err = fmt.Errorf("%w: %w: %w", node.ErrNoLeader, errAgain, err) // it changed nothing
		}
		return err
	})
	return reading, witness, err
}

// Stale answers a query from the nearest replica: the one here, else that of the first node that
// answers. It needs no leader.
func (r *Router) Stale(ctx context.Context, shard uint32, q fsm.Query) (fsm.Reading, node.Witness, error) {
	reading, witness, err := r.Node.Peek(shard, q)
	if !errors.Is(err, node.ErrNotHere) {
		return reading, witness, err
	}
	ctx, cancel := context.WithTimeout(ctx, LeaderWait)
	defer cancel()
	return r.peers.peekAny(ctx, r.replicas(shard), shard, q)
}

// replicas returns the other nodes that are recorded to run a shard.
func (r *Router) replicas(shard uint32) (servers []string) {
	for _, p := range r.catalog.Placements() {
		if p.Shard == shard {
			servers = append(servers, p.Servers...)
		}
	}
	return slices.DeleteFunc(servers, func(server string) bool { return server == r.self })
}

// offersWait bounds the question whether a shard offers a job. A poll asks all its shards. One
// shard whose leader hangs must not keep the poll from the jobs of the others.
const offersWait = 500 * time.Millisecond

// Offers is node.Node's Offers for any shard. It does not wait for a leader, and waits briefly for
// an answer.
func (r *Router) Offers(ctx context.Context, shard uint32, queues []string) (offers bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, offersWait)
	defer cancel()
	err = r.routing.route(ctx, shard, newRetryBudget(ctx, 0, nil), func() error {
		offers, err = r.Node.Offers(shard, queues)
		return err
	}, func(server string) error {
		offers, err = Call[bool](ctx, r.peers, server, pathOffers, offersCall{Shard: shard, Queues: queues})
		return err
	})
	return offers, err
}

// Reserve is node.Node's Reserve for any shard. A call that waits follows the leadership: when its
// leader transfers it, falls silent or ends, the call goes on waiting at the next leader. Jobs
// granted by a leader that ended in that moment are granted again under the same request id.
// Without a request id their leases expire, as if the answer to the client had been lost. If there
// is no next leader, the call has an unknown outcome if one of its attempts had.
func (r *Router) Reserve(ctx context.Context, shard uint32, req *fsm.Request, wait node.Wait) (node.Reply, error) {
	until, led := time.Now().Add(wait.For), time.Now() // led: when the call last was at a leader
	var lost error                                     // of an attempt with unknown outcome
	for {
		most := LeaderWait
		if wait.For > 0 {
			most = wait.For
		}
		reply, err := r.reserve(ctx, shard, req, wait, newRetryBudget(ctx, most, wait.Stop), &led)
		drifts := adrift(err)
		if errors.Is(err, node.ErrUnknownOutcome) {
			lost = err
		} else if err != nil && lost != nil {
			err = lost // the other leader may have granted jobs
		}
		if err == nil || wait.For <= 0 || !drifts || ctx.Err() != nil || isClosed(wait.Stop) {
			return reply, err
		}
		if wait.For = time.Until(until); wait.For <= 0 || time.Since(led) >= LeaderWait {
			return reply, err
		}
		if !(&retryBudget{until: until, pause: retryPauseMin, stop: wait.Stop}).wait(ctx) {
			return reply, err
		}
	}
}

// reserve is one attempt at one leader. It sets led when the attempt ends, unless the attempt was
// refused at once.
func (r *Router) reserve(ctx context.Context, shard uint32, req *fsm.Request, wait node.Wait, p *retryBudget,
	led *time.Time) (reply node.Reply, err error) {
	ended := func(since time.Time) {
		if time.Since(since) > leaderCheckPause { // a refusal takes less
			*led = time.Now()
		}
	}
	err = r.routing.route(ctx, shard, p, func() error {
		defer ended(time.Now())
		reply, err = r.Node.Reserve(ctx, shard, req, wait)
		return err
	}, func(server string) error {
		defer ended(time.Now())
		to, grace := p.target(server, shard), time.Duration(0)
		if wait.For <= leaderCheckPause {
			grace = oldLeaderGrace
		}
		// A replaced leader cannot commit what it grants now, or gives it back, since the call has
		// left.
		return r.forward(ctx, to, grace, func(ctx context.Context) error {
			reply, err = r.peers.reserve(ctx, to, req, wait)
			return err
		})
	})
	return reply, err
}

// adrift reports whether a call that waited has lost its leader.
func adrift(err error) bool {
	return servedElsewhere(err) || errors.Is(err, node.ErrUnknownOutcome)
}

// isClosed reports whether a channel, which may be nil, is closed.
func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// ClientAddr returns the address of a shard's leader for clients, as far as this node knows without
// asking. It is empty if the node does not know it.
func (r *Router) ClientAddr(shard uint32) string {
	server, err := r.Node.Leader(shard)
	if err != nil {
		server = r.leaders.known(shard)
	}
	if server == "" {
		return ""
	}
	for _, n := range r.catalog.Nodes() {
		if n.ServerID == server {
			return n.ClientAddr
		}
	}
	return ""
}
