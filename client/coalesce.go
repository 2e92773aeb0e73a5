package client

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/belfrydb/belfry/client/internal/batching"
	"github.com/belfrydb/belfry/client/internal/failure"
	"github.com/belfrydb/belfry/client/internal/placement"
)

// A coalescer turns concurrent calls into batches. At most Coalescing.InFlight batches are in
// flight. Calls that arrive meanwhile gather, and leave as one batch when a slot is free. A batch
// that must be retried gives its slot back first, so that one shard without a leader does not hold
// up calls to the others. There are never more such batches than callers.
//
// Lock order: batch.mu, then coalescer.mu.
type coalescer[Q, R any] struct {
	client *Client
	newID  func() string
	send   sendFunc[Q, R]
	place  func(req Q) placement.Place
	pool   sync.Pool // of *entry[Q, R] that nothing refers to

	mu       sync.Mutex
	pending  []*entry[Q, R]
	arrivals batching.Group  // of the callers that arrive
	slots    *batching.Slots // guarded by mu
}

// A sendFunc sends one batch once. It returns the reply to each entry, in order, or one error for
// all.
type sendFunc[Q, R any] func(ctx context.Context, ep *endpoint, requestID string, reqs []Q) ([]reply[R], error)

// A reply is the result of one entry of a batch.
type reply[R any] struct {
	res R
	err *failure.Error
}

// An entry is one caller's call.
type entry[Q, R any] struct {
	req   Q
	bytes int
	wake  *batching.Broadcast // sent after answered is set; nil in a batch of doAll; guarded like left, then by batch.mu
	reply reply[R]

	answered atomic.Bool // reply is set, and the entry the caller's again

	left    bool            // the caller is gone; guarded by coalescer.mu until the entry is in a batch
	batch   *batch[Q, R]    // nil while the entry is pending; guarded by coalescer.mu
	place   int             // in the batch
	history failure.History // guarded by batch.mu
}

// A batch is a set of calls that share a request id. Every repeat is exactly the same, as the
// servers demand.
type batch[Q, R any] struct {
	cancel  context.CancelFunc // ends the batch's context; called when the last caller has left
	reqs    []Q
	renewed bool // has its second request id, or a later one
	final   bool // gets no other request id

	mu      sync.Mutex
	id      string
	entries []*entry[Q, R]      // nil where the caller has its answer or has left
	open    int                 // entries that are not nil
	out     bool                // an attempt is in flight
	toWake  batching.Broadcasts // of the callers answered since unlock
	history failure.History
}

func newCoalescer[Q, R any](c *Client, newID func() string, send sendFunc[Q, R],
	placed func(req Q) placement.Place) *coalescer[Q, R] {
	q := &coalescer[Q, R]{client: c, newID: newID, send: send, place: placed}
	q.pool.New = func() any { return &entry[Q, R]{} }
	source := batching.Source{
		Limits: c.limits.batches(), Mu: &q.mu, Gate: &c.gate, Start: c.start,
		Pending: func() int { return len(q.pending) }, Take: q.take,
	}
	if c.limits.MaxDelay > 0 {
		source.Delay, source.Gate = q.delay, nil // a batch that was held back does not wait a second time
	}
	q.slots = batching.NewSlots(source)
	return q
}

// do makes one call as part of a batch and waits for its answer. bytes is an upper bound of what
// req adds to a message.
func (q *coalescer[Q, R]) do(ctx context.Context, req Q, bytes int) (R, error) {
	var none R
	if ctx.Err() != nil {
		return none, public((&failure.History{}).Ended(ctx, failure.NothingSent))
	}
	e := q.pool.Get().(*entry[Q, R])
	e.req, e.bytes = req, bytes
	wake := q.add(e)
	if wake == nil {
		return none, closedError()
	}
	for wake != nil {
		select {
		case <-wake.Done():
			wake = q.waitAgain(e)
		case <-ctx.Done():
			if err := q.withdraw(ctx, e); err != nil {
				return none, public(err)
			}
			wake = nil
		}
	}
	reply := e.reply
	*e = entry[Q, R]{}
	q.pool.Put(e)
	if reply.err != nil {
		return none, public(reply.err)
	}
	return reply.res, nil
}

// waitAgain returns nil if a caller that was woken has its answer. Otherwise the broadcast was for
// other callers, and waitAgain returns a new one to wait for.
func (q *coalescer[Q, R]) waitAgain(e *entry[Q, R]) *batching.Broadcast {
	if e.answered.Load() {
		return nil
	}
	q.mu.Lock()
	b := e.batch
	if b == nil {
		defer q.mu.Unlock()
		e.wake = batching.NewBroadcast()
		return e.wake
	}
	q.mu.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	if e.answered.Load() {
		return nil
	}
	e.wake = batching.NewBroadcast()
	return e.wake
}

// add makes an entry pending and starts a slot or the timer if needed. It returns the broadcast to
// wait for, nil if the client is closed.
func (q *coalescer[Q, R]) add(e *entry[Q, R]) *batching.Broadcast {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.slots.Expect() {
		return nil
	}
	e.wake = q.arrivals.Join(q.client.limits.MaxJobs)
	q.pending = append(q.pending, e) // a running slot takes it, even if the client is closed by then
	return e.wake
}

