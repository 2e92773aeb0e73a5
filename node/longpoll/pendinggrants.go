package longpoll

import (
	"errors"
	"sync"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/node/outcome"
	"github.com/belfrydb/belfry/node/propose"
)

// RepeatWait is how long the grants of a request with an id wait for a repeat after its caller has
// left. Callers that repeat do so much sooner, and other consumers must not wait long for the jobs.
const RepeatWait = 2 * time.Second

// pendingGrants makes sure that the grants of a Reserve with a request id either reach a caller or
// are released. It is soft state of a shard's leader. A repeat may get the grants of a request
// whose caller has left, by a proposal that is logged after the first one or by a recall, which is
// not logged. Both, and the release, go through here under one lock: delivered grants are never
// released, and grants that are being released are never delivered.
type pendingGrants struct {
	propose func(*propose.Proposal) error
	// check returns an error if the shard has no room for a request; failed reports a release that
	// failed.
	check  func(*fsm.Request) error
	format func() fsm.Format // of new entries
	failed func(doing string, err error)

	mu     sync.Mutex
	closed bool
	byName map[requestName]*pendingGrant
}

// pendingGrant is a request with an id that has reservations in flight or grants that wait for a
// repeat. It is guarded by pendingGrants.mu.
type pendingGrant struct {
	name requestName
	// inProgress is the number of its reservations that have not ended.
	inProgress int
	// delivered says that a caller received the grants.
	delivered bool
	// abandoned are the grants whose caller has left, releasing those whose release was proposed and
	// has no certain outcome yet. releaseInFlight says that the proposal is in flight, releaseUnknown
	// that an earlier one may have been applied, or may still be.
	abandoned, releasing            []fsm.Grant
	releaseInFlight, releaseUnknown bool
	timer                           *time.Timer
}

// grantProposal is a proposal that may bring grants.
type grantProposal struct {
	propose.Proposal
	pendingGrant *pendingGrant // of a Reserve with an id
}

// newPendingGrants returns the pending grants of a shard, before its first leadership.
func newPendingGrants(cfg Config) *pendingGrants {
	return &pendingGrants{closed: true, propose: cfg.Queue.Enqueue, check: cfg.Admission.Check, format: cfg.Format,
		failed: cfg.Note}
}

// open begins a leadership.
func (pg *pendingGrants) open() {
	pg.mu.Lock()
	defer pg.mu.Unlock()
	pg.closed, pg.byName = false, map[requestName]*pendingGrant{}
}

// close forgets all grants: from now on another leader may deliver them. Leases that no repeat
// collects expire.
func (pg *pendingGrants) close() {
	pg.mu.Lock()
	defer pg.mu.Unlock()
	pg.closed = true
	for _, c := range pg.byName {
		if c.timer != nil {
			c.timer.Stop()
		}
	}
	pg.byName = nil
}

// enqueue proposes a request. If it is a reservation with an id, it sets pr.pendingGrant, and
// exactly one of noteDelivered, noteAbandoned and noteNoGrants must follow.
func (pg *pendingGrants) enqueue(pr *grantProposal) error {
	if pr.pendingGrant = nil; pr.Request.ID == "" || len(pr.Request.Commands) != 1 ||
		pr.Request.Commands[0].Kind() != fsm.KindReserve {
		return pg.propose(&pr.Proposal)
	}
	name := nameOf(pr.Request)
	pg.mu.Lock()
	defer pg.mu.Unlock()
	c := pg.byName[name]
	if c == nil {
		c = &pendingGrant{name: name}
	}
	pr.pendingGrant = c // before another goroutine has the proposal
	if err := pg.propose(&pr.Proposal); err != nil {
		pr.pendingGrant = nil
		return err
	}
	c.inProgress++
	if !pg.closed {
		pg.byName[name] = c
	}
	return nil
}

// noteNoGrants ends a reservation without grants, or of unknown outcome.
func (pg *pendingGrants) noteNoGrants(c *pendingGrant) { pg.finish(c, func() {}) }

// noteDelivered ends a reservation whose caller has its answer.
func (pg *pendingGrants) noteDelivered(c *pendingGrant, a answer) {
	pg.finish(c, func() {
		if a.err == nil && a.reply.Granted() {
			c.delivered = true
		}
	})
}

// noteAbandoned ends a reservation whose caller has left. If no repeat collects its grants, they
// are released.
func (pg *pendingGrants) noteAbandoned(c *pendingGrant, a answer) {
	pg.finish(c, func() {
		if a.err != nil || !a.reply.Granted() || a.reply.Results[0].Replayed || c.delivered || pg.byName[c.name] != c {
			return
		}
		if c.abandoned = a.reply.Results[0].Grants; c.timer != nil {
			c.timer.Stop()
		}
		c.timer = time.AfterFunc(RepeatWait, func() { pg.release(c) })
	})
}

