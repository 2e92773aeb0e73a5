package longpoll

import (
	"container/heap"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node/admit"
	"github.com/belfrydb/belfry/node/outcome"
	"github.com/belfrydb/belfry/node/propose"
	"github.com/belfrydb/belfry/wakeup"
)

// emptyPause is how long a queue pauses after two reservations came back empty although jobs were
// available; it doubles up to emptyPauseMax. It only bounds the cost of a disagreement between
// counting and granting.
const (
	emptyPause    = 10 * time.Millisecond
	emptyPauseMax = time.Second
)

// waiters holds the parked Reserve calls of one shard: soft state of its leader. Each queue has a
// FIFO list of waiters. One goroutine dispatches jobs to them. It lets as many waiters reserve as
// there are jobs, so a due job costs one log entry whatever the number of waiters. Its one timer is
// set to the first moment at which time alone may make a job due.
type waiters struct {
	cfg    Config
	grants *pendingGrants
	// abandoned receives the answer of a call whose caller has left.
	abandoned func(ctx context.Context, c *pendingGrant, a answer)
	wake      wakeup.Signal

	mu     sync.Mutex
	closed error // refuses all calls; nil while a leadership serves
	queues map[string]*waitQueue
	dirty  []*waitQueue // to be checked by run
	// looking is set while queues are taken out of dirty and their waiters are not chosen yet.
	looking bool
	byName  map[requestName][]*waiter
	// repeats are waiters whose request an earlier attempt may have carried out; see repeatedWaiters.
	repeats []*waiter
	due     waitHeap // by the time of the next check
	count   int
	tenants map[string]int // the number of waiters of each tenant; see propose.TenantOf
}

// waitQueue holds the waiters of one queue.
type waitQueue struct {
	name       string
	head, tail *waitNode
	size       int
	// reserving is the number of jobs that reservations in flight may take from this queue.
	reserving uint64
	dirty     bool
	next      fsm.Time // time of the next check; 0 for none
	heapIndex int      // in waiters.due; -1 if it is not there
	// withheld says that at the last check there were jobs that nothing may reserve, opened when that
	// last ended while calls waited.
	withheld bool
	opened   fsm.Time
	// emptyCount counts the reservations that came back empty since the last pause, pauses the pauses
	// since the last grant.
	emptyCount, pauses int
}

// requestName identifies a request: two attempts at it have the same name.
type requestName struct{ caller, id string }

// nameOf returns the name of a request. It identifies the request only if the id is not empty.
func nameOf(req *fsm.Request) requestName { return requestName{caller: req.Caller, id: req.ID} }

// waitNode is a waiter's node in the list of one queue.
type waitNode struct {
	waiter     *waiter
	queue      *waitQueue
	prev, next *waitNode
}

// waiterState is the state of a waiter. It is guarded by waiters.mu.
type waiterState uint8

const (
	parked waiterState = iota
	// reserving: its reservation is in flight. It keeps its nodes, since the reservation may come back
	// empty.
	reserving
	// abandoned: as reserving, but the caller has left; see Calls.releaseAbandoned.
	abandoned
	answered
)

// waiter is one parked call.
type waiter struct {
	request      *fsm.Request
	reserve      *fsm.Reserve
	came         fsm.Time
	nodes        []waitNode
	state        waiterState
	last         propose.Reply // of the last reservation that came back empty
	done         chan answer
	pendingGrant *pendingGrant // of the reservation that was answered
}

// newWaiters returns waiters that refuse all calls until open.
func newWaiters(cfg Config, grants *pendingGrants,
	abandoned func(ctx context.Context, c *pendingGrant, a answer)) *waiters {
	return &waiters{
		cfg: cfg, grants: grants, abandoned: abandoned, wake: wakeup.New(), closed: outcome.ErrNoLeader,
		queues: map[string]*waitQueue{}, byName: map[requestName][]*waiter{}, tenants: map[string]int{},
	}
}

// open accepts calls.
func (ws *waiters) open() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.closed = nil
}

// close fails every parked call, and every later one, with err.
func (ws *waiters) close(err error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.closed = err
	ws.answerParked(func(*waiter) answer { return answer{err: err} })
}

// drain answers every parked call as if its wait were over, and refuses later ones.
func (ws *waiters) drain() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.closed = outcome.ErrShuttingDown
	ws.answerParked(func(w *waiter) answer { return answer{reply: w.empty()} })
}

