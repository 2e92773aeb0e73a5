package routing

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belfrydb/belfry/node"
)

const (
	// LeaderWait bounds how long a call waits for a leader of its shard. An election takes one to
	// three seconds.
	LeaderWait = 5 * time.Second
	// retryPauseMin and retryPauseMax bound the time between two lookups of a leader.
	retryPauseMin = 5 * time.Millisecond
	retryPauseMax = 50 * time.Millisecond
	// hintTTL is how long the answer that there is no leader is valid. hintTimeout bounds the
	// question to other nodes.
	hintTTL     = 100 * time.Millisecond
	hintTimeout = time.Second
	// leaderWaitersMax bounds the calls that wait for a leader; further calls are refused at once.
	leaderWaitersMax = 16 << 10
)

// errAgain is wrapped in the errors of calls that may go to another node. Such a call was not sent,
// or the node refused it for a reason of its own, or it only read.
var errAgain = errors.New("the call was not taken")

// errCutOff is wrapped in the refusal of a call to a node that this one has not reached for a
// while, directly or through another node. Nothing was sent.
var errCutOff = errors.New("the node is cut off")

// retryBudget is the time that a call has to find a leader.
type retryBudget struct {
	until     time.Time // no lookup starts after it
	lookupEnd time.Time // the last lookup ends by then
	pause     time.Duration
	stop      <-chan struct{} // ends the budget; nil for never
}

// 1/answerTimeDivisor of the time until a caller's deadline is kept for the answer, within these
// bounds.
const (
	answerTimeDivisor = 10
	answerTimeMin     = 5 * time.Millisecond
	answerTimeMax     = 250 * time.Millisecond
)

// newRetryBudget returns a budget of at most LeaderWait. It ends a little before the deadline of
// ctx, so that the caller learns that there was no leader. A caller that only saw its deadline pass
// would have to treat a call that was never sent as one of unknown outcome.
func newRetryBudget(ctx context.Context, most time.Duration, stop <-chan struct{}) *retryBudget {
	bound, now := LeaderWait, time.Now()
	if deadline, ok := ctx.Deadline(); ok {
		left := deadline.Sub(now)
		bound = max(0, min(bound, left-min(max(left/answerTimeDivisor, answerTimeMin), answerTimeMax)))
	}
	return &retryBudget{
		until: now.Add(min(most, bound)), lookupEnd: now.Add(min(max(most, hintTimeout), bound)), pause: retryPauseMin,
		stop: stop,
	}
}

// LeaderDeadline returns by when a call must stop to wait for a leader.
func LeaderDeadline(ctx context.Context) time.Time { return newRetryBudget(ctx, LeaderWait, nil).until }

// left returns the time that is left.
func (b *retryBudget) left() time.Duration { return max(0, time.Until(b.until)) }

// wait waits before the next lookup. It reports false if the budget is used up.
func (b *retryBudget) wait(ctx context.Context) bool {
	left := b.left()
	if left == 0 {
		return false
	}
	timer := time.NewTimer(min(b.pause, left))
	defer timer.Stop()
	b.pause = min(2*b.pause, retryPauseMax)
	select {
	case <-timer.C:
		return true
	case <-b.stop:
		return false
	case <-ctx.Done():
		return false
	}
}

// leaderHint is what other nodes said about a shard's leader.
type leaderHint struct {
	leader string    // empty if they know none
	at     time.Time // when they answered; zero before the first answer
	asking chan struct{}
	// failed is the server that last failed a call, at failedAt.
	failed   string
	failedAt time.Time
}

// leaderCache holds the leader hints learned from peers.
type leaderCache struct {
	ask func(ctx context.Context, shard uint32) string

	mu      sync.Mutex
	byShard map[uint32]*leaderHint
}

func newLeaderCache(ask func(ctx context.Context, shard uint32) string) *leaderCache {
	return &leaderCache{ask: ask, byShard: map[uint32]*leaderHint{}}
}

// leader returns the hint for a shard, empty if there is none. A hint is valid until markFailed;
// that there is none is valid for hintTTL. Concurrent callers share one question to the peers.
func (c *leaderCache) leader(ctx context.Context, shard uint32) string {
	c.mu.Lock()
	h := c.byShard[shard]
	if h == nil {
		h = &leaderHint{}
		c.byShard[shard] = h
	}
	if h.leader != "" || time.Since(h.at) < hintTTL {
		defer c.mu.Unlock()
		return h.leader
	}
	asking, mine := h.asking, h.asking == nil
	if mine {
		asking = make(chan struct{})
		h.asking = asking
	}
	c.mu.Unlock()
	if !mine {
		select {
		case <-asking:
		case <-ctx.Done():
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		return h.leader
	}
	wait := hintTimeout
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline))
	}
	asked, cancel := context.WithTimeout(context.WithoutCancel(ctx), wait)
	defer cancel()
	leader := c.ask(asked, shard)
	c.mu.Lock()
	defer c.mu.Unlock()
	h.leader, h.asking = leader, nil
	// A question cut short by one caller's deadline is no answer for the others.
	if wait == hintTimeout || asked.Err() == nil {
		h.at = time.Now()
	}
	close(asking)
	return leader
}

// markFailed drops the hint that a server leads a shard, because the server denied it or did not
// answer.
func (c *leaderCache) markFailed(shard uint32, leader string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.byShard[shard]
	if h == nil {
		h = &leaderHint{}
		c.byShard[shard] = h
	}
	if h.leader == leader {
		h.leader = ""
	}
	h.failed, h.failedAt = leader, time.Now()
}

// distrustFor exceeds the time for which a replica that receives nothing keeps its last leader.
const distrustFor = 2 * time.Second

