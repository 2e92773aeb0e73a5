package cluster

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
	// leaderWait bounds how long a call waits for a leader of its shard to be known and to be reached. An election takes one to three
	// seconds.
	leaderWait = 5 * time.Second
	// lookPauseMin and lookPauseMax are between two looks for a leader.
	lookPauseMin = 5 * time.Millisecond
	lookPauseMax = 50 * time.Millisecond
	// hearsayFor is how long what other nodes said of a leader counts before they are asked again, hearsayWait how long they may take.
	hearsayFor  = 100 * time.Millisecond
	hearsayWait = time.Second
	// seekersMax bounds the calls that wait for a leader; what comes beyond is refused at once.
	seekersMax = 16 << 10
)

// errAgain is beneath the errors of calls that may go to another node: nothing of them was sent, or the node refused them because of itself, or they
// only read.
var errAgain = errors.New("the call was not taken")

// errCutOff is beneath the refusal of a call to a node that this one has not reached for long, neither straight nor by way of another. Nothing was sent.
var errCutOff = errors.New("the node is cut off")

// patience is the time that one call still has to find a leader.
type patience struct {
	until time.Time // no look begins after it
	looks time.Time // by then the last one has ended
	pause time.Duration
	stop  <-chan struct{} // ends the patience; nil for never
}

// The share of the time until a caller's deadline that is kept for the answer, and its bounds.
const (
	answerShare   = 10
	answerTimeMin = 5 * time.Millisecond
	answerTimeMax = 250 * time.Millisecond
)

// newPatience returns a patience of at most leaderWait. It ends a little before the deadline of ctx: who only sees the own deadline pass does not hear
// that there was no leader, and has to take what was never sent on for a call of unknown outcome.
func newPatience(ctx context.Context, most time.Duration, stop <-chan struct{}) *patience {
	bound, now := leaderWait, time.Now()
	if deadline, ok := ctx.Deadline(); ok {
		left := deadline.Sub(now)
		bound = max(0, min(bound, left-min(max(left/answerShare, answerTimeMin), answerTimeMax)))
	}
	return &patience{until: now.Add(min(most, bound)), looks: now.Add(min(max(most, hearsayWait), bound)), pause: lookPauseMin, stop: stop}
}

// left returns what is left of the patience.
func (p *patience) left() time.Duration { return max(0, time.Until(p.until)) }

// last waits before the next look. It reports false if the patience has ended.
func (p *patience) last(ctx context.Context) bool {
	left := p.left()
	if left == 0 {
		return false
	}
	timer := time.NewTimer(min(p.pause, left))
	defer timer.Stop()
	p.pause = min(2*p.pause, lookPauseMax)
	select {
	case <-timer.C:
		return true
	case <-p.stop:
		return false
	case <-ctx.Done():
		return false
	}
}

// hearsay is what other nodes said of a shard's leader.
type hearsay struct {
	leader string    // empty if they know none
	at     time.Time // when they had answered; zero while they are asked for the first time
	asking chan struct{}
	// failed is the server that failed a call last, and failedAt when that was.
	failed   string
	failedAt time.Time
}

// rumours are the hearsays about all shards.
type rumours struct {
	ask func(ctx context.Context, shard uint32) string

	mu      sync.Mutex
	byShard map[uint32]*hearsay
}

func newRumours(ask func(ctx context.Context, shard uint32) string) *rumours {
	return &rumours{ask: ask, byShard: map[uint32]*hearsay{}}
}

// leader returns what is said of a shard's leader. A name counts until it is forgotten, that there is none for a moment.
func (r *rumours) leader(ctx context.Context, shard uint32) string {
	r.mu.Lock()
	h := r.byShard[shard]
	if h == nil {
		h = &hearsay{}
		r.byShard[shard] = h
	}
	if h.leader != "" || time.Since(h.at) < hearsayFor {
		defer r.mu.Unlock()
		return h.leader
	}
	asking, mine := h.asking, h.asking == nil
	if mine {
		asking = make(chan struct{})
		h.asking = asking
	}
	r.mu.Unlock()
	if !mine { // one asks for all
		select {
		case <-asking:
		case <-ctx.Done():
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		return h.leader
	}
	wait := hearsayWait
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline))
	}
	asked, cancel := context.WithTimeout(context.WithoutCancel(ctx), wait)
	defer cancel()
	leader := r.ask(asked, shard)
	r.mu.Lock()
	defer r.mu.Unlock()
	h.leader, h.asking = leader, nil
	if wait == hearsayWait || asked.Err() == nil { // that one who was in a hurry heard nothing does not count for the others
		h.at = time.Now()
	}
	close(asking)
	return leader
}

