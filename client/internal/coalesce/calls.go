package coalesce

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/belfrydb/belfry/client/internal/batching"
	"github.com/belfrydb/belfry/client/internal/failure"
)

// Calls turn concurrent calls into batches. At most Limits.InFlight batches are in flight. Calls
// that arrive meanwhile gather, and leave as one batch when a slot is free. A batch that must be
// retried gives its slot back first, so that one shard without a leader does not hold up calls to
// the others. There are never more such batches than callers. Q is a request, R its result, and S
// says where an attempt was made.
//
// Lock order: batch.mu, then Calls.mu.
type Calls[Q, R, S any] struct {
	config Config[Q, R, S]
	pool   sync.Pool // of *entry[Q, R] that nothing refers to

	mu       sync.Mutex
	pending  []*entry[Q, R]
	arrivals batching.Group  // of the callers that arrive
	slots    *batching.Slots // guarded by mu
}

// A Config says how the batches of one kind of calls are sent.
type Config[Q, R, S any] struct {
	Shared
	// NewID returns the request id of a batch, empty for calls that need none.
	NewID func() string
	// Send sends a batch once.
	Send func(ctx context.Context, requestID string, reqs []Q) Attempt[R, S]
	// Failed is called after an attempt of which at least one entry must be tried again.
	Failed func(e *failure.Error, at S)
	// ClockSet reports whether this machine's clock was set forward since a request id was made.
	ClockSet func(requestID string) bool
}

// An Attempt is the result of sending a batch once.
type Attempt[R, S any] struct {
	// Replies are the replies to the entries, in order. An answer with another number of replies
	// makes no sense.
	Replies []Reply[R]
	// Err is the one error for all entries.
	Err error
	// At is where the attempt was made.
	At S
}

// A Reply is the result of one entry of a batch, or its error.
type Reply[R any] struct {
	Result R
	Err    *failure.Error
}