// distrusted reports whether a server failed a call of the shard within distrustFor.
func (c *leaderCache) distrusted(shard uint32, leader string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.byShard[shard]
	return h != nil && h.failed == leader && time.Since(h.failedAt) < distrustFor
}

// leaderHost is the part of a node that knows leaders. *node.Node implements it.
type leaderHost interface {
	// Leader returns the server id of the shard's leader as far as this node knows.
	Leader(shard uint32) (string, error)
	// Serves reports whether this node leads a shard and serves.
	Serves(shard uint32) bool
}

// FindLeader returns the server that a call of a shard goes to: this one if it serves, else the
// leader if one is known, else "".
func (r *Router) FindLeader(ctx context.Context, shard uint32) string {
	return r.leaders.find(ctx, shard, r.self, r.Node)
}

// find is FindLeader for the node host with the server id self.
func (c *leaderCache) find(ctx context.Context, shard uint32, self string, host leaderHost) string {
	switch server, err := host.Leader(shard); {
	case err == nil && server == self && host.Serves(shard):
		return self
	case err == nil && server == self: // elected a moment ago
		return ""
	case err == nil && server != "" && !c.distrusted(shard, server):
		return server
	}
	// This node has no replica, or one that was removed, or there is an election.
	return c.leader(ctx, shard)
}

// AskReplicas asks the nodes that have a replica of a shard for its leader. It returns the first
// server that says it leads itself, else the first other server that an answer names. A node that
// joined a moment ago may not know the placement yet. It asks all nodes that it knows, since it may
// have callers already.
func (r *Router) AskReplicas(ctx context.Context, shard uint32) string {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type said struct{ by, leader string }
	servers := r.replicas(shard)
	if len(servers) == 0 && r.others != nil {
		servers = r.others()
	}
	answers := make(chan said, len(servers))
	for _, server := range servers {
		go func() {
			leader, err := Call[string](ctx, r.peers, server, pathLeader, shard)
			if err != nil {
				leader = ""
			}
			answers <- said{server, leader}
		}()
	}
	var leader string
	for range servers {
		switch a := <-answers; {
		case a.leader == "" || a.leader == r.self:
			// A server that names this node does not know yet that it lost the leadership.
		case a.leader == a.by:
			return a.leader
		case leader == "":
			leader = a.leader
		}
	}
	return leader
}

// leaderRouter routes calls to the leaders of their shards.
type leaderRouter struct {
	// self is this server's id. follows reports whether this node would refuse a call because
	// another one leads. findLeader returns the server for a call, "" if none is known. markFailed
	// is called with a server that failed a call.
	self       string
	follows    func(shard uint32) bool
	findLeader func(ctx context.Context, shard uint32) string
	markFailed func(shard uint32, server string)
	// waiting counts the calls that wait for a leader.
	waiting atomic.Int64
}

// route runs a call of a shard at its leader: with here on this node, or with there on the named
// server. Until a call that may have changed something is sent, route looks the leader up again
// while the budget lasts. The result of a call that was sent is final. here and there may be called
// several times.
//
// If the named leader is cut off, route looks it up once more at once. That leader may have been
// dead for a while, and another one may lead.
func (s *leaderRouter) route(ctx context.Context, shard uint32, p *retryBudget, here func() error,
	there func(server string) error) error {
	var err error
	if !s.follows(shard) {
		if err = here(); !servedElsewhere(err) {
			return err
		}
	}
	looking, cancel := context.WithDeadline(ctx, p.lookupEnd)
	defer cancel()
	server, cutOff := s.findLeader(looking, shard), false
	for {
		switch server {
		case "":
			if !errors.Is(err, node.ErrNoLeader) {
				err = fmt.Errorf("shard %d: %w", shard, node.ErrNoLeader) // the last leader is gone
			}
		case s.self:
			if err = here(); !servedElsewhere(err) {
				return err
			}
		default:
			if err = there(server); err != nil && !refusedByLeader(err) {
				s.markFailed(shard, server)
			}
			if !cutOff && errors.Is(err, errCutOff) {
				cutOff = true
				if next := s.findLeader(looking, shard); next != "" && next != server {
					server = next
					continue
				}
			}
			if !errors.Is(err, errAgain) {
				return err
			}
		}
		if !s.wait(ctx, p) {
			if ctx.Err() != nil {
				return fmt.Errorf("%w: %w: %w", node.ErrCanceled, err, context.Cause(ctx))
			}
			return err
		}
		server = s.findLeader(looking, shard)
	}
}

// wait waits for the next lookup. It reports false if there is none.
func (s *leaderRouter) wait(ctx context.Context, p *retryBudget) bool {
	defer s.waiting.Add(-1)
	return s.waiting.Add(1) <= leaderWaitersMax && p.wait(ctx)
}

// servedElsewhere reports whether this node refused a call without logging it because it does not
// lead the shard, or does not serve it yet.
func servedElsewhere(err error) bool {
	if errors.Is(err, node.ErrUnknownOutcome) {
		return false
	}
	// A leader whose clock disagrees transfers its leadership and logs nothing.
	return errors.Is(err, node.ErrNotLeader) || errors.Is(err, node.ErrNotHere) || errors.Is(err, node.ErrNoLeader) ||
		errors.Is(err, node.ErrClockAhead)
}

// refusedByLeader reports whether an error is a refusal that only a leader returns.
func refusedByLeader(err error) bool {
	return errors.Is(err, node.ErrQuota) || errors.Is(err, node.ErrRateLimited)
}

// known returns the hint for a shard without asking.
func (c *leaderCache) known(shard uint32) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := c.byShard[shard]; h != nil {
		return h.leader
	}
	return ""
}