// forget forgets a leader who says that it is none, or does not answer.
func (r *rumours) forget(shard uint32, leader string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.byShard[shard]
	if h == nil {
		h = &hearsay{}
		r.byShard[shard] = h
	}
	if h.leader == leader {
		h.leader = ""
	}
	h.failed, h.failedAt = leader, time.Now()
}

// doubtFor is longer than a replica that hears nothing takes its last leader for one.
const doubtFor = 2 * time.Second

// doubted reports whether a server has failed a call of the shard a moment ago.
func (r *rumours) doubted(shard uint32, leader string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.byShard[shard]
	return h != nil && h.failed == leader && time.Since(h.failedAt) < doubtFor
}

// find returns the server that a call of a shard goes to: this one if it serves, else the leader as far as it is known; empty if nobody is.
func (r *Router) find(ctx context.Context, shard uint32) string {
	self := r.catalog.self.ServerID
	switch server, err := r.Node.Leader(shard); {
	case err == nil && server == self && r.Node.Serves(shard):
		return self
	case err == nil && server == self: // elected a moment ago
		return ""
	case err == nil && server != "" && !r.rumours.doubted(shard, server):
		return server
	}
	// There is no replica here, or one that is no member any more and hears nothing, or there is an election.
	return r.rumours.leader(ctx, shard)
}

// ask asks the nodes that run a shard who leads it. One that says it leads itself is believed, else the first that names another than this node. A node that joined a moment ago,
// and has not heard from the catalog who they are, asks all that it has heard of: callers may come to it already.
func (r *Router) ask(ctx context.Context, shard uint32) string {
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
			leader, err := callPeer[string](ctx, r.peers, server, pathLeader, shard)
			if err != nil {
				leader = ""
			}
			answers <- said{server, leader}
		}()
	}
	var leader string
	for range servers {
		switch a := <-answers; {
		case a.leader == "" || a.leader == r.catalog.self.ServerID: // they have not heard yet that this node leads no more
		case a.leader == a.by:
			return a.leader
		case leader == "":
			leader = a.leader
		}
	}
	return leader
}

// seeker brings calls to where the leaders of their shards are.
type seeker struct {
	// self is this server's id. follows reports whether it would refuse a call, since another one leads. find returns the server that a call goes to, empty if nobody is
	// known; forget is told of one that failed it.
	self    string
	follows func(shard uint32) bool
	find    func(ctx context.Context, shard uint32) string
	forget  func(shard uint32, server string)
	// seeking counts the calls that wait for a leader.
	seeking atomic.Int64
}

// follow has a call of a shard carried out where its leader is: by here on this node, or by there on the one named. Until something was sent that
// may have changed something, it looks again, for as long as p lasts; a call that was sent on is answered as it ended. here and there may be called several times.
//
// Where the named leader is cut off, it looks once more at once: it may have been dead for long, and another one leads.
func (s *seeker) follow(ctx context.Context, shard uint32, p *patience, here func() error, there func(server string) error) error {
	var err error
	if !s.follows(shard) {
		if err = here(); !elsewhere(err) {
			return err
		}
	}
	looking, cancel := context.WithDeadline(ctx, p.looks)
	defer cancel()
	server, cutOff := s.find(looking, shard), false
	for {
		switch server {
		case "":
			if !errors.Is(err, node.ErrNoLeader) {
				err = fmt.Errorf("shard %d: %w", shard, node.ErrNoLeader) // whoever led it is gone
			}
		case s.self:
			if err = here(); !elsewhere(err) {
				return err
			}
		default:
			if err = there(server); err != nil && !refusedByLeader(err) {
				s.forget(shard, server)
			}
			if !cutOff && errors.Is(err, errCutOff) {
				cutOff = true
				if next := s.find(looking, shard); next != "" && next != server {
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
		server = s.find(looking, shard)
	}
}

// wait waits for the next look. It reports false if there is to be none.
func (s *seeker) wait(ctx context.Context, p *patience) bool {
	defer s.seeking.Add(-1)
	return s.seeking.Add(1) <= seekersMax && p.last(ctx)
}

// elsewhere reports whether a call was refused, unlogged, because this node does not lead the shard and serve, or no longer.
func elsewhere(err error) bool {
	if errors.Is(err, node.ErrUnknownOutcome) {
		return false
	}
	// A leader whose clock does not agree is handing over, and logs nothing.
	return errors.Is(err, node.ErrNotLeader) || errors.Is(err, node.ErrNotHere) || errors.Is(err, node.ErrNoLeader) || errors.Is(err, node.ErrClockAhead)
}

// refusedByLeader reports whether an error is what only the leader says, for reasons of the caller's.
func refusedByLeader(err error) bool {
	return errors.Is(err, node.ErrQuota) || errors.Is(err, node.ErrRateLimited)
}

// known returns what was last said of a shard's leader, without asking.
func (r *rumours) known(shard uint32) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h := r.byShard[shard]; h != nil {
		return h.leader
	}
	return ""
}