// An entry is one caller's call.
type entry[Q, R any] struct {
	req   Q
	bytes int
	wake  *batching.Broadcast // sent after answered is set; guarded like left, then by batch.mu
	reply Reply[R]

	answered atomic.Bool // reply is set, and the entry the caller's again

	left    bool            // the caller is gone; guarded by Calls.mu until the entry is in a batch
	batch   *batch[Q, R]    // nil while the entry is pending; guarded by Calls.mu
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

// NewCalls returns the calls of one kind.
func NewCalls[Q, R, S any](config Config[Q, R, S]) *Calls[Q, R, S] {
	q := &Calls[Q, R, S]{config: config}
	q.pool.New = func() any { return &entry[Q, R]{} }
	source := batching.Source{
		Limits: config.Limits.batches(), Mu: &q.mu, Gate: config.Gate, Start: config.Start,
		Pending: func() int { return len(q.pending) }, Take: q.take,
	}
	if config.Limits.MaxDelay > 0 {
		source.Delay, source.Gate = q.delay, nil // a batch that was held back does not wait a second time
	}
	q.slots = batching.NewSlots(source)
	return q
}

// Do makes one call as part of a batch and waits for its answer. bytes is an upper bound of what
// req adds to a message.
func (q *Calls[Q, R, S]) Do(ctx context.Context, req Q, bytes int) (R, *failure.Error) {
	var none R
	if ctx.Err() != nil {
		return none, (&failure.History{}).Ended(ctx, failure.NothingSent)
	}
	e := q.pool.Get().(*entry[Q, R])
	e.req, e.bytes = req, bytes
	wake := q.add(e)
	if wake == nil {
		return none, failure.Closed()
	}
	for wake != nil {
		select {
		case <-wake.Done():
			wake = q.waitAgain(e)
		case <-ctx.Done():
			if err := q.withdraw(ctx, e); err != nil {
				return none, err
			}
			wake = nil
		}
	}
	reply := e.reply
	*e = entry[Q, R]{}
	q.pool.Put(e)
	if reply.Err != nil {
		return none, reply.Err
	}
	return reply.Result, nil
}

// waitAgain returns nil if a caller that was woken has its answer. Otherwise the broadcast was for
// other callers, and waitAgain returns a new one to wait for.
func (q *Calls[Q, R, S]) waitAgain(e *entry[Q, R]) *batching.Broadcast {
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
func (q *Calls[Q, R, S]) add(e *entry[Q, R]) *batching.Broadcast {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.slots.Expect() {
		return nil
	}
	e.wake = q.arrivals.Join(q.config.Limits.MaxCalls)
	q.pending = append(q.pending, e) // a running slot takes it, even if the client is closed by then
	return e.wake
}

// withdraw removes a caller whose context ended and returns its error, nil if its answer came
// first.
func (q *Calls[Q, R, S]) withdraw(ctx context.Context, e *entry[Q, R]) *failure.Error {
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
func (q *Calls[Q, R, S]) sendBatch(ctx context.Context, b *batch[Q, R]) {
	if q.tryOnce(ctx, b) {
		b.cancel()
		return
	}
	// If the client is closing, the batch's context has ended and retry answers the callers here.
	if !q.config.Start(func() { q.retry(ctx, b) }) {
		q.retry(ctx, b)
	}
}

// delay lets calls that arrive within MaxDelay join a batch that is not full.
func (q *Calls[Q, R, S]) delay() {
	q.mu.Lock()
	waits := len(q.pending) > 0 && len(q.pending) < q.config.Limits.MaxCalls
	q.mu.Unlock()
	if waits {
		_ = failure.Sleep(q.config.Lifetime(), q.config.Limits.MaxDelay) // the end of the client shows in the exchange
	}
}

// take makes a batch of the pending calls, and returns what sends it. The batch's context ends with
// the client, or when the last caller has left.
func (q *Calls[Q, R, S]) take() (send func(), calls int) {
	b := &batch[Q, R]{}
	bytes, taken := 0, 0
	for _, e := range q.pending {
		if len(b.reqs) == q.config.Limits.MaxCalls || len(b.reqs) > 0 && bytes+e.bytes > q.config.Limits.MaxBytes {
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
	b.id, b.open = q.config.NewID(), len(b.entries)
	ctx, cancel := context.WithCancel(q.config.Lifetime())
	b.cancel = cancel
	return func() { q.sendBatch(ctx, b) }, len(b.entries)
}

// retry sends a batch until every caller has its answer or has left.
func (q *Calls[Q, R, S]) retry(ctx context.Context, b *batch[Q, R]) {
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
func (q *Calls[Q, R, S]) tryOnce(ctx context.Context, b *batch[Q, R]) bool {
	b.mu.Lock()
	if ctx.Err() != nil {
		b.end(ctx)
		b.unlock()
		return true
	}
	b.out = true
	id := b.id
	b.mu.Unlock()
	got := q.config.Send(ctx, id, b.reqs)
	return q.finishAttempt(ctx, b, got)
}

// allSucceeded reports whether every one of n entries succeeded.
func (o *Attempt[R, S]) allSucceeded(n int) bool {
	return o.Err == nil && len(o.Replies) == n &&
		!slices.ContainsFunc(o.Replies, func(r Reply[R]) bool { return r.Err != nil })
}

// finishAttempt answers the callers for which an attempt was the last. It reports whether all
// callers are served.
func (q *Calls[Q, R, S]) finishAttempt(ctx context.Context, b *batch[Q, R], got Attempt[R, S]) bool {
	b.mu.Lock()
	defer b.unlock()
	b.out = false
	b.history.ForgetLast()
	b.final = b.renewed && !q.config.ClockSet(b.id)
	var expired int
	if got.Err == nil && len(got.Replies) == len(b.reqs) {
		expired = b.answered(ctx, got.Replies)
	} else {
		expired = b.refused(ctx, got.Err)
	}
	if e := b.history.Last(); e != nil {
		q.config.Failed(e, got.At)
	}
	if expired > 0 {
		b.renew(q.config.NewID())
	}
	return b.open == 0
}

// DoAll sends requests that fit into one message as a batch of their own and calls each with every
// reply. It keeps no reference to the requests.
func (q *Calls[Q, R, S]) DoAll(ctx context.Context, reqs []Q, each func(i int, r Reply[R])) {
	if q.config.Lifetime().Err() != nil {
		for i := range reqs {
			each(i, Reply[R]{Err: failure.Closed()})
		}
		return
	}
	id := q.config.NewID()
	var first Attempt[R, S]
	asked := ctx.Err() == nil
	if asked {
		first = q.config.Send(ctx, id, reqs)
	}
	if asked && first.allSucceeded(len(reqs)) {
		for i := range first.Replies {
			each(i, first.Replies[i])
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
