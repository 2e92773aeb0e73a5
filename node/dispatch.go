package node

import (
	"context"
	"slices"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/fsm/machine"
	"github.com/belfrydb/belfry/node/admit"
	"github.com/belfrydb/belfry/node/clock"
	"github.com/belfrydb/belfry/node/propose"
)

// queueView is what the dispatcher reads of a queue.
type queueView struct {
	queue *waitQueue
	// reserving is waitQueue.reserving from before the machine was read. A reservation that is applied between the two
	// reads counts twice, never zero times, and its answer makes run check the queue again.
	reserving uint64
	available uint64
	withheld  bool
	next      fsm.Time
}

// reserveAttempt is the reservation of a chosen waiter: up to max jobs, for which queue has jobs.
type reserveAttempt struct {
	waiter       *waiter
	request      *fsm.Request // the waiter's, or what the lease budget allows of it
	queue        *waitQueue
	max          uint64
	pendingGrant *pendingGrant // of its proposal
	reservation  *admit.Reservation
}

// run dispatches jobs to waiters until ctx ends.
func (ws *waiters) run(ctx context.Context) {
	timer := time.NewTimer(never)
	defer timer.Stop()
	for {
		for _, a := range ws.repeatedWaiters() {
			ws.propose(ctx, a)
		}
		for _, a := range ws.chooseWaiters(ws.readQueues()) {
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

// untilDue returns the time until the next scheduled check.
func (ws *waiters) untilDue() time.Duration {
	now := ws.clock.Now()
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if len(ws.dirty) > 0 {
		return 0
	}
	if len(ws.due) == 0 {
		return never
	}
	return min(max(0, ws.due[0].next.Sub(now)), clock.Recheck)
}

// readQueues reads the dirty queues from the machine.
func (ws *waiters) readQueues() []queueView {
	now := ws.clock.Now()
	ws.mu.Lock()
	for len(ws.due) > 0 && ws.due[0].next <= now {
		q := ws.due[0]
		ws.schedule(q, 0)
		ws.mark(q)
	}
	looks := make([]queueView, 0, len(ws.dirty))
	for _, q := range ws.dirty {
		q.dirty = false
		if q.head == nil {
			ws.forgetIfEmpty(q)
			continue
		}
		looks = append(looks, queueView{queue: q, reserving: q.reserving})
	}
	clear(ws.dirty)
	ws.dirty = ws.dirty[:0]
	ws.looking = len(looks) > 0
	ws.mu.Unlock()
	if len(looks) == 0 {
		return nil
	}
	ws.view(func(m *machine.Machine, now fsm.Time) {
		for i := range looks {
			looks[i].available, looks[i].next = m.Available(looks[i].queue.name, now)
			looks[i].withheld = looks[i].available == 0 && m.Withheld(looks[i].queue.name, now)
		}
	})
	return looks
}

// repeatedWaiters returns the waiters whose request has grants from an earlier attempt that was
// applied while they wait. They need no further job, only the answer.
func (ws *waiters) repeatedWaiters() []reserveAttempt {
	ws.mu.Lock()
	repeats := ws.repeats
	ws.repeats = nil
	ws.mu.Unlock()
	var asks []reserveAttempt
	for _, w := range repeats {
		if !ws.view.Remembers(w.request) {
			continue
		}
		ws.mu.Lock()
		if w.state == parked && w.nodes != nil {
			w.state = reserving
			asks = append(asks, reserveAttempt{waiter: w, request: w.request, queue: w.nodes[0].queue})
		}
		ws.mu.Unlock()
	}
	return asks
}

// chooseWaiters returns the waiters for which there are jobs, in FIFO order.
func (ws *waiters) chooseWaiters(looks []queueView) []reserveAttempt {
	if len(looks) == 0 {
		return nil
	}
	now := ws.clock.Now()
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.looking = false
	scarce := ws.admission.ParkedPause()
	var asks []reserveAttempt
	for _, lk := range looks {
		q := lk.queue
		if ws.queues[q.name] != q {
			continue // it has no waiters any more
		}
		if q.withheld && !lk.withheld {
			q.opened = now
		}
		q.withheld = lk.withheld
		if scarce > 0 { // no reservation may be logged: the calls wait on
			ws.schedule(q, now.Add(scarce))
			continue
		}
		if q.emptyCount >= 2 && lk.available > 0 {
			// All came back empty although jobs were available: pause, then try again.
			ws.schedule(q, now.Add(min(emptyPause<<q.pauses, emptyPauseMax)))
			q.pauses = min(q.pauses+1, 10)
			q.emptyCount = 0
			continue
		}
		ws.schedule(q, lk.next)
		free := lk.available - min(lk.available, lk.reserving)
		asks = ws.admitWaiters(asks, q, free, now)
	}
	return asks
}

// admitWaiters chooses the waiters of a queue that has free jobs for them. mu is held.
func (ws *waiters) admitWaiters(asks []reserveAttempt, q *waitQueue, free uint64, now fsm.Time) []reserveAttempt {
	for n := q.head; n != nil && free > 0; n = n.next {
		if n.waiter.state != parked {
			continue
		}
		a, refused := ws.admission.AdmitParked(n.waiter.request, q.name)
		if refused.Pause > 0 {
			ws.recheckBy(q, now.Add(refused.Pause))
			if refused.LeasesFull {
				ws.admission.Quotas.NoteRefusedLeases(q.name, n.unmet(free))
			}
			if refused.Ends {
				break
			}
			continue
		}
		want := min(n.wants(), free)
		n.waiter.state = reserving
		q.reserving += want
		free -= want
		asks = append(asks, reserveAttempt{waiter: n.waiter, request: a.Request, queue: q, max: want,
			reservation: a.Reservation})
	}
	return asks
}

// recheckBy schedules the next check of a queue for that time at the latest. mu is held.
func (ws *waiters) recheckBy(q *waitQueue, at fsm.Time) {
	if q.next == 0 || q.next > at {
		ws.schedule(q, at)
	}
}

// wants returns the most jobs that a waiter takes.
func (n *waitNode) wants() uint64 { return uint64(max(n.waiter.reserve.Max, 1)) }

// unmet returns how many of the free jobs this waiter and those after it would take. mu is held.
func (n *waitNode) unmet(free uint64) (sum uint64) {
	for ; n != nil && sum < free; n = n.next {
		if n.waiter.state == parked {
			sum += n.wants()
		}
	}
	return min(sum, free)
}

// propose proposes the reservation of a chosen waiter.
func (ws *waiters) propose(ctx context.Context, a reserveAttempt) {
	pr := &grantProposal{Proposal: propose.Proposal{
		Reservation: a.reservation, Request: a.request, Encoded: codec.AppendRequest(nil, a.request), Format: ws.format(),
		Came: max(a.waiter.came, a.queue.opened),
	}}
	pr.Complete = func(reply propose.Reply, err error) {
		a.pendingGrant = pr.pendingGrant
		ws.reserveDone(ctx, a, reply, err)
	}
	err := ws.grants.enqueue(pr)
	if err != nil {
		a.reservation.Release()
		ws.stats.failed(err, 1)
		ws.reserveDone(ctx, a, propose.Reply{}, err)
	}
}

// reserveDone records the outcome of a waiter's reservation. ctx ends with the leadership.
func (ws *waiters) reserveDone(ctx context.Context, a reserveAttempt, reply propose.Reply, err error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w, q := a.waiter, a.queue
	q.reserving -= a.max
	ws.mark(q)
	empty := err == nil && reply.Results[0].Code == fsm.OK && len(reply.Results[0].Grants) == 0
	if empty {
		q.emptyCount++
	} else if err == nil {
		q.emptyCount, q.pauses = 0, 0
	}
	switch {
	case w.state == abandoned:
		ws.abandoned(ctx, a.pendingGrant, answer{reply: reply, err: err})
	case empty && w.nodes != nil && ws.closed == nil:
		w.state, w.last = parked, reply
		ws.grants.noteNoGrants(a.pendingGrant)
		for i := range w.nodes { // while it reserved from one queue, the others passed it over
			ws.mark(w.nodes[i].queue)
		}
	default:
		w.pendingGrant = a.pendingGrant
		ws.complete(w, answer{reply: reply, err: err})
	}
}

// releaseAbandoned releases the grants of a request whose caller has left, without counting an attempt: at once if the
// request has no id, else if no repeat collects them.
func (s *shard) releaseAbandoned(ctx context.Context, c *pendingGrant, a answer) {
	if c != nil {
		s.pendingGrants.noteAbandoned(c, a)
		return
	}
	if a.err != nil || !hasGrants(a.reply) {
		return
	}
	req := releaseOf(a.reply.Results[0].Grants)
	s.spawn(func() { // if the shard is being stopped, the leases expire
		ctx, cancel := context.WithTimeout(ctx, s.cfg.ProposeTimeout)
		defer cancel()
		if _, err := s.do(ctx, req); err != nil {
			s.note("releasing jobs whose caller had left; their leases will expire", err)
		}
	})
}

// reserve carries out a Reserve. It parks the call if there is no job and wait allows it.
func (s *shard) reserve(ctx context.Context, req *fsm.Request, wait Wait) (propose.Reply, error) {
	if _, err := s.leader(); err != nil {
		return propose.Reply{}, err
	}
	if req.ID != "" && s.machineView().Remembers(req) { // the answer to an earlier attempt is known
		return s.do(ctx, req)
	}
	if err := s.admission.Check(req); err != nil {
		s.stats.failed(err, 1)
		return propose.Reply{}, err
	}
	switch {
	case req.ID != "" && (wait.For <= 0 || wait.stopped()) && s.pendingGrants.isInProgress(req): // or soon
		return s.do(ctx, req)
	case wait.stopped():
		return propose.Reply{Results: make([]fsm.Result, 1)}, nil
	case wait.For > 0:
		return s.park(ctx, req, wait)
	case s.hasFreeJobs(req.Commands[0].(*fsm.Reserve).Queues):
		return s.reserveNow(ctx, req)
	default:
		return propose.Reply{Results: make([]fsm.Result, 1)}, nil
	}
}

// park parks a Reserve.
func (s *shard) park(ctx context.Context, req *fsm.Request, wait Wait) (propose.Reply, error) {
	reply, err := s.waiters.wait(ctx, req, wait)
	if err != nil {
		err = s.refusal(err)
	}
	return reply, err
}

// emptyEntryWait is how long a call without a wait is parked if other calls of its entry took all jobs that the entry
// made ready.
const emptyEntryWait = 250 * time.Millisecond

// reserveNow reserves without waiting. One entry makes at most fsm.StepMax due jobs of a queue ready. If many callers
// meet a large backlog, the last ones of an entry would get nothing although thousands of jobs are due. They are parked
// briefly, for the next entries.
func (s *shard) reserveNow(ctx context.Context, req *fsm.Request) (propose.Reply, error) {
	reply, err := s.do(ctx, req)
	if err != nil || reply.Results[0].Code != fsm.OK || hasGrants(reply) ||
		!s.hasJobs(req.Commands[0].(*fsm.Reserve).Queues) {
		return reply, err
	}
	return s.parkBriefly(ctx, req, reply)
}

// parkBriefly parks a call for a moment after an entry that granted nothing, of which first is the answer. It returns
// first if no reservation of the call is logged meanwhile.
func (s *shard) parkBriefly(ctx context.Context, req *fsm.Request, first propose.Reply) (propose.Reply, error) {
	wait := emptyEntryWait
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline)/2) // the rest is for the answer
	}
	reply, err := s.park(ctx, req, Wait{For: wait})
	if err == nil && reply.Witness == (propose.Witness{}) {
		return first, nil
	}
	return reply, err
}

// hasJobs reports whether one of the queues has a reservable job, even one that a waiter is about to get.
func (s *shard) hasJobs(queues []string) bool {
	return slices.ContainsFunc(s.machineView().Available(queues), func(jobs uint64) bool { return jobs > 0 })
}

// hasFreeJobs reports whether one of the queues has a reservable job that no waiter is about to get.
func (s *shard) hasFreeJobs(queues []string) bool {
	// read first: a job that is granted meanwhile counts twice, never zero times
	reserving := s.waiters.reservingJobs(queues)
	for i, jobs := range s.machineView().Available(queues) {
		if jobs > reserving[i] {
			return true
		}
	}
	return false
}

// reservingJobs returns how many jobs of each queue the waiters are about to get.
func (ws *waiters) reservingJobs(queues []string) []uint64 {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	asking := make([]uint64, len(queues))
	for i, name := range queues {
		if q := ws.queues[name]; q != nil {
			asking[i] = q.reserving
		}
	}
	return asking
}
