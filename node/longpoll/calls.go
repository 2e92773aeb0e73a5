// Package longpoll holds the calls at the leader of a shard until they have an answer: the outcome
// of a proposal, or jobs for a Reserve that waits. It knows neither Raft nor the node. See
// DESIGN.md beside this file.
package longpoll

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/node/admit"
	"github.com/belfrydb/belfry/node/clock"
	"github.com/belfrydb/belfry/node/outcome"
	"github.com/belfrydb/belfry/node/propose"
)

// Calls are the calls at the leader of one shard, as soft state: a leadership begins and ends with
// Begin and End. All methods but Run may be called from any goroutine.
type Calls struct {
	cfg     Config
	grants  *pendingGrants
	waiters *waiters
	pool    sync.Pool // of *call
}

// Config is what the calls of a shard get from their surroundings. All functions may be called from
// any goroutine.
type Config struct {
	// WaitersMax bounds the parked calls. ProposeTimeout bounds a release of jobs whose caller has
	// left.
	WaitersMax     int
	ProposeTimeout time.Duration

	Queue     *propose.Queue
	Admission *admit.Admission
	Clock     *clock.Shard
	View      admit.View
	// Format returns the format of new entries.
	Format func() fsm.Format
	// Leads returns nil if this node leads the shard and serves, else the error for callers. Refusal
	// adds to an error what callers must know of the shard.
	Leads   func() error
	Refusal func(err error) error
	// NotApplied counts a request that the limits of its queues refused. Failed counts requests that
	// ended with an error.
	NotApplied func()
	Failed     func(err error, requests int)
	// Note logs a failure that is not a caller's.
	Note func(doing string, err error)
	// Spawn runs a function in a goroutine. It reports false if the shard is being stopped.
	Spawn func(func()) bool
}

// New returns the calls of a shard. They are refused with ErrNoLeader until Begin.
func New(cfg Config) *Calls {
	c := &Calls{cfg: cfg, grants: newPendingGrants(cfg)}
	c.waiters = newWaiters(cfg, c.grants, c.releaseAbandoned)
	c.pool.New = func() any {
		c := &call{done: make(chan answer, 1)}
		c.Complete = func(reply propose.Reply, err error) { c.deliver(answer{reply, err}) }
		return c
	}
	return c
}

// Begin begins a leadership: calls are taken.
func (cs *Calls) Begin() {
	cs.grants.open()
	cs.Resume()
}

// Pause fails every parked call, and refuses every later one, with err until Resume. Grants stay as
// they are.
func (cs *Calls) Pause(err error) {
	// The queue is closed first: a refused reservation still needs its waiter.
	cs.cfg.Queue.Close(err)
	cs.waiters.close(err)
}

// Resume takes calls again.
func (cs *Calls) Resume() {
	cs.cfg.Queue.Open()
	cs.waiters.open()
}

// End ends the leadership. Every call fails with err. Grants without a caller are forgotten,
// because another leader may deliver them.
func (cs *Calls) End(err error) {
	cs.grants.close()
	cs.Pause(err)
}

// Drain answers every parked call as if its wait were over, and refuses later ones that would wait.
func (cs *Calls) Drain() { cs.waiters.drain() }

// Run dispatches jobs to parked calls until ctx ends.
func (cs *Calls) Run(ctx context.Context) { cs.waiters.run(ctx) }

// Parked returns the number of parked calls.
func (cs *Calls) Parked() int { return cs.waiters.size() }

// ParkedByQueue calls each with each queue for which calls are parked, and their number.
func (cs *Calls) ParkedByQueue(each func(queue string, calls int)) { cs.waiters.waiting(each) }

// ParkedFor returns the number of calls that are parked for a queue.
func (cs *Calls) ParkedFor(queue string) int { return cs.waiters.waitingFor(queue) }

// Pending returns the number of requests whose grants are neither delivered nor released.
func (cs *Calls) Pending() int { return cs.grants.size() }

// EntryApplied gives jobs that an applied entry freed to parked calls.
func (cs *Calls) EntryApplied(batch []*propose.Proposal) { cs.waiters.entryApplied(batch) }

// Recheck is EntryApplied for an entry of unknown content.
func (cs *Calls) Recheck() { cs.waiters.recheckAll() }

// Settle returns when no reservable job waits to be granted to a parked call.
func (cs *Calls) Settle(ctx context.Context) error { return cs.waiters.awaitIdle(ctx) }

// Recall reads the jobs that were granted to an earlier attempt at a request. What it returns
// counts as delivered.
func (cs *Calls) Recall(q *fsm.RecallQuery, read func() (fsm.Reading, propose.Witness)) (fsm.Reading, propose.Witness) {
	return cs.grants.recall(q, read)
}

// Do proposes a request and waits for its results. If ctx ends first, the error wraps ErrCanceled
// when the request was not logged, else ErrUnknownOutcome. The caller must not change the request
// during the call; after an unknown outcome, never.
func (cs *Calls) Do(ctx context.Context, req *fsm.Request) (propose.Reply, error) {
	return cs.DoWith(ctx, req, nil)
}

