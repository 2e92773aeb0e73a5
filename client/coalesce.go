package client

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A coalescer turns concurrent calls into batches. At most inFlightMax batches are on their way; what arrives meanwhile
// gathers, and leaves as one batch when a slot frees. A batch that must be tried again gives its slot back first, so that one
// shard without a leader does not hold up calls to the others; the number of such batches is bounded by that of callers.
//
// Lock order: batch.mu, then coalescer.mu.
type coalescer[Q, R any] struct {
	client *Client
	newID  func() string
	send   sendFunc[Q, R]
	place  func(req Q) place
	pool   sync.Pool // of *entry[Q, R] that nothing refers to

	mu       sync.Mutex
	pending  []*entry[Q, R]
	tower    tower // for those that come
	inFlight int
	last     wave
	alarm    *time.Timer // rings when calls have been held back for long; nil before there is one
	armed    bool        // the alarm is set
}

// A sendFunc sends one batch once and gives the reply to each entry, in order, or one error for all.
type sendFunc[Q, R any] func(ctx context.Context, ep *endpoint, requestID string, reqs []Q) ([]reply[R], error)

// A reply is what became of one entry of a batch.
type reply[R any] struct {
	res R
	err *Error
}

// An entry is one caller's call.
type entry[Q, R any] struct {
	req   Q
	bytes int
	bell  *bell // rings after answered is set; nil in a batch that somebody made as such; guarded like left, then by batch.mu
	reply reply[R]

	answered atomic.Bool // reply is set, and the entry the caller's again

	left    bool         // the caller is gone; guarded by coalescer.mu until the entry is in a batch
	batch   *batch[Q, R] // nil while the entry is pending; guarded by coalescer.mu
	place   int          // in the batch
	history retrier      // guarded by batch.mu
}

// A batch is a set of calls that share a request id. It is sent again exactly as it was, as the servers demand of a repeat.
type batch[Q, R any] struct {
	cancel  context.CancelFunc // ends the batch's context; called when the last caller has left
	reqs    []Q
	renewed bool // has its second request id, or a later one
	final   bool // gets no other request id

	mu      sync.Mutex
	id      string
	entries []*entry[Q, R] // nil where the caller has its answer or has left
	open    int            // entries that are not nil
	out     bool           // an attempt is on its way
	rings   bells          // of callers that were answered
	history retrier
}

func newCoalescer[Q, R any](c *Client, newID func() string, send sendFunc[Q, R], placed func(req Q) place) *coalescer[Q, R] {
	q := &coalescer[Q, R]{client: c, newID: newID, send: send, place: placed}
	q.pool.New = func() any { return &entry[Q, R]{} }
	return q
}

// do makes one call as part of a batch and waits for its answer. bytes estimates what req adds to a message, from above.
func (q *coalescer[Q, R]) do(ctx context.Context, req Q, bytes int) (R, error) {
	var none R
	if ctx.Err() != nil {
		return none, (&retrier{}).ended(ctx, nothingOut)
	}
	e := q.pool.Get().(*entry[Q, R])
	e.req, e.bytes = req, bytes
	bell := q.add(e)
	if bell == nil {
		return none, closedError()
	}
	for bell != nil {
		select {
		case <-bell.c:
			bell = q.woken(e)
		case <-ctx.Done():
			if err := q.leave(ctx, e); err != nil {
				return none, err
			}
			bell = nil
		}
	}
	reply := e.reply
	*e = entry[Q, R]{}
	q.pool.Put(e)
	if reply.err != nil {
		return none, reply.err
	}
	return reply.res, nil
}

// woken is for a caller whose bell rang. It gives another one if the answer is not there: the bell rang for others.
func (q *coalescer[Q, R]) woken(e *entry[Q, R]) *bell {
	if e.answered.Load() {
		return nil
	}
	q.mu.Lock()
	b := e.batch
	if b == nil {
		defer q.mu.Unlock()
		e.bell = newBell()
		return e.bell
	}
	q.mu.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	if e.answered.Load() {
		return nil
	}
	e.bell = newBell()
	return e.bell
}

// add makes an entry pending, and sees to it that somebody sends it. It gives the bell to wait for, nil if the client is closed.
func (q *coalescer[Q, R]) add(e *entry[Q, R]) *bell {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.client.limits.opens(q.inFlight, len(q.pending)+1, q.last):
		if !q.client.start(q.run) {
			return nil
		}
		q.inFlight++
	case q.inFlight < q.client.limits.InFlight:
		q.arm()
	}
	bell := q.tower.next(q.client.limits.MaxJobs)
	e.bell = bell
	q.pending = append(q.pending, e) // whoever has a slot will take it, if only to say that the client is closed
	return bell
}

