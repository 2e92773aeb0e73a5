package node

import (
	"context"
	"time"

	"github.com/belfrydb/belfry/fsm"
)

// look is a queue that the dispatcher looks at, and what it finds.
type look struct {
	queue *waitQueue
	// asking is what was on the way before the machine was read: a reservation that is applied between the two is then
	// counted twice, never not at all, and its answer has the queue looked at again.
	asking    uint64
	available uint64
	withheld  bool
	next      fsm.Time
}

// ask is a waiter who may reserve, on behalf of a queue, up to max jobs.
type ask struct {
	waiter  *waiter
	request *fsm.Request // the waiter's, or what it may reserve of it: see rationed
	queue   *waitQueue
	max     uint64
	claim   *claim // of its reservation; see claims
	taken   *ticket
}

// run hands out jobs until ctx ends.
func (ws *waiters) run(ctx context.Context) {
	timer := time.NewTimer(never)
	defer timer.Stop()
	for {
		for _, a := range ws.recalled() {
			ws.propose(ctx, a)
		}
		for _, a := range ws.choose(ws.inspect()) {
			ws.propose(ctx, a)
		}
		wait := ws.untilDue()
		if wait == 0 && ctx.Err() == nil {
			continue
		}
		timer.Reset(wait)
		select {
		case <-ws.wake:
		case <-timer.C:
		case <-ctx.Done():
			return
		}
	}
}

// untilDue returns for how long nothing needs to be looked at because of time alone.
func (ws *waiters) untilDue() time.Duration {
	now := ws.shard.clock.now()
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if len(ws.dirty) > 0 {
		return 0
	}
	if len(ws.due) == 0 {
		return never
	}
	return min(max(0, ws.due[0].next.Sub(now)), clockRecheck)
}

// inspect reads from the machine what there is in the queues that something happened to.
func (ws *waiters) inspect() []look {
	now := ws.shard.clock.now()
	ws.mu.Lock()
	for len(ws.due) > 0 && ws.due[0].next <= now {
		q := ws.due[0]
		ws.schedule(q, 0)
		ws.mark(q)
	}
	looks := make([]look, 0, len(ws.dirty))
	for _, q := range ws.dirty {
		q.dirty = false
		if q.head == nil {
			ws.tidy(q)
			continue
		}
		looks = append(looks, look{queue: q, asking: q.asking})
	}
	clear(ws.dirty)
	ws.dirty = ws.dirty[:0]
	ws.looking = len(looks) > 0
	ws.mu.Unlock()
	if len(looks) == 0 {
		return nil
	}
	ws.shard.view(func(m *fsm.Machine, now fsm.Time) {
		for i := range looks {
			looks[i].available, looks[i].next = m.Available(looks[i].queue.name, now)
			looks[i].withheld = looks[i].available == 0 && m.Withheld(looks[i].queue.name, now)
		}
	})
	return looks
}

// recalled returns the waiters whose request was granted something by an earlier attempt that was applied while they wait:
// they need no job to be had, only the answer.
func (ws *waiters) recalled() []ask {
	ws.mu.Lock()
	repeats := ws.repeats
	ws.repeats = nil
	ws.mu.Unlock()
	var asks []ask
	for _, w := range repeats {
		if !ws.shard.remembers(w.request) {
			continue
		}
		ws.mu.Lock()
		if w.state == parked && w.nodes != nil {
			w.state = asking
			asks = append(asks, ask{waiter: w, request: w.request, queue: w.nodes[0].queue})
		}
		ws.mu.Unlock()
	}
	return asks
}

// choose returns the waiters, first come first, for whom there are jobs.
func (ws *waiters) choose(looks []look) []ask {
	if len(looks) == 0 {
		return nil
	}
	now := ws.shard.clock.now()
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.looking = false
	scarce := ws.scarce()
	var asks []ask
	for _, lk := range looks {
		q := lk.queue
		if ws.queues[q.name] != q {
			continue // nobody waits any more
		}
		if q.withheld && !lk.withheld {
			q.opened = now
		}
		q.withheld = lk.withheld
		if scarce { // no reservation may be logged: who waits goes on waiting
			ws.schedule(q, now.Add(scarcePause))
			continue
		}
		if q.fruitless >= 2 && lk.available > 0 {
			// All came back empty although there was something: rest, then try again.
			ws.schedule(q, now.Add(min(fruitlessPause<<q.pauses, fruitlessPauseMax)))
			q.pauses = min(q.pauses+1, 10)
			q.fruitless = 0
			continue
		}
		ws.schedule(q, lk.next)
		free := lk.available - min(lk.available, lk.asking)
		asks = ws.letThrough(asks, q, free, now)
	}
	return asks
}