// DoWith is Do. It calls beforeWait, if it is not nil, before it waits for the quota of a namespace.
func (cs *Calls) DoWith(ctx context.Context, req *fsm.Request, beforeWait func()) (propose.Reply, error) {
	a, err := cs.admit(ctx, req, beforeWait)
	if err != nil || a.Refused != nil {
		return propose.Reply{Results: a.Refused}, err
	}
	return cs.enqueue(ctx, a.Request, a.Reservation)
}

// admit checks a request, reserves its quota, and counts a refusal.
func (cs *Calls) admit(ctx context.Context, req *fsm.Request, beforeWait func()) (admit.Admitted, error) {
	err := admit.CheckFormat(req, cs.cfg.Format())
	var a admit.Admitted
	if err == nil {
		a, err = cs.cfg.Admission.Admit(ctx, req, beforeWait)
	}
	switch {
	case err != nil:
		cs.cfg.Failed(err, 1)
		return admit.Admitted{}, err
	case a.Refused != nil:
		cs.cfg.NotApplied()
	}
	return a, nil
}

// Start is the first half of Do: it proposes a request, and finish, which must be called once, waits
// for its results. So one goroutine can propose many requests before it waits. ok is false, and
// nothing was done, if the request might have to wait for quota; it is for Do then.
func (cs *Calls) Start(ctx context.Context, req *fsm.Request) (finish func() (propose.Reply, error), ok bool) {
	if cs.cfg.Admission.Quotas.LimitsAny() {
		return nil, false
	}
	ended := func(reply propose.Reply, err error) (func() (propose.Reply, error), bool) {
		return func() (propose.Reply, error) { return reply, err }, true
	}
	a, err := cs.admit(ctx, req, nil)
	if err != nil || a.Refused != nil {
		return ended(propose.Reply{Results: a.Refused}, err)
	}
	c, err := cs.propose(a.Request, a.Reservation)
	if err != nil {
		return ended(propose.Reply{}, err)
	}
	return func() (propose.Reply, error) { return cs.await(ctx, c) }, true
}

// enqueue proposes a request that holds its quota, and waits for its results.
func (cs *Calls) enqueue(ctx context.Context, req *fsm.Request, reserved *admit.Reservation) (propose.Reply, error) {
	c, err := cs.propose(req, reserved)
	if err != nil {
		return propose.Reply{}, err
	}
	return cs.await(ctx, c)
}

// propose proposes a request that holds its quota.
func (cs *Calls) propose(req *fsm.Request, reserved *admit.Reservation) (*call, error) {
	c := cs.pool.Get().(*call)
	c.Request, c.Came, c.Reservation = req, cs.cfg.Clock.Now(), reserved
	c.Format = cs.cfg.Format()
	c.Encoded = codec.AppendRequestIn(c.Encoded[:0], c.Format, req)
	c.Copies = cs.cfg.View.FiringBytes(req)
	if err := cs.grants.enqueue(&c.grantProposal); err != nil {
		reserved.Release()
		cs.recycle(c)
		err = cs.cfg.Refusal(err)
		cs.cfg.Failed(err, 1)
		return nil, err
	}
	return c, nil
}

// await waits for the results of a request that was proposed.
func (cs *Calls) await(ctx context.Context, c *call) (propose.Reply, error) {
	select {
	case a := <-c.done:
		cs.grants.noteDelivered(c.pendingGrant, a)
		cs.recycle(c)
		return a.reply, a.err
	case <-ctx.Done():
	}
	if cs.cfg.Queue.Withdraw(&c.Proposal) {
		c.Reservation.Release()
		cs.grants.noteNoGrants(c.pendingGrant)
		cs.recycle(c)
		err := outcome.Canceled(ctx)
		cs.cfg.Failed(err, 1)
		return propose.Reply{}, err
	}
	pending := c.pendingGrant
	c.abandoned = func(a answer) { cs.releaseAbandoned(context.WithoutCancel(ctx), pending, a) }
	if !c.settled.CompareAndSwap(false, true) { // answered at the same moment
		a := <-c.done
		cs.grants.noteDelivered(pending, a)
		cs.recycle(c)
		return a.reply, a.err
	}
	// The call is not recycled: its proposal is still in use.
	return propose.Reply{}, fmt.Errorf("%w: the call ended while it was being logged: %w", outcome.ErrUnknownOutcome,
		context.Cause(ctx))
}

// bufferBytesKept is the largest buffer that is kept for reuse.
const bufferBytesKept = 1 << 20

// recycle keeps a call for the next request.
func (cs *Calls) recycle(c *call) {
	c.Request, c.pendingGrant, c.Reservation, c.abandoned = nil, nil, nil, nil
	c.settled.Store(false)
	if cap(c.Encoded) > bufferBytesKept {
		c.Encoded = nil
	}
	cs.pool.Put(c)
}

// call is a proposal with a waiting caller.
type call struct {
	grantProposal
	done chan answer
	// settled is set by the first of two events: the answer arrives, or the caller leaves.
	settled atomic.Bool
	// abandoned receives the answer after the caller has left; the caller sets it.
	abandoned func(answer)
}

// deliver passes the answer to the caller, or to abandoned after the caller has left.
func (c *call) deliver(a answer) {
	if c.settled.CompareAndSwap(false, true) {
		c.done <- a
		return
	}
	c.abandoned(a)
}

// answer is the outcome of a request.
type answer struct {
	reply propose.Reply
	err   error
}
