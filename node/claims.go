package node

import (
	"errors"
	"sync"
	"time"

	"github.com/belfrydb/belfry/fsm"
)

// repeatPatience is how long what a request with an id was granted waits for a repeat after its caller has left. A caller that means to repeat
// does so far sooner, and a job must not be kept from others for long.
const repeatPatience = 2 * time.Second

// claims see to it that what a request with an id was granted comes to a caller, or goes back: soft state of a shard's leader. A repeat may be handed
// the grants of a request whose caller has left, by a proposal that is logged after the first or by a recall, which is not logged. Both come by here, as
// does the release, under one lock: what somebody was handed is not released, and what is being released is handed to nobody.
type claims struct {
	shard *shard

	mu     sync.Mutex
	closed bool
	byName map[requestName]*claim
}

// claim is a request with an id of which reservations are under way, or whose grants wait for a repeat. It is guarded by claims.mu.
type claim struct {
	name requestName
	// open is the number of its reservations that were neither taken nor left nor came to nothing.
	open int
	// taken says that a caller was handed the grants.
	taken bool
	// left are the grants whose caller has left, returning those whose release was proposed and not answered for certain. flying says that it is
	// on its way, doubted that an earlier proposal of it may have been applied, or be yet.
	left, returning []fsm.Grant
	flying, doubted bool
	timer           *time.Timer
}

func newClaims(s *shard) *claims { return &claims{shard: s, closed: true} }

// begin is called when a leadership begins.
func (cs *claims) begin() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.closed, cs.byName = false, map[requestName]*claim{}
}

// close forgets everything: another leader may hand out from now on what was granted here. Leases lapse for which nobody comes.
func (cs *claims) close() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.closed = true
	for _, c := range cs.byName {
		if c.timer != nil {
			c.timer.Stop()
		}
	}
	cs.byName = nil
}

// enqueue proposes a request. If it is a reservation with an id, exactly one of taken, left and nothing must follow for the proposal's claim.
func (cs *claims) enqueue(pr *proposal) error {
	if pr.claim = nil; pr.request.ID == "" || len(pr.request.Commands) != 1 || pr.request.Commands[0].Kind() != fsm.KindReserve {
		return cs.shard.proposer.enqueue(pr)
	}
	name := nameOf(pr.request)
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c := cs.byName[name]
	if c == nil {
		c = &claim{name: name}
	}
	pr.claim = c // before somebody else has the proposal
	if err := cs.shard.proposer.enqueue(pr); err != nil {
		pr.claim = nil
		return err
	}
	c.open++
	if !cs.closed {
		cs.byName[name] = c
	}
	return nil
}

// nothing ends a reservation that was granted nothing, or of which it is not known.
func (cs *claims) nothing(c *claim) { cs.end(c, func() {}) }

// settle ends a reservation whose caller has its answer.
func (cs *claims) settle(c *claim, a answer) {
	cs.end(c, func() {
		if a.err == nil && hasGrants(a.reply) {
			c.taken = true
		}
	})
}

// leave ends a reservation whose caller has left. If nobody comes for what it was granted, it goes back.
func (cs *claims) leave(c *claim, a answer) {
	cs.end(c, func() {
		if a.err != nil || !hasGrants(a.reply) || a.reply.Results[0].Replayed || c.taken || cs.byName[c.name] != c {
			return
		}
		if c.left = a.reply.Results[0].Grants; c.timer != nil {
			c.timer.Stop()
		}
		c.timer = time.AfterFunc(repeatPatience, func() { cs.giveBack(c) })
	})
}

// end counts the end of a reservation. The claim is forgotten with the last, unless it has grants for which somebody may come.
func (cs *claims) end(c *claim, how func()) {
	if c == nil {
		return
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c.open--
	how()
	cs.tidy(c)
}

// tidy forgets a claim of which nothing is under way. mu is held.
func (cs *claims) tidy(c *claim) {
	if c.open == 0 && c.returning == nil && (c.taken || c.left == nil) && cs.byName[c.name] == c {
		if c.timer != nil {
			c.timer.Stop()
		}
		delete(cs.byName, c.name)
	}
}

// underway reports whether reservations of a request are on their way.
func (cs *claims) underway(req *fsm.Request) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c := cs.byName[nameOf(req)]
	return c != nil && c.open > 0
}

// recall reads what a request was granted. What it reads counts as handed to a caller.
func (cs *claims) recall(q *fsm.RecallQuery, read func() (fsm.Reading, Witness)) (fsm.Reading, Witness) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	r, w := read()
	if c := cs.byName[requestName{caller: q.Caller, id: q.RequestID}]; c != nil && len(r.Jobs) > 0 {
		if c.returning != nil {
			r.Jobs = nil
		} else {
			c.taken = true
			cs.tidy(c)
		}
	}
	return r, w
}

// giveBack proposes the release of what nobody came for, without counting an attempt. Of a release whose outcome is not known it is proposed again:
// the grants' fences make of every further one a refusal that says that they are gone.
func (cs *claims) giveBack(c *claim) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	again := c.returning != nil
	if cs.byName[c.name] != c || !again && (c.taken || c.left == nil) {
		return
	}
	grants := c.left
	if again {
		grants = c.returning
	}
	req := releaseOf(grants)
	pr := &proposal{request: req, encoded: fsm.AppendRequest(nil, req), complete: func(_ Reply, err error) { cs.returned(c, err) }}
	// A release or a repeat is on its way, or there is no room.
	if c.flying || !again && c.open > 0 || cs.shard.admit(req) != nil || cs.shard.proposer.enqueue(pr) != nil {
		c.timer.Reset(repeatPatience)
		return
	}
	if c.flying = true; !again {
		c.returning, c.left = grants, nil
	}
}

// returned takes the end of a release.
func (cs *claims) returned(c *claim, err error) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c.flying = false
	if c.doubted = err != nil && (c.doubted || errors.Is(err, ErrUnknownOutcome)); c.doubted {
		if cs.byName[c.name] == c {
			c.timer.Reset(repeatPatience)
		}
		return
	}
	if c.returning = nil; err != nil {
		cs.shard.note("releasing jobs whose caller had left; their leases will lapse", err)
	}
	if c.left != nil && !c.taken && cs.byName[c.name] == c { // a repeat was granted something meanwhile, and left as well
		c.timer.Reset(repeatPatience)
	}
	cs.tidy(c)
}

// hasGrants reports whether a reply hands out jobs.
func hasGrants(reply Reply) bool { return len(reply.Results) == 1 && len(reply.Results[0].Grants) > 0 }

// releaseOf returns a request that gives grants back.
func releaseOf(grants []fsm.Grant) *fsm.Request {
	req := &fsm.Request{}
	for _, g := range grants {
		ref := fsm.Ref{Queue: g.Queue, Partition: g.Partition, Serial: g.Serial, Fence: g.Fence}
		req.Commands = append(req.Commands, &fsm.Release{Ref: ref})
	}
	return req
}