// arm has overdue called when the batch that left last has taken long. Called with mu held.
func (q *coalescer[Q, R]) arm() {
	if q.armed {
		return
	}
	q.armed = true
	left := waveMax - time.Since(q.last.left) + 1
	if q.alarm == nil {
		q.alarm = time.AfterFunc(left, q.overdue)
		return
	}
	q.alarm.Reset(left)
}

// overdue sends what was held back for a batch that takes long.
func (q *coalescer[Q, R]) overdue() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.armed = false
	switch {
	case len(q.pending) == 0 || q.inFlight == 0 || q.inFlight >= q.client.limits.InFlight:
	case !q.client.limits.opens(q.inFlight, len(q.pending), q.last):
		q.arm() // another batch left meanwhile
	case q.client.start(q.run):
		q.inFlight++
	}
}

// leave takes a caller out whose context ended, and gives its error; nil if its answer came first.
func (q *coalescer[Q, R]) leave(ctx context.Context, e *entry[Q, R]) *Error {
	q.mu.Lock()
	b := e.batch
	if b == nil {
		e.left = true
		q.mu.Unlock()
		return e.history.ended(ctx, nothingOut)
	}
	q.mu.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	if e.answered.Load() { // else its place is that in the batch as it is now
		return nil
	}
	b.close(e)
	if b.open == 0 {
		b.cancel()
	}
	sent := nothingOut
	if b.out {
		sent = requestOut
	}
	err := e.history.ended(ctx, sent)
	err.RequestID = b.id
	return err
}

// run holds one slot: it sends batches until nothing is pending, or what is pending is left to another slot.
func (q *coalescer[Q, R]) run() {
	turn := uint64(0)
	for {
		q.gather()
		turn = q.client.turns.take(turn, q.crowd())
		ctx, b := q.take(q.client.lifetime())
		if b == nil {
			q.client.turns.take(turn, false)
			return
		}
		if q.exchange(ctx, b) {
			b.cancel()
			continue
		}
		// If the client is closing, the batch's context has ended, and the callers hear of it here.
		if !q.client.start(func() { q.persist(ctx, b) }) {
			q.persist(ctx, b)
		}
	}
}

// gather lets calls join the next batch: those of callers that are ready to run, and those that come within MaxDelay.
func (q *coalescer[Q, R]) gather() {
	// The answers of a batch wake its callers, which often call again at once. Letting them run first makes the next batch
	// theirs instead of a nearly empty one.
	runtime.Gosched()
	limits := q.client.limits
	if limits.MaxDelay == 0 {
		return
	}
	q.mu.Lock()
	waits := len(q.pending) > 0 && len(q.pending) < limits.MaxJobs
	q.mu.Unlock()
	if waits {
		_ = sleep(q.client.lifetime(), limits.MaxDelay) // the end of the client shows in the exchange
	}
}

// crowd reports whether the next batch leaves in a turn. One that was held back on purpose does not wait once more.
func (q *coalescer[Q, R]) crowd() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.client.limits.MaxDelay == 0 && q.client.limits.crowd(len(q.pending), q.last)
}

// take makes a batch of what is pending, with a context that ends with parent or when the last caller has left; or gives
// the slot back if there is nothing to send.
func (q *coalescer[Q, R]) take(parent context.Context) (context.Context, *batch[Q, R]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.client.limits.opens(q.inFlight-1, len(q.pending), q.last) {
		if q.inFlight--; len(q.pending) > 0 {
			q.arm() // what is left to another slot must not wait for it for ever
		}
		return nil, nil
	}
	b := &batch[Q, R]{}
	bytes, taken := 0, 0
	for _, e := range q.pending {
		if len(b.reqs) == q.client.limits.MaxJobs || len(b.reqs) > 0 && bytes+e.bytes > batchBytesMax {
			break
		}
		taken++
		if e.left {
			continue
		}
		e.batch, e.place = b, len(b.reqs)
		b.reqs = append(b.reqs, e.req)
		b.entries = append(b.entries, e)
		bytes += e.bytes
	}
	rest := copy(q.pending, q.pending[taken:])
	clear(q.pending[rest:])
	q.tower.change()
	q.pending = q.pending[:rest]
	if len(b.reqs) == 0 {
		q.inFlight--
		return nil, nil
	}
	b.id, b.open, q.last = q.newID(), len(b.entries), wave{len(b.entries), time.Now()}
	ctx, cancel := context.WithCancel(parent)
	b.cancel = cancel
	return ctx, b
}

