package node

import (
	"container/heap"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/belfrydb/belfry/fsm"
)

// fruitlessPause is how long a queue rests whose reservations came back empty twice although jobs were to be had; it
// doubles up to fruitlessPauseMax. It only bounds what a disagreement between counting and granting could cost.
const (
	fruitlessPause    = 10 * time.Millisecond
	fruitlessPauseMax = time.Second
	// scarcePause is how long a queue rests because the disk is nearly full, or because memory is and enough jobs are reserved.
	scarcePause = time.Second
	// quotaPause is how long a queue rests whose namespace may have no more jobs in flight.
	quotaPause = 50 * time.Millisecond
)

// waiters are the parked Reserve calls of one shard: soft state of its leader. Each queue has its waiters in the order of
// their arrival. One goroutine with one timer, set to the first moment at which time alone may bring a job, hands out:
// it lets as many waiters reserve as there are jobs, so that a job due costs one log entry whatever the number of waiters.
type waiters struct {
	shard *shard
	most  int
	// scarce reports whether no reservation may be logged: the disk is nearly full, or the voters are too few.
	scarce func() bool
	wake   chan struct{}

	mu     sync.Mutex
	closed error // why nobody may wait; nil while a leadership serves
	queues map[string]*waitQueue
	dirty  []*waitQueue // to be looked at
	// looking tells that queues were taken out of dirty and it is not decided yet who may reserve from them.
	looking bool
	named   map[requestName][]*waiter
	// repeats are waiters whose request may have been carried out already by an earlier attempt; see recalled.
	repeats []*waiter
	due     waitHeap // by the time at which to look again
	count   int
	owners  map[string]int // how many of them are whose; see lines
}

// waitQueue is one queue's waiters.
type waitQueue struct {
	name       string
	head, tail *waitNode
	size       int
	// asking is the number of jobs that reservations under way on behalf of this queue may take.
	asking uint64
	dirty  bool
	next   fsm.Time // when to look again; 0 for not before something happens
	place  int      // in the heap, -1 if it is not there
	// withheld tells that there were jobs at the last look that nobody may have, opened when that last ended while somebody waited.
	withheld bool
	opened   fsm.Time
	// fruitless counts the reservations that came back empty since the last rest, pauses the rests, since one was granted something.
	fruitless, pauses int
}

// requestName is what makes two requests attempts at the same one.
type requestName struct{ caller, id string }

// nameOf returns the name of a request. It counts only if the id is not empty.
func nameOf(req *fsm.Request) requestName { return requestName{caller: req.Caller, id: req.ID} }

// waitNode is a waiter's place in one queue's line.
type waitNode struct {
	waiter     *waiter
	queue      *waitQueue
	prev, next *waitNode
}

// waiterState is where a waiter is. It is guarded by waiters.mu.
type waiterState uint8

const (
	parked waiterState = iota
	// asking: its reservation is on the way. It keeps its places, since it may come back empty.
	asking
	// abandoned: as asking, but the caller has left; see giveBack for what is granted.
	abandoned
	answered
)

// waiter is one parked call.
type waiter struct {
	request *fsm.Request
	reserve *fsm.Reserve
	came    fsm.Time
	nodes   []waitNode
	state   waiterState
	last    Reply // of the last reservation that came back empty
	done    chan answer
	claim   *claim // of the reservation that was answered
}

// newWaiters returns waiters that refuse everybody until open.
func newWaiters(s *shard, most int) *waiters {
	return &waiters{
		shard: s, most: most, scarce: func() bool { return false }, wake: make(chan struct{}, 1), closed: ErrNoLeader,
		queues: map[string]*waitQueue{}, named: map[requestName][]*waiter{}, owners: map[string]int{},
	}
}

// open lets callers wait.
func (ws *waiters) open() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.closed = nil
}

// close answers all who are parked, and refuses who comes, with err.
func (ws *waiters) close(err error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.closed = err
	ws.sendAway(func(*waiter) answer { return answer{err: err} })
}