// answerParked answers every parked call. mu is held.
func (ws *waiters) answerParked(with func(*waiter) answer) {
	for _, q := range ws.queues {
		for n := q.head; n != nil; {
			w := n.waiter
			n = n.next
			if w.state == parked {
				for n != nil && n.waiter == w { // a queue named twice
					n = n.next
				}
				ws.complete(w, with(w))
			}
		}
	}
}

// size returns the number of waiting calls.
func (ws *waiters) size() int {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return ws.count
}

// waiting calls each with each queue for which calls wait, and their number.
func (ws *waiters) waiting(each func(queue string, calls int)) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for name, q := range ws.queues {
		each(name, q.size)
	}
}

// waitingFor returns the number of calls that wait for a queue.
func (ws *waiters) waitingFor(queue string) int {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if q := ws.queues[queue]; q != nil {
		return q.size
	}
	return 0
}

// wait parks a Reserve until it is granted jobs, its wait is over or ctx ends.
func (ws *waiters) wait(ctx context.Context, req *fsm.Request, wait Wait) (propose.Reply, error) {
	w := &waiter{
		request: req, reserve: req.Commands[0].(*fsm.Reserve), came: ws.cfg.Clock.Now(), done: make(chan answer, 1),
	}
	if err := ws.add(w); err != nil {
		return propose.Reply{}, err
	}
	timer := time.NewTimer(wait.For)
	defer timer.Stop()
	stop := wait.Stop
	for {
		select {
		case a := <-w.done:
			ws.grants.noteDelivered(w.pendingGrant, a)
			return a.reply, a.err
		case <-timer.C:
			ws.timeOut(w) // if its reservation is in flight, the outcome follows soon
		case <-stop:
			ws.timeOut(w)
			stop = nil // it stays closed
		case <-ctx.Done():
			return ws.abandon(ctx, w)
		}
	}
}

// add appends a waiter to the lists of its queues.
func (ws *waiters) add(w *waiter) error {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.closed != nil {
		return ws.closed
	}
	tenant, most := propose.TenantOf(w.request), ws.cfg.WaitersMax
	if ws.count >= most && (ws.tenants[tenant] >= most/propose.ReservedShare || ws.count >= 2*most) {
		return fmt.Errorf("%w: %d calls are waiting", outcome.ErrOverloaded, ws.count)
	}
	w.nodes = make([]waitNode, len(w.reserve.Queues))
	for i, name := range w.reserve.Queues {
		q := ws.queues[name]
		if q == nil {
			q = &waitQueue{name: name, heapIndex: -1}
			ws.queues[name] = q
		}
		n := &w.nodes[i]
		*n = waitNode{waiter: w, queue: q, prev: q.tail}
		if q.tail == nil {
			q.head = n
		} else {
			q.tail.next = n
		}
		q.tail = n
		q.size++
		ws.mark(q)
	}
	ws.count++
	ws.tenants[tenant]++
	if name := nameOf(w.request); name.id != "" {
		ws.byName[name] = append(ws.byName[name], w)
		ws.repeats = append(ws.repeats, w) // an earlier attempt may have been applied since the caller looked
	}
	return nil
}

// timeOut ends the wait of w. If its reservation is in flight, the outcome of that ends the wait.
func (ws *waiters) timeOut(w *waiter) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	switch w.state {
	case parked:
		ws.complete(w, answer{reply: w.empty()})
	case reserving:
		ws.unlink(w) // it reserves no more
	case abandoned, answered:
	}
}

// abandon is timeOut for a caller that takes no answer.
func (ws *waiters) abandon(ctx context.Context, w *waiter) (propose.Reply, error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	switch w.state {
	case parked:
		ws.unlink(w)
		w.state = answered
		return propose.Reply{}, outcome.Canceled(ctx)
	case reserving:
		ws.unlink(w)
		w.state = abandoned
	case answered: // at the same moment
		ws.abandoned(context.WithoutCancel(ctx), w.pendingGrant, <-w.done)
	case abandoned:
	}
	return propose.Reply{}, fmt.Errorf("%w: the call ended while jobs were being reserved: %w", outcome.ErrUnknownOutcome,
		context.Cause(ctx))
}

// complete answers a waiter. mu is held.
func (ws *waiters) complete(w *waiter, a answer) {
	ws.unlink(w)
	w.state = answered
	w.done <- a
}