// persist sends a batch again until every caller has its answer or has left.
func (q *coalescer[Q, R]) persist(ctx context.Context, b *batch[Q, R]) {
	defer b.cancel()
	for {
		_ = sleep(ctx, b.pause()) // the end of the context shows in the exchange
		if q.exchange(ctx, b) {
			return
		}
	}
}

// exchange sends a batch once and hands out the answers, unless ctx has ended. It reports whether all callers are served.
func (q *coalescer[Q, R]) exchange(ctx context.Context, b *batch[Q, R]) bool {
	b.mu.Lock()
	if ctx.Err() != nil {
		b.end(ctx)
		b.unlock()
		return true
	}
	b.out = true
	id := b.id
	b.mu.Unlock()
	got := q.ask(ctx, id, b.reqs)
	return q.settle(ctx, b, got)
}

// An outcome is what became of one attempt at a batch, and where it was made.
type outcome[R any] struct {
	replies []reply[R] // nil unless there is one for each entry
	err     error
	direct  *endpoint // the leader it went to directly; nil if it went to server n
	n       uint32
}

// fine reports whether every entry succeeded.
func (o *outcome[R]) fine() bool {
	return o.replies != nil && !slices.ContainsFunc(o.replies, func(r reply[R]) bool { return r.err != nil })
}

// ask sends a batch once.
func (q *coalescer[Q, R]) ask(ctx context.Context, id string, reqs []Q) (got outcome[R]) {
	var ep *endpoint
	ep, got.n = q.client.endpoints.pick()
	about := q.place(reqs[0])
	got.direct = q.client.endpoints.routes.leader(about) // most batches are about one queue; what is not, the server there sends on
	if got.direct != nil {
		ep = got.direct
	}
	replies, err := attempt(ctx, callKind{}, ep, func(ctx context.Context, ep *endpoint) (*[]reply[R], error) {
		replies, err := q.send(ctx, ep, id, reqs)
		return &replies, err
	})
	if got.err = err; err == nil && len(*replies) == len(reqs) {
		got.replies = *replies
	}
	if got.replies != nil && got.replies[0].err == nil { // a queue that is refused is not asked for
		q.client.answered(about) //nolint:contextcheck // the map is for the client, not for this call
	}
	return got
}

// settle hands out what became of an attempt. It reports whether all callers are served.
func (q *coalescer[Q, R]) settle(ctx context.Context, b *batch[Q, R], got outcome[R]) bool {
	b.mu.Lock()
	defer b.unlock()
	b.out = false
	b.history.last = nil
	b.final = !q.client.clock.renewable(b.renewed, b.id)
	var expired int
	if got.replies != nil {
		expired = b.answered(ctx, got.replies)
	} else {
		expired = b.refused(ctx, got.err)
	}
	if e := b.history.last; e != nil {
		q.client.endpoints.leave(e, got.direct, got.n)
	}
	if expired > 0 {
		b.renew(q.newID())
	}
	return b.open == 0
}

// whole sends requests that fit into one message as a batch of their own, and hands out all replies. It keeps nothing of them.
func (q *coalescer[Q, R]) whole(ctx context.Context, reqs []Q, each func(i int, r reply[R])) {
	if q.client.closed() != nil {
		for i := range reqs {
			each(i, reply[R]{err: closedError()})
		}
		return
	}
	id := q.newID()
	var first outcome[R]
	asked := ctx.Err() == nil
	if asked {
		first = q.ask(ctx, id, reqs)
	}
	if first.fine() { // as nearly all are
		for i := range first.replies {
			each(i, first.replies[i])
		}
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	entries, open := make([]entry[Q, R], len(reqs)), make([]*entry[Q, R], len(reqs))
	for i := range entries {
		entries[i].place, open[i] = i, &entries[i]
	}
	b := &batch[Q, R]{cancel: cancel, reqs: reqs, id: id, entries: open, open: len(reqs)}
	if served := asked && q.settle(ctx, b, first); !served {
		q.persist(ctx, b)
	}
	for i := range entries {
		each(i, entries[i].reply)
	}
}