// drain answers all who are parked as if their time were over, and refuses who comes.
func (ws *waiters) drain() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.closed = ErrShuttingDown
	ws.sendAway(func(w *waiter) answer { return answer{reply: w.empty()} })
}

// sendAway answers all who are parked. mu is held.
func (ws *waiters) sendAway(with func(*waiter) answer) {
	for _, q := range ws.queues {
		for n := q.head; n != nil; {
			w := n.waiter
			n = n.next
			if w.state == parked {
				for n != nil && n.waiter == w { // a queue named twice
					n = n.next
				}
				ws.finish(w, with(w))
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

// wait parks a Reserve until it is granted something, the wait is over or ctx ends.
func (ws *waiters) wait(ctx context.Context, req *fsm.Request, wait Wait) (Reply, error) {
	w := &waiter{request: req, reserve: req.Commands[0].(*fsm.Reserve), came: ws.shard.clock.now(), done: make(chan answer, 1)}
	if err := ws.enter(w); err != nil {
		return Reply{}, err
	}
	timer := time.NewTimer(wait.For)
	defer timer.Stop()
	stop := wait.Stop
	for {
		select {
		case a := <-w.done:
			ws.shard.claims.settle(w.claim, a)
			return a.reply, a.err
		case <-timer.C:
			ws.timeOut(w) // if its reservation is on the way, the outcome will be here soon
		case <-stop:
			ws.timeOut(w)
			stop = nil // it stays closed
		case <-ctx.Done():
			return ws.leave(ctx, w)
		}
	}
}

// enter adds a waiter at the end of its queues' lines.
func (ws *waiters) enter(w *waiter) error {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.closed != nil {
		return ws.closed
	}
	owner := ownerOf(w.request)
	if ws.count >= ws.most && (ws.owners[owner] >= ws.most/lineRoom || ws.count >= 2*ws.most) {
		return fmt.Errorf("%w: %d calls are waiting", ErrOverloaded, ws.count)
	}
	w.nodes = make([]waitNode, len(w.reserve.Queues))
	for i, name := range w.reserve.Queues {
		q := ws.queues[name]
		if q == nil {
			q = &waitQueue{name: name, place: -1}
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
	ws.owners[owner]++
	if name := nameOf(w.request); name.id != "" {
		ws.named[name] = append(ws.named[name], w)
		ws.repeats = append(ws.repeats, w) // an earlier attempt may have been applied since the caller looked
	}
	return nil
}

// timeOut ends the wait of w, unless its reservation is on the way: then the next answer, whatever it is, ends it.
func (ws *waiters) timeOut(w *waiter) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	switch w.state {
	case parked:
		ws.finish(w, answer{reply: w.empty()})
	case asking:
		ws.unlink(w) // it asks no more
	case abandoned, answered:
	}
}

// leave is timeOut for a caller who takes nothing any more.
func (ws *waiters) leave(ctx context.Context, w *waiter) (Reply, error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	switch w.state {
	case parked:
		ws.unlink(w)
		w.state = answered
		return Reply{}, canceled(ctx)
	case asking:
		ws.unlink(w)
		w.state = abandoned
	case answered: // at the same moment
		ws.shard.giveBack(context.WithoutCancel(ctx), w.claim, <-w.done)
	case abandoned:
	}
	return Reply{}, fmt.Errorf("%w: the call ended while jobs were being reserved: %w", ErrUnknownOutcome, context.Cause(ctx))
}

// finish answers a waiter. mu is held.
func (ws *waiters) finish(w *waiter, a answer) {
	ws.unlink(w)
	w.state = answered
	w.done <- a
}

// unlink takes a waiter out of its lines. It may be called again. mu is held.
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
		ws.tidy(q)
	}
	w.nodes = nil
	ws.count--
	owner := ownerOf(w.request)
	if ws.owners[owner]--; ws.owners[owner] == 0 {
		delete(ws.owners, owner)
	}
	if name := nameOf(w.request); name.id != "" {
		if rest := slices.DeleteFunc(ws.named[name], func(other *waiter) bool { return other == w }); len(rest) > 0 {
			ws.named[name] = rest
		} else {
			delete(ws.named, name)
		}
	}
}

// tidy forgets a queue that nobody waits for. mu is held.
func (ws *waiters) tidy(q *waitQueue) {
	if q.head != nil || q.asking > 0 || q.dirty || ws.queues[q.name] != q {
		return
	}
	ws.schedule(q, 0)
	delete(ws.queues, q.name)
}

// mark has a queue looked at. mu is held.
func (ws *waiters) mark(q *waitQueue) {
	if q.dirty {
		return
	}
	q.dirty = true
	ws.dirty = append(ws.dirty, q)
	ws.wakeUp()
}

// wakeUp has run look at what there is to do.
func (ws *waiters) wakeUp() {
	select {
	case ws.wake <- struct{}{}:
	default:
	}
}

// schedule sets when to look at a queue again. mu is held.
func (ws *waiters) schedule(q *waitQueue, at fsm.Time) {
	q.next = at
	switch {
	case at == 0 && q.place >= 0:
		heap.Remove(&ws.due, q.place)
	case at != 0 && q.place >= 0:
		heap.Fix(&ws.due, q.place)
	case at != 0:
		heap.Push(&ws.due, q)
	}
}

// touched is told the proposals of an entry that was applied.
func (ws *waiters) touched(batch []*proposal) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if len(ws.queues) == 0 {
		return
	}
	last := ""
	for _, pr := range batch {
		ws.markRepeats(nameOf(pr.request))
		for _, c := range pr.request.Commands {
			if c.Kind() == fsm.KindImport { // the end of a restore lets all queues go
				ws.markAll()
			}
			name := freed(c)
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

// touchedAll is touched for an entry of which nothing is known any more.
func (ws *waiters) touchedAll() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.markAll()
	for name := range ws.named {
		ws.markRepeats(name)
	}
}

// markAll has every queue looked at. mu is held.
func (ws *waiters) markAll() {
	for _, q := range ws.queues {
		ws.mark(q)
	}
}

// markRepeats has it looked at whether the waiters of a request were granted something by an earlier attempt. mu is held.
func (ws *waiters) markRepeats(name requestName) {
	if name.id == "" || len(ws.named[name]) == 0 {
		return
	}
	ws.repeats = append(ws.repeats, ws.named[name]...)
	ws.wakeUp()
}

// freed returns the queue in which a command may have made a job reservable other than by time; empty if there is none.
func freed(c fsm.Command) string {
	switch c := c.(type) {
	case *fsm.Put:
		return c.Queue
	case *fsm.Ack: // frees a place below maxInFlight, as do some of the others
		return c.Queue
	case *fsm.Nack:
		return c.Queue
	case *fsm.Release:
		return c.Queue
	case *fsm.Cancel:
		return c.Queue
	case *fsm.Reschedule:
		return c.Queue
	case *fsm.Redrive:
		return c.Queue
	case *fsm.Purge:
		return c.Queue
	case *fsm.Configure:
		return c.Queue
	default:
		return ""
	}
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
	h[i].place, h[j].place = i, j
}

// Push implements heap.Interface.
func (h *waitHeap) Push(x any) {
	q := x.(*waitQueue)
	q.place = len(*h)
	*h = append(*h, q)
}

// Pop implements heap.Interface.
func (h *waitHeap) Pop() any {
	old := *h
	q := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	q.place = -1
	return q
}

// empty is the answer to a waiter who gets nothing.
func (w *waiter) empty() Reply {
	if w.last.Results != nil {
		return w.last
	}
	return Reply{Results: make([]fsm.Result, 1)}
}
