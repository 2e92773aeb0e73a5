package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// A keeper extends the leases of the jobs that a shift holds, and says when one is lost. All its times are on this
// machine's clock and on the safe side: a lease is taken to end earlier than it does. The monotonic clock alone decides when a lease
// is lost; it stands still while the machine sleeps, so the wall clock too decides when one must be extended. A wall clock that is
// wrong or set, here or at the servers, thus costs extensions and never a lease.
type keeper struct {
	client  *Client
	worker  Worker
	extends chan struct{} // holds a value for each extension on its way
	wake    chan struct{} // takes one value when a lease needs care earlier than thought

	mu   sync.Mutex
	held map[*held]struct{}
	next time.Time // when run looks at the leases again
}

// extendsMax bounds the extensions on their way at a time.
const extendsMax = 32

// A held job is one under a live lease. Its times and states are guarded by keeper.mu once it is taken.
type held struct {
	job       *Job
	length    time.Duration // of the lease
	renewAt   time.Time     // when the next extension is due
	endsAt    time.Time     // when the lease may be over
	lastAt    time.Time     // no extension after this
	extending bool
	lost      error                   // not nil once the lease is lost
	byServer  bool                    // it was the server that said so
	finishing bool                    // the server is being told what became of the job
	cancel    context.CancelCauseFunc // ends the handler's context; nil until it begins
}

func newKeeper(c *Client, w Worker) *keeper {
	return &keeper{
		client: c, worker: w, extends: make(chan struct{}, extendsMax), wake: make(chan struct{}, 1),
		held: make(map[*held]struct{}),
	}
}

// run cares for the leases until ctx ends; then it waits for extensions on their way.
func (k *keeper) run(ctx context.Context) {
	var extending sync.WaitGroup
	defer extending.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-k.wake:
		}
		due, next := k.look(time.Now())
		for _, h := range due {
			extending.Go(func() {
				if err := k.extend(ctx, h); err != nil && ctx.Err() == nil {
					k.worker.OnError(h.job, err)
				}
			})
		}
		timer.Reset(next)
	}
}

// idleLook is how soon the leases are looked at again if none needs care.
const idleLook = time.Minute

// look ends the handlers whose leases are over, and gives the leases that are due to be extended and the time to the next
// look.
func (k *keeper) look(now time.Time) (due []*held, next time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.next = now.Add(idleLook)
	for h := range k.held {
		if h.lost != nil {
			continue
		}
		if !now.Before(h.endsAt) {
			k.lose(h, fmt.Errorf("the lease of job %s in queue %s ran out: %w", h.job.ID, h.job.Queue, ErrStaleLease))
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
		if at.Before(k.next) {
			k.next = at
		}
	}
	return due, k.next.Sub(now)
}

// lose marks a lease as lost and ends the handler's context. Called with mu held.
func (k *keeper) lose(h *held, cause error) {
	h.lost = cause
	if h.cancel != nil {
		h.cancel(cause)
	}
}

// take puts a job just reserved into the keeper's care. If the lease may be so old that it should be extended by now, it is doubtful: the
// caller must extend it, and only the server's answer says whether there is a lease.
func (k *keeper) take(job *Job) (h *held, doubtful bool) {
	h = &held{job: job, length: job.lease, lastAt: job.received.Add(k.worker.MaxLease)}
	if h.length <= 0 {
		h.length = job.TTR // a server that does not say when it granted the lease
	}
	doubtful = job.age >= h.length/3
	if doubtful {
		h.leasedAt(job.received) // it is certainly over a length after that
		h.extending = true
	} else {
		h.leasedAt(job.received.Add(-job.age))
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.held[h] = struct{}{}
	k.lookAt(h.renewAt)
	return h, doubtful
}

// lookAt has run look at the leases at t or before. Called with mu held.
func (k *keeper) lookAt(t time.Time) {
	if !t.Before(k.next) {
		return
	}
	k.next = t
	select {
	case k.wake <- struct{}{}:
	default: // run is about to look anyway
	}
}

// leasedAt notes that a lease runs from t or later.
func (h *held) leasedAt(t time.Time) {
	h.renewAt = t.Add(h.length / 3)
	h.endsAt = t.Add(h.length - min(h.length/10, 2*time.Second))
}

// reached reports whether it is t or later, on the monotonic clock or on the wall clock.
func reached(now, t time.Time) bool { return !now.Before(t) || !now.Round(0).Before(t.Round(0)) }

// begin hands a job to its handler: cancel ends its context. A lease of which little is left is extended first. The error says
// why the handler must not begin.
func (k *keeper) begin(ctx context.Context, h *held, cancel context.CancelCauseFunc) error {
	k.mu.Lock()
	h.cancel = cancel
	lost, short := h.lost, reached(time.Now(), h.endsAt.Add(-h.length/3))
	k.mu.Unlock()
	if lost != nil || !short {
		return lost
	}
	err := k.extend(ctx, h)
	k.mu.Lock()
	defer k.mu.Unlock()
	if h.lost != nil {
		return h.lost
	}
	return err
}

// extend extends a lease by its length, however often that must be tried while the lease lasts.
func (k *keeper) extend(ctx context.Context, h *held) error {
	ctx, cancel := context.WithTimeout(ctx, h.length)
	defer cancel()
	select {
	case k.extends <- struct{}{}:
		defer func() { <-k.extends }()
	case <-ctx.Done(): // shows in the call
	}
	sent := time.Now()
	_, err := k.client.Extend(ctx, h.job.Lease, k.worker.TTR)
	k.mu.Lock()
	defer k.mu.Unlock()
	h.extending = false
	defer func() { k.lookAt(h.renewAt) }()
	switch {
	case err == nil:
		h.leasedAt(sent)
		return nil
	case h.finishing:
		h.renewAt = time.Now().Add(h.length / 10)
		return nil // an ack that came first makes an extension fail; if the lease was lost, the ack fails too, and says so
	case errors.Is(err, ErrStaleLease), errors.Is(err, ErrJobNotFound):
		h.byServer = true
		k.lose(h, fmt.Errorf("the lease of job %s in queue %s is lost: %w", h.job.ID, h.job.Queue, err))
		return h.lost
	default:
		h.renewAt = time.Now().Add(h.length / 10)
		return fmt.Errorf("extending the lease of job %s in queue %s: %w", h.job.ID, h.job.Queue, err)
	}
}

// finish notes that the server is about to be told what became of a job. It returns the server's word that the lease is
// lost, nil if it has not said so.
func (k *keeper) finish(h *held) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	h.finishing = true
	if h.byServer {
		return h.lost
	}
	return nil
}

// forget ends the care for a job.
func (k *keeper) forget(h *held) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.held, h)
}

// all gives the jobs in the keeper's care, in no order.
func (k *keeper) all() []*held {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := make([]*held, 0, len(k.held))
	for h := range k.held {
		all = append(all, h)
	}
	return all
}