// unlink removes a waiter from its lists. It is idempotent. mu is held.
func (ws *waiters) unlink(w *waiter) {
	if w.nodes == nil {
		return
	}
	for i := range w.nodes {
		n := &w.nodes[i]
		q := n.queue
		q.size--
		if n.prev == nil {
			q.head = n.next
		} else {
			n.prev.next = n.next
		}
		if n.next == nil {
			q.tail = n.prev
		} else {
			n.next.prev = n.prev
		}
		ws.forgetIfEmpty(q)
	}
	w.nodes = nil
	ws.count--
	tenant := propose.TenantOf(w.request)
	if ws.tenants[tenant]--; ws.tenants[tenant] == 0 {
		delete(ws.tenants, tenant)
	}
	if name := nameOf(w.request); name.id != "" {
		if rest := slices.DeleteFunc(ws.byName[name], func(other *waiter) bool { return other == w }); len(rest) > 0 {
			ws.byName[name] = rest
		} else {
			delete(ws.byName, name)
		}
	}
}

// forgetIfEmpty removes a queue without waiters. mu is held.
func (ws *waiters) forgetIfEmpty(q *waitQueue) {
	if q.head != nil || q.reserving > 0 || q.dirty || ws.queues[q.name] != q {
		return
	}
	ws.schedule(q, 0)
	delete(ws.queues, q.name)
}

// mark makes run check a queue. mu is held.
func (ws *waiters) mark(q *waitQueue) {
	if q.dirty {
		return
	}
	q.dirty = true
	ws.dirty = append(ws.dirty, q)
	ws.wake.Send()
}

// schedule sets the time of the next check of a queue. mu is held.
func (ws *waiters) schedule(q *waitQueue, at fsm.Time) {
	q.next = at
	switch {
	case at == 0 && q.heapIndex >= 0:
		heap.Remove(&ws.due, q.heapIndex)
	case at != 0 && q.heapIndex >= 0:
		heap.Fix(&ws.due, q.heapIndex)
	case at != 0:
		heap.Push(&ws.due, q)
	}
}

// entryApplied makes run check the queues that an applied entry touched.
func (ws *waiters) entryApplied(batch []*propose.Proposal) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if len(ws.queues) == 0 {
		return
	}
	last := ""
	for _, pr := range batch {
		ws.markRepeats(nameOf(pr.Request))
		for _, c := range pr.Request.Commands {
			// The end of a restore opens all queues. An Expire may have freed a key.
			if c.Kind() == fsm.KindImport || c.Kind() == fsm.KindExpire {
				ws.markAll()
			}
			name := admit.Freed(c)
			if name == "" || name == last {
				continue
			}
			last = name
			if q := ws.queues[name]; q != nil {
				ws.mark(q)
			}
		}
	}
}

// recheckAll is entryApplied for an entry of unknown content.
func (ws *waiters) recheckAll() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.markAll()
	for name := range ws.byName {
		ws.markRepeats(name)
	}
}

// markAll makes run check every queue. mu is held.
func (ws *waiters) markAll() {
	for _, q := range ws.queues {
		ws.mark(q)
	}
}

// markRepeats makes run check whether an earlier attempt at a request has grants for its waiters.
// mu is held.
func (ws *waiters) markRepeats(name requestName) {
	if name.id == "" || len(ws.byName[name]) == 0 {
		return
	}
	ws.repeats = append(ws.repeats, ws.byName[name]...)
	ws.wake.Send()
}

// waitHeap orders queues by next.
type waitHeap []*waitQueue

// Len implements heap.Interface.
func (h waitHeap) Len() int { return len(h) }

// Less implements heap.Interface.
func (h waitHeap) Less(i, j int) bool { return h[i].next < h[j].next }

// Swap implements heap.Interface.
func (h waitHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].heapIndex, h[j].heapIndex = i, j
}

// Push implements heap.Interface.
func (h *waitHeap) Push(x any) {
	q := x.(*waitQueue)
	q.heapIndex = len(*h)
	*h = append(*h, q)
}

// Pop implements heap.Interface.
func (h *waitHeap) Pop() any {
	old := *h
	q := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	q.heapIndex = -1
	return q
}

// empty is the answer to a waiter without grants.
func (w *waiter) empty() propose.Reply {
	if w.last.Results != nil {
		return w.last
	}
	return propose.Reply{Results: make([]fsm.Result, 1)}
}