// letThrough chooses those who wait for a queue that has so many jobs for them. mu is held.
func (ws *waiters) letThrough(asks []ask, q *waitQueue, free uint64, now fsm.Time) []ask {
	limits := ws.shard.shares.limits()
	for n := q.head; n != nil && free > 0; n = n.next {
		if n.waiter.state != parked {
			continue
		}
		request, err := ws.shard.rationed(n.waiter.request)
		if err != nil { // until an ack makes room
			ws.lookBy(q, now.Add(scarcePause))
			break
		}
		want := min(n.wants(), free)
		var taken *ticket
		if limits {
			var ok, full bool
			if taken, ok, full = ws.shard.shares.offer(n.waiter.request, q.name); !ok {
				ws.lookBy(q, now.Add(quotaPause))
				if full {
					ws.shard.shares.miss(q.name, n.lack(free))
					break
				}
				continue // it lacks something for another queue that it names as well; who comes after it need not
			}
		}
		n.waiter.state = asking
		q.asking += want
		free -= want
		asks = append(asks, ask{waiter: n.waiter, request: request, queue: q, max: want, taken: taken})
	}
	return asks
}

// lookBy sets that a queue is looked at again at that time at the latest. mu is held.
func (ws *waiters) lookBy(q *waitQueue, at fsm.Time) {
	if q.next == 0 || q.next > at {
		ws.schedule(q, at)
	}
}

// wants returns how many jobs a waiter takes at most.
func (n *waitNode) wants() uint64 { return uint64(max(n.waiter.reserve.Max, 1)) }

// lack returns how many of so many jobs a waiter and those after it would take. mu is held.
func (n *waitNode) lack(free uint64) (sum uint64) {
	for ; n != nil && sum < free; n = n.next {
		if n.waiter.state == parked {
			sum += n.wants()
		}
	}
	return min(sum, free)
}

// propose sends the reservation of a chosen waiter.
func (ws *waiters) propose(ctx context.Context, a ask) {
	pr := &proposal{
		taken: a.taken, request: a.request, encoded: fsm.AppendRequest(nil, a.request), format: ws.shard.node.Format(),
		came: max(a.waiter.came, a.queue.opened),
	}
	pr.complete = func(reply Reply, err error) {
		a.claim = pr.claim
		ws.outcome(ctx, a, reply, err)
	}
	err := ws.shard.claims.enqueue(pr)
	if err != nil {
		a.taken.leave()
		ws.shard.stats.failed(err, 1)
		ws.outcome(ctx, a, Reply{}, err)
	}
}

// outcome takes the end of a waiter's reservation. ctx ends with the leadership.
func (ws *waiters) outcome(ctx context.Context, a ask, reply Reply, err error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w, q := a.waiter, a.queue
	q.asking -= a.max
	ws.mark(q)
	empty := err == nil && reply.Results[0].Code == fsm.OK && len(reply.Results[0].Grants) == 0
	if empty {
		q.fruitless++
	} else if err == nil {
		q.fruitless, q.pauses = 0, 0
	}
	switch {
	case w.state == abandoned:
		ws.shard.giveBack(ctx, a.claim, answer{reply: reply, err: err})
	case empty && w.nodes != nil && ws.closed == nil:
		w.state, w.last = parked, reply
		ws.shard.claims.nothing(a.claim)
		for i := range w.nodes { // while it asked for one queue, others passed it over
			ws.mark(w.nodes[i].queue)
		}
	default:
		w.claim = a.claim
		ws.finish(w, answer{reply: reply, err: err})
	}
}

// giveBack releases what a request was granted after its caller had left, without counting an attempt: at once if it has no id, else
// when no repeat has come for it.
func (s *shard) giveBack(ctx context.Context, c *claim, a answer) {
	if c != nil {
		s.claims.leave(c, a)
		return
	}
	if a.err != nil || !hasGrants(a.reply) {
		return
	}
	req := releaseOf(a.reply.Results[0].Grants)
	s.spawn(func() { // or, if the shard is being stopped, the leases lapse
		ctx, cancel := context.WithTimeout(ctx, s.cfg.ProposeTimeout)
		defer cancel()
		if _, err := s.do(ctx, req); err != nil {
			s.note("releasing jobs whose caller had left; their leases will lapse", err)
		}
	})
}

