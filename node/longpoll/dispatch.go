package longpoll

import (
	"context"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/fsm/machine"
	"github.com/belfrydb/belfry/node/admit"
	"github.com/belfrydb/belfry/node/clock"
	"github.com/belfrydb/belfry/node/propose"
)

const (
	// never is a wait that always ends by something else.
	never = 365 * 24 * time.Hour
	// settlePoll is the time between two checks of settle whether reservations are in flight.
	settlePoll = time.Millisecond
)

// queueView is what the dispatcher reads of a queue.
type queueView struct {
	queue *waitQueue
	// reserving is waitQueue.reserving from before the machine was read. A reservation that is applied
	// between the two reads counts twice, never zero times, and its answer makes run check the queue
	// again.
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
	now := ws.cfg.Clock.Now()
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
	now := ws.cfg.Clock.Now()
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
	ws.cfg.View(func(m *machine.Machine, now fsm.Time) {
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
		if !ws.cfg.View.Remembers(w.request) {
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
	now := ws.cfg.Clock.Now()
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.looking = false
	scarce := ws.cfg.Admission.ParkedPause()
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
		a, refused := ws.cfg.Admission.AdmitParked(n.waiter.request, q.name)
		if refused.Pause > 0 {
			ws.recheckBy(q, now.Add(refused.Pause))
			if refused.LeasesFull {
				ws.cfg.Admission.Quotas.NoteRefusedLeases(q.name, n.unmet(free))
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
	format := ws.cfg.Format()
	pr := &grantProposal{Proposal: propose.Proposal{
		Reservation: a.reservation, Request: a.request, Encoded: codec.AppendRequestIn(nil, format, a.request),
		Format: format, Came: max(a.waiter.came, a.queue.opened),
	}}
	pr.Complete = func(reply propose.Reply, err error) {
		a.pendingGrant = pr.pendingGrant
		ws.reserveDone(ctx, a, reply, err)
	}
	err := ws.grants.enqueue(pr)
	if err != nil {
		a.reservation.Release()
		ws.cfg.Failed(err, 1)
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

// awaitIdle checks all queues and returns when no reservable job waits to be granted.
func (ws *waiters) awaitIdle(ctx context.Context) error {
	ws.mu.Lock()
	ws.markAll()
	ws.mu.Unlock()
	look := time.NewTicker(settlePoll)
	defer look.Stop()
	for !ws.settled() {
		select {
		case <-look.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// settled reports whether no queue is being checked or has reservations in flight.
func (ws *waiters) settled() bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	busy := ws.closed == nil && (ws.looking || len(ws.dirty) > 0)
	for _, q := range ws.queues {
		busy = busy || q.reserving > 0
	}
	return !busy
}
