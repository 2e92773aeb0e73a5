// Package lease keeps the leases of the jobs that a worker holds.
package lease

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/belfrydb/belfry/wakeup"
)

// A Renewer extends the leases of the jobs that a worker holds and ends the handler of a lost
// one. Its times are on this machine's clock, and a lease is taken to end earlier than it does.
// Only the monotonic clock decides that a lease is lost. That clock stops while the machine sleeps,
// so the wall clock decides too when a lease must be extended. A wrong wall clock, here or at the
// servers, costs extensions but never a lease.
type Renewer[J any] struct {
	config  Config[J]
	extends chan struct{} // holds a value for each extension in flight
	wake    wakeup.Signal // sent when a lease must be checked before next

	mu   sync.Mutex
	held map[*Held[J]]struct{}
	next time.Time // of the next check
}

// A Config says how leases are extended. J is a job.
type Config[J any] struct {
	// MaxLease is how long one job's lease is extended at most.
	MaxLease time.Duration
	// Extend extends the lease of a job.
	Extend func(ctx context.Context, job J) error
	// Lost reports whether an error of Extend says that the lease is lost.
	Lost func(err error) bool
	// Stale is the cause of the end of a lease that ran out here.
	Stale error
	// Describe names a job in errors.
	Describe func(job J) string
	// OnError is called with an extension that failed.
	OnError func(job J, err error)
}

// A Grant is what is known of a lease that was just granted.
type Grant struct {
	// Received is when the answer came, on this machine's clock.
	Received time.Time
	// Age is how long before Received the lease may have begun, beyond the margin of a Renewer.
	Age time.Duration
	// Length is the length of the lease.
	Length time.Duration
}

// ExtendsMax bounds the extensions in flight at a time.
const ExtendsMax = 32

// A Held job is one under a live lease. Its times and states are guarded by Renewer.mu once it is
// added.
type Held[J any] struct {
	// Job is the job.
	Job J

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

// NewRenewer returns a renewer that holds no job.
func NewRenewer[J any](config Config[J]) *Renewer[J] {
	return &Renewer[J]{
		config: config, extends: make(chan struct{}, ExtendsMax), wake: wakeup.New(),
		held: make(map[*Held[J]]struct{}),
	}
}

// Run extends the leases until ctx ends, and then waits for the extensions in flight.
func (r *Renewer[J]) Run(ctx context.Context) {
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
				if err := r.Extend(ctx, h); err != nil && ctx.Err() == nil {
					r.config.OnError(h.Job, err)
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
func (r *Renewer[J]) check(now time.Time) (due []*Held[J], next time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next = now.Add(idleCheck)
	for h := range r.held {
		if h.lost != nil {
			continue
		}
		if !now.Before(h.endsAt) {
			r.markLost(h, fmt.Errorf("the lease of %s ran out: %w", r.config.Describe(h.Job), r.config.Stale))
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
func (r *Renewer[J]) markLost(h *Held[J], cause error) {
	h.lost = cause
	if h.cancel != nil {
		h.cancel(cause)
	}
}

// Add adds a job that was just reserved. The lease is doubtful if it may be so old that it should
// have been extended already: the caller must extend it, and only the server can say whether it
// still lasts.
func (r *Renewer[J]) Add(job J, grant Grant) (h *Held[J], doubtful bool) {
	h = &Held[J]{Job: job, length: grant.Length, lastAt: grant.Received.Add(r.config.MaxLease)}
	doubtful = grant.Age >= h.length/3
	if doubtful {
		h.leasedAt(grant.Received) // the lease is over a length after that at the latest
		h.extending = true
	} else {
		h.leasedAt(grant.Received.Add(-grant.Age))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held[h] = struct{}{}
	r.checkAt(h.renewAt)
	return h, doubtful
}

// checkAt makes run check the leases at t or earlier. Called with mu held.
func (r *Renewer[J]) checkAt(t time.Time) {
	if !t.Before(r.next) {
		return
	}
	r.next = t
	r.wake.Send()
}

// leasedAt sets the times of a lease that began at t or later.
func (h *Held[J]) leasedAt(t time.Time) {
	h.renewAt = t.Add(h.length / 3)
	h.endsAt = t.Add(h.length - min(h.length/10, 2*time.Second))
}

// reached reports whether it is t or later, on the monotonic clock or on the wall clock.
func reached(now, t time.Time) bool { return !now.Before(t) || !now.Round(0).Before(t.Round(0)) }

// StartHandler prepares a job for its handler, whose context cancel ends. It first extends a lease
// of which less than a third is left. An error says why the handler must not run.
func (r *Renewer[J]) StartHandler(ctx context.Context, h *Held[J], cancel context.CancelCauseFunc) error {
	r.mu.Lock()
	h.cancel = cancel
	lost, short := h.lost, reached(time.Now(), h.endsAt.Add(-h.length/3))
	r.mu.Unlock()
	if lost != nil || !short {
		return lost
	}
	err := r.Extend(ctx, h)
	r.mu.Lock()
	defer r.mu.Unlock()
	if h.lost != nil {
		return h.lost
	}
	return err
}

// Extend extends a lease by its length. The call is repeated while the lease lasts.
func (r *Renewer[J]) Extend(ctx context.Context, h *Held[J]) error {
	ctx, cancel := context.WithTimeout(ctx, h.length)
	defer cancel()
	select {
	case r.extends <- struct{}{}:
		defer func() { <-r.extends }()
	case <-ctx.Done(): // the call below fails
	}
	sent := time.Now()
	err := r.config.Extend(ctx, h.Job)
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
	case r.config.Lost(err):
		h.byServer = true
		r.markLost(h, fmt.Errorf("the lease of %s is lost: %w", r.config.Describe(h.Job), err))
		return h.lost
	default:
		h.renewAt = time.Now().Add(h.length / 10)
		return fmt.Errorf("extending the lease of %s: %w", r.config.Describe(h.Job), err)
	}
}

// StartFinish marks a job as about to be acked, nacked or released. It returns an error if the
// server has said that the lease is lost.
func (r *Renewer[J]) StartFinish(h *Held[J]) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	h.finishing = true
	if h.byServer {
		return h.lost
	}
	return nil
}

// Remove removes a job: its lease is not extended any more.
func (r *Renewer[J]) Remove(h *Held[J]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.held, h)
}

// All returns the jobs, in no order.
func (r *Renewer[J]) All() []*Held[J] {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]*Held[J], 0, len(r.held))
	for h := range r.held {
		all = append(all, h)
	}
	return all
}