// reserve lets a request reserve, waiting its turn until the wait is over.
func (s *shard) reserve(ctx context.Context, req *fsm.Request, wait Wait) (Reply, error) {
	if _, err := s.leader(); err != nil {
		return Reply{}, err
	}
	if req.ID != "" && s.remembers(req) { // the answer to an earlier attempt is to be had at once
		return s.do(ctx, req)
	}
	if err := s.admit(req); err != nil {
		s.stats.failed(err, 1)
		return Reply{}, err
	}
	switch {
	case req.ID != "" && (wait.For <= 0 || wait.stopped()) && s.claims.underway(req): // or soon
		return s.do(ctx, req)
	case wait.stopped():
		return Reply{Results: make([]fsm.Result, 1)}, nil
	case wait.For > 0:
		return s.park(ctx, req, wait)
	case s.offers(req.Commands[0].(*fsm.Reserve).Queues):
		return s.reserveNow(ctx, req)
	default:
		return Reply{Results: make([]fsm.Result, 1)}, nil
	}
}

// park lets a request wait.
func (s *shard) park(ctx context.Context, req *fsm.Request, wait Wait) (Reply, error) {
	reply, err := s.waiters.wait(ctx, req, wait)
	if err != nil {
		err = s.refusal(err)
	}
	return reply, err
}

// crowdWait is how long a call that does not wait stands in line when others of its entry took all that the entry moved to the ready jobs.
const crowdWait = 250 * time.Millisecond

// reserveNow reserves without waiting. An entry settles a queue once, by fsm.StepMax jobs; where a large backlog meets many callers, the last of an entry
// would find nothing although thousands of jobs are due. They stand in line for the next entries instead.
func (s *shard) reserveNow(ctx context.Context, req *fsm.Request) (Reply, error) {
	reply, err := s.do(ctx, req)
	if err != nil || reply.Results[0].Code != fsm.OK || hasGrants(reply) || !s.holds(req.Commands[0].(*fsm.Reserve).Queues) {
		return reply, err
	}
	return s.standInLine(ctx, req, reply)
}

// standInLine waits for a moment after an entry that granted nothing, which first tells of. It is told of also if nothing is logged meanwhile.
func (s *shard) standInLine(ctx context.Context, req *fsm.Request, first Reply) (Reply, error) {
	wait := crowdWait
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline)/2) // the rest is for the answer
	}
	reply, err := s.park(ctx, req, Wait{For: wait})
	if err == nil && reply.Witness == (Witness{}) {
		return first, nil
	}
	return reply, err
}

// holds reports whether a job is to be had in one of the queues, even if waiters are about to get it.
func (s *shard) holds(queues []string) (some bool) {
	s.view(func(m *fsm.Machine, now fsm.Time) {
		for _, name := range queues {
			available, _ := m.Available(name, now)
			some = some || available > 0
		}
	})
	return some
}

// remembers reports whether the machine answers a request from memory: with live grants to an earlier attempt, or with the
// refusal of other content under the same id.
func (s *shard) remembers(req *fsm.Request) (remembered bool) {
	s.view(func(m *fsm.Machine, now fsm.Time) {
		grants, code := m.Recall(req, now)
		remembered = len(grants) > 0 || code != fsm.OK
	})
	return remembered
}

// offers reports whether a job is to be had in one of the queues that no waiter is about to get.
func (s *shard) offers(queues []string) (free bool) {
	asking := s.waiters.asking(queues)
	s.view(func(m *fsm.Machine, now fsm.Time) {
		for i, name := range queues {
			available, _ := m.Available(name, now)
			free = free || available > asking[i]
		}
	})
	return free
}

// asking returns how many jobs of each queue waiters are about to get.
func (ws *waiters) asking(queues []string) []uint64 {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	asking := make([]uint64, len(queues))
	for i, name := range queues {
		if q := ws.queues[name]; q != nil {
			asking[i] = q.asking
		}
	}
	return asking
}
