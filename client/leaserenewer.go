package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// A leaseRenewer extends the leases of the jobs that a worker holds and ends the handler of a lost
// one. Its times are on this machine's clock, and a lease is taken to end earlier than it does.
// Only the monotonic clock decides that a lease is lost. That clock stops while the machine sleeps,
// so the wall clock decides too when a lease must be extended. A wrong wall clock, here or at the
// servers, costs extensions but never a lease.
type leaseRenewer struct {
	client  *Client
	worker  Worker
	extends chan struct{} // holds a value for each extension in flight
	wake    chan struct{} // has one value when a lease must be checked before next

	mu   sync.Mutex
	held map[*held]struct{}
	next time.Time // of the next check
}

// extendsMax bounds the extensions in flight at a time.
const extendsMax = 32

// A held job is one under a live lease. Its times and states are guarded by leaseRenewer.mu once it
// is added.
type held struct {
	job       *Job
	length    time.Duration // of the lease
	renewAt   time.Time     // when the next extension is due
	endsAt    time.Time     // when the lease may be over
	lastAt    time.Time     // no extension after this
	extending bool
	lost      error                   // not nil once the lease is lost
	byServer  bool                    // the server said that it is lost
	finishing bool                    // an ack, nack or release is in flight
	cancel    context.CancelCauseFunc // ends the handler's context; nil until it begins
}

func newLeaseRenewer(c *Client, w Worker) *leaseRenewer {
	return &leaseRenewer{
		client: c, worker: w, extends: make(chan struct{}, extendsMax), wake: make(chan struct{}, 1),
		held: make(map[*held]struct{}),
	}
}

// run extends the leases until ctx ends, and then waits for the extensions in flight.
func (r *leaseRenewer) run(ctx context.Context) {
	var extending sync.WaitGroup
	defer extending.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-r.wake:
		}
		due, next := r.check(time.Now())
		for _, h := range due {
			extending.Go(func() {
				if err := r.extend(ctx, h); err != nil && ctx.Err() == nil {
					r.worker.OnError(h.job, err)
				}
			})
		}
		timer.Reset(next)
	}
}

// idleCheck is the time between checks if no lease needs one earlier.
const idleCheck = time.Minute

// check ends the handlers whose leases are over. It returns the leases that must be extended now,
// and the time to the next check.
func (r *leaseRenewer) check(now time.Time) (due []*held, next time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next = now.Add(idleCheck)
	for h := range r.held {
		if h.lost != nil {
			continue
		}
		if !now.Before(h.endsAt) {
			r.markLost(h, fmt.Errorf("the lease of job %s in queue %s ran out: %w", h.job.ID, h.job.Queue, ErrStaleLease))
			continue
		}
		at := h.endsAt
		if !h.extending && h.renewAt.Before(h.lastAt) {
			if reached(now, h.renewAt) {
				h.extending = true
				due = append(due, h)
			} else {
				at = h.renewAt
			}
		}
		if at.Before(r.next) {
			r.next = at
		}
	}
	return due, r.next.Sub(now)
}

// markLost marks a lease as lost and ends the handler's context. Called with mu held.
func (r *leaseRenewer) markLost(h *held, cause error) {
	h.lost = cause
	if h.cancel != nil {
		h.cancel(cause)
	}
}

// add adds a job that was just reserved. The lease is doubtful if it may be so old that it should
// have been extended already: the caller must extend it, and only the server can say whether it
// still lasts.
func (r *leaseRenewer) add(job *Job) (h *held, doubtful bool) {
	h = &held{job: job, length: job.lease, lastAt: job.received.Add(r.worker.MaxLease)}
	if h.length <= 0 {
		h.length = job.TTR // the server did not say when it granted the lease
	}
	doubtful = job.age >= h.length/3
	if doubtful {
		h.leasedAt(job.received) // the lease is over a length after that at the latest
		h.extending = true
	} else {
		h.leasedAt(job.received.Add(-job.age))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held[h] = struct{}{}
	r.checkAt(h.renewAt)
	return h, doubtful
}

// checkAt makes run check the leases at t or earlier. Called with mu held.
func (r *leaseRenewer) checkAt(t time.Time) {
	if !t.Before(r.next) {
		return
	}
	r.next = t
	select {
	case r.wake <- struct{}{}:
	default: // run is about to check
	}
}

// leasedAt sets the times of a lease that began at t or later.
func (h *held) leasedAt(t time.Time) {
	h.renewAt = t.Add(h.length / 3)
	h.endsAt = t.Add(h.length - min(h.length/10, 2*time.Second))
}

// reached reports whether it is t or later, on the monotonic clock or on the wall clock.
func reached(now, t time.Time) bool { return !now.Before(t) || !now.Round(0).Before(t.Round(0)) }

// startHandler prepares a job for its handler, whose context cancel ends. It first extends a lease
// of which less than a third is left. An error says why the handler must not run.
func (r *leaseRenewer) startHandler(ctx context.Context, h *held, cancel context.CancelCauseFunc) error {
	r.mu.Lock()
	h.cancel = cancel
	lost, short := h.lost, reached(time.Now(), h.endsAt.Add(-h.length/3))
	r.mu.Unlock()
	if lost != nil || !short {
		return lost
	}
	err := r.extend(ctx, h)
	r.mu.Lock()
	defer r.mu.Unlock()
	if h.lost != nil {
		return h.lost
	}
	return err
}

// extend extends a lease by its length. The call is repeated while the lease lasts.
func (r *leaseRenewer) extend(ctx context.Context, h *held) error {
	ctx, cancel := context.WithTimeout(ctx, h.length)
	defer cancel()
	select {
	case r.extends <- struct{}{}:
		defer func() { <-r.extends }()
	case <-ctx.Done(): // the call below fails
	}
	sent := time.Now()
	_, err := r.client.Extend(ctx, h.job.Lease, r.worker.TTR)
	r.mu.Lock()
	defer r.mu.Unlock()
	h.extending = false
	defer func() { r.checkAt(h.renewAt) }()
	switch {
	case err == nil:
		h.leasedAt(sent)
		return nil
	case h.finishing:
		h.renewAt = time.Now().Add(h.length / 10)
		return nil // an ack that arrived first makes an extension fail; if the lease was lost, the ack reports it
	case errors.Is(err, ErrStaleLease), errors.Is(err, ErrJobNotFound):
		h.byServer = true
		r.markLost(h, fmt.Errorf("the lease of job %s in queue %s is lost: %w", h.job.ID, h.job.Queue, err))
		return h.lost
	default:
		h.renewAt = time.Now().Add(h.length / 10)
		return fmt.Errorf("extending the lease of job %s in queue %s: %w", h.job.ID, h.job.Queue, err)
	}
}

// startFinish marks a job as about to be acked, nacked or released. It returns an error if the
// server has said that the lease is lost.
func (r *leaseRenewer) startFinish(h *held) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	h.finishing = true
	if h.byServer {
		return h.lost
	}
	return nil
}

// remove removes a job: its lease is not extended any more.
func (r *leaseRenewer) remove(h *held) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.held, h)
}

// all returns the jobs, in no order.
func (r *leaseRenewer) all() []*held {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]*held, 0, len(r.held))
	for h := range r.held {
		all = append(all, h)
	}
	return all
}