// finish ends a reservation. The last one removes its pendingGrant, unless it has grants that a
// repeat may collect.
func (pg *pendingGrants) finish(c *pendingGrant, how func()) {
	if c == nil {
		return
	}
	pg.mu.Lock()
	defer pg.mu.Unlock()
	c.inProgress--
	how()
	pg.forgetIfDoneLocked(c)
}

// forgetIfDoneLocked forgets a pendingGrant with nothing in flight and no grants to collect.
func (pg *pendingGrants) forgetIfDoneLocked(c *pendingGrant) {
	if c.inProgress == 0 && c.releasing == nil && (c.delivered || c.abandoned == nil) && pg.byName[c.name] == c {
		if c.timer != nil {
			c.timer.Stop()
		}
		delete(pg.byName, c.name)
	}
}

// size returns the number of requests whose grants are neither delivered nor released.
func (pg *pendingGrants) size() int {
	pg.mu.Lock()
	defer pg.mu.Unlock()
	return len(pg.byName)
}

// isInProgress reports whether reservations of a request are in flight.
func (pg *pendingGrants) isInProgress(req *fsm.Request) bool {
	pg.mu.Lock()
	defer pg.mu.Unlock()
	c := pg.byName[nameOf(req)]
	return c != nil && c.inProgress > 0
}

// recall reads the grants of a request with read. What it returns counts as delivered.
func (pg *pendingGrants) recall(q *fsm.RecallQuery, read func() (fsm.Reading, propose.Witness)) (fsm.Reading,
	propose.Witness) {
	pg.mu.Lock()
	defer pg.mu.Unlock()
	r, w := read()
	if c := pg.byName[requestName{caller: q.Caller, id: q.RequestID}]; c != nil && len(r.Jobs) > 0 {
		if c.releasing != nil {
			r.Jobs = nil
		} else {
			c.delivered = true
			pg.forgetIfDoneLocked(c)
		}
	}
	return r, w
}

// release proposes the release of grants that no repeat collected, without counting an attempt. A
// release of unknown outcome is proposed again: the grants' fences turn each further one into a
// refusal.
func (pg *pendingGrants) release(c *pendingGrant) {
	pg.mu.Lock()
	defer pg.mu.Unlock()
	again := c.releasing != nil
	if pg.byName[c.name] != c || !again && (c.delivered || c.abandoned == nil) {
		return
	}
	grants := c.abandoned
	if again {
		grants = c.releasing
	}
	req, format := releaseOf(grants), pg.format()
	pr := &propose.Proposal{Request: req, Encoded: codec.AppendRequestIn(nil, format, req), Format: format,
		Complete: func(_ propose.Reply, err error) { pg.releaseDone(c, err) }}
	// Try again later if a release or a repeat is in flight, or the shard has no room.
	if c.releaseInFlight || !again && c.inProgress > 0 || pg.check(req) != nil || pg.propose(pr) != nil {
		c.timer.Reset(RepeatWait)
		return
	}
	if c.releaseInFlight = true; !again {
		c.releasing, c.abandoned = grants, nil
	}
}

// releaseDone records the outcome of a release.
func (pg *pendingGrants) releaseDone(c *pendingGrant, err error) {
	pg.mu.Lock()
	defer pg.mu.Unlock()
	c.releaseInFlight = false
	if c.releaseUnknown = err != nil && (c.releaseUnknown || errors.Is(err, outcome.ErrUnknownOutcome)); c.releaseUnknown {
		if pg.byName[c.name] == c {
			c.timer.Reset(RepeatWait)
		}
		return
	}
	if c.releasing = nil; err != nil {
		pg.failed("releasing jobs whose caller had left; their leases will expire", err)
	}
	// meanwhile the caller of a repeat with grants has left too
	if c.abandoned != nil && !c.delivered && pg.byName[c.name] == c {
		c.timer.Reset(RepeatWait)
	}
	pg.forgetIfDoneLocked(c)
}

// releaseOf returns a request that releases grants.
func releaseOf(grants []fsm.Grant) *fsm.Request {
	req := &fsm.Request{}
	for _, g := range grants {
		ref := fsm.Ref{Queue: g.Queue, Partition: g.Partition, Serial: g.Serial, Fence: g.Fence}
		req.Commands = append(req.Commands, &fsm.Release{Ref: ref})
	}
	return req
}