// withdraw removes a caller whose context ended and returns its error, nil if its answer came
// first.
func (q *coalescer[Q, R]) withdraw(ctx context.Context, e *entry[Q, R]) *failure.Error {
	q.mu.Lock()
	b := e.batch
	if b == nil {
		e.left = true
		q.mu.Unlock()
		return e.history.Ended(ctx, failure.NothingSent)
	}
	q.mu.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	if e.answered.Load() { // the entry may have no place in the batch any more
		return nil
	}
	b.close(e)
	if b.open == 0 {
		b.cancel()
	}
	sent := failure.NothingSent
	if b.out {
		sent = failure.MaybeSent
	}
	err := e.history.Ended(ctx, sent)
	err.RequestID = b.id
	return err
}

// sendBatch sends a batch. It returns after the first attempt, even if the batch must be tried
// again.
func (q *coalescer[Q, R]) sendBatch(ctx context.Context, b *batch[Q, R]) {
	if q.tryOnce(ctx, b) {
		b.cancel()
		return
	}
	// If the client is closing, the batch's context has ended and retry answers the callers here.
	if !q.client.start(func() { q.retry(ctx, b) }) {
		q.retry(ctx, b)
	}
}

// delay lets calls that arrive within MaxDelay join a batch that is not full.
func (q *coalescer[Q, R]) delay() {
	q.mu.Lock()
	waits := len(q.pending) > 0 && len(q.pending) < q.client.limits.MaxJobs
	q.mu.Unlock()
	if waits {
		_ = failure.Sleep(q.client.lifetime(), q.client.limits.MaxDelay) // the end of the client shows in the exchange
	}
}

// take makes a batch of the pending calls, and returns what sends it. The batch's context ends with
// the client, or when the last caller has left.
func (q *coalescer[Q, R]) take() (send func(), calls int) {
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
	q.arrivals.Close()
	q.pending = q.pending[:rest]
	if len(b.reqs) == 0 {
		return nil, 0
	}
	b.id, b.open = q.newID(), len(b.entries)
	ctx, cancel := context.WithCancel(q.client.lifetime())
	b.cancel = cancel
	return func() { q.sendBatch(ctx, b) }, len(b.entries)
}

// retry sends a batch until every caller has its answer or has left.
func (q *coalescer[Q, R]) retry(ctx context.Context, b *batch[Q, R]) {
	defer b.cancel()
	for {
		_ = failure.Sleep(ctx, b.pause()) // the end of the context shows in the exchange
		if q.tryOnce(ctx, b) {
			return
		}
	}
}

// tryOnce sends a batch once and answers its callers, unless ctx has ended. It reports whether all
// callers are served.
func (q *coalescer[Q, R]) tryOnce(ctx context.Context, b *batch[Q, R]) bool {
	b.mu.Lock()
	if ctx.Err() != nil {
		b.end(ctx)
		b.unlock()
		return true
	}
	b.out = true
	id := b.id
	b.mu.Unlock()
	got := q.sendOnce(ctx, id, b.reqs)
	return q.finishAttempt(ctx, b, got)
}

// An outcome is the result of one attempt at a batch, and where it was made.
type outcome[R any] struct {
	replies []reply[R] // nil unless there is one for each entry
	err     error
	direct  *endpoint // the leader, if the attempt went there directly; nil if it went to server n
	n       uint32
}

// allSucceeded reports whether every entry succeeded.
func (o *outcome[R]) allSucceeded() bool {
	return o.replies != nil && !slices.ContainsFunc(o.replies, func(r reply[R]) bool { return r.err != nil })
}

// sendOnce sends a batch once.
func (q *coalescer[Q, R]) sendOnce(ctx context.Context, id string, reqs []Q) (got outcome[R]) {
	var ep *endpoint
	ep, got.n = q.client.endpoints.pick()
	about := q.place(reqs[0])
	// most batches are about one queue; the server there forwards the rest
	got.direct = q.client.endpoints.routes.leader(about)
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
	if got.replies != nil && got.replies[0].err == nil { // no route is kept for a queue that is refused
		q.client.answered(about) //nolint:contextcheck // the route is for later calls too
	}
	return got
}

// finishAttempt answers the callers for which an attempt was the last. It reports whether all
// callers are served.
func (q *coalescer[Q, R]) finishAttempt(ctx context.Context, b *batch[Q, R], got outcome[R]) bool {
	b.mu.Lock()
	defer b.unlock()
	b.out = false
	b.history.ForgetLast()
	b.final = b.renewed && !q.client.clock.SetForwardSince(b.id)
	var expired int
	if got.replies != nil {
		expired = b.answered(ctx, got.replies)
	} else {
		expired = b.refused(ctx, got.err)
	}
	if e := b.history.Last(); e != nil {
		q.client.endpoints.leave(e, got.direct, got.n)
	}
	if expired > 0 {
		b.renew(q.newID())
	}
	return b.open == 0
}

// doAll sends requests that fit into one message as a batch of their own and calls each with every
// reply. It keeps no reference to the requests.
func (q *coalescer[Q, R]) doAll(ctx context.Context, reqs []Q, each func(i int, r reply[R])) {
	if q.client.closed() != nil {
		for i := range reqs {
			each(i, reply[R]{err: failure.Closed()})
		}
		return
	}
	id := q.newID()
	var first outcome[R]
	asked := ctx.Err() == nil
	if asked {
		first = q.sendOnce(ctx, id, reqs)
	}
	if first.allSucceeded() {
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
	if served := asked && q.finishAttempt(ctx, b, first); !served {
		q.retry(ctx, b)
	}
	for i := range entries {
		each(i, entries[i].reply)
	}
}
