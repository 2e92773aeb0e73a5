// Package consume runs handlers for jobs: it reserves jobs, keeps their leases while handlers run,
// finishes them, and stops in good order. It knows no server.
package consume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/belfrydb/belfry/client/internal/failure"
	"github.com/belfrydb/belfry/client/internal/lease"
)

// Queue is where a run gets its jobs, and what it may do with them. J is a job.
type Queue[J any] interface {
	// Reserve reserves up to n jobs with one poll. Once ctx ends, it returns soon.
	Reserve(ctx context.Context, n int) ([]J, *failure.Error)
	// Final returns the error with which the run ends after a failed Reserve, nil if a further
	// attempt may succeed.
	Final(err *failure.Error) error
	// Lease returns what is known of the lease of a job that was just reserved.
	Lease(job J) lease.Grant
	// Handle runs the handler of a job in a span, to which the call that finishes the job belongs.
	Handle(ctx context.Context, job J) (span Span, result error)
	// Finish finishes a job as the result of its handler asks. If the run ended the attempt
	// (interrupted), a plain failure does not count.
	Finish(ctx context.Context, job J, result error, interrupted bool) error
	// Release gives a job back without counting the attempt.
	Release(ctx context.Context, job J) error
}

// A Span is what traces say of the work of one job.
type Span interface {
	// In returns ctx with the span in it.
	In(ctx context.Context) context.Context
}

// Config says how a run works. J is a job.
type Config[J any] struct {
	// Concurrency is how many handlers run at a time, Prefetch how many more jobs are held.
	Concurrency, Prefetch int
	// BatchMax bounds the jobs of one Reserve.
	BatchMax int
	// ShutdownTimeout is how long handlers may go on when the run stops.
	ShutdownTimeout time.Duration
	Queue           Queue[J]
	Lease           lease.Config[J]
	Trouble         *Trouble
	// OnError is called with failures that concern a job, from several goroutines.
	OnError func(job J, err error)
	// OnRefusal is called with a failed Reserve after which the run goes on.
	OnRefusal func(err *failure.Error)
}

const (
	// StopGrace is how long handlers may take to return after their contexts ended.
	StopGrace = time.Second
	// finishTimeout bounds the attempts to tell the server what became of a job.
	finishTimeout = 30 * time.Second
)

var (
	errOver = errors.New("the worker stopped")
	// ErrNotStopped says that handlers did not return in time. Run wraps it with their number.
	ErrNotStopped = errors.New("handlers did not return after their contexts ended; their jobs were given back")
)

// A run is one run of a worker. One goroutine polls, one extends the leases, and
// Config.Concurrency goroutines run handlers.
type run[J any] struct {
	Config[J]
	leases  *lease.Renewer[J]
	jobs    chan *lease.Held[J] // reserved, without a handler yet; has room for every permit
	permits chan struct{}       // one value for each further job that may be reserved
}

// Run consumes jobs until ctx ends or a failure is final. Then it reserves no more, releases the
// jobs without a handler, and waits ShutdownTimeout for the handlers. After that it ends the
// contexts of those that still run, and releases the jobs that they do not finish within StopGrace.
func Run[J any](ctx context.Context, cfg Config[J]) error {
	held := cfg.Concurrency + cfg.Prefetch
	r := &run[J]{
		Config: cfg, leases: lease.NewRenewer(cfg.Lease),
		jobs: make(chan *lease.Held[J], held), permits: make(chan struct{}, held),
	}
	r.permit(held)
	return r.run(ctx)
}

// permit allows n more jobs to be reserved.
func (r *run[J]) permit(n int) {
	for range n {
		r.permits <- struct{}{}
	}
}

func (r *run[J]) run(ctx context.Context) error {
	detached := context.WithoutCancel(ctx)
	work, stopWork := context.WithCancelCause(detached) // for the handlers
	defer stopWork(nil)
	finish, stopFinish := context.WithCancelCause(detached) // for acks, nacks and releases
	defer stopFinish(errOver)
	keep, stopKeeping := context.WithCancel(detached)

	var keeping sync.WaitGroup
	keeping.Go(func() { r.leases.Run(keep) })
	polling, stopPolling := context.WithCancel(ctx)
	done := r.startHandlers(polling, work, finish)

	err := r.poll(polling)
	stopPolling() // also if a failure was final: no further handler runs
	close(r.jobs)
	r.giveBackUnbegun(finish)
	if !within(done, r.ShutdownTimeout) {
		stopWork(errOver)
		if !within(done, StopGrace) {
			stopFinish(errOver)
			err = errors.Join(err, r.releaseStuck(detached))
		}
	}
	stopKeeping()
	keeping.Wait()
	return cmp.Or(err, r.Trouble.Never())
}

// startHandlers starts the goroutines that run handlers. They return after jobs is closed; the
// channel is closed when all have returned.
func (r *run[J]) startHandlers(polling, work, finish context.Context) <-chan struct{} {
	var handlers sync.WaitGroup
	for range r.Concurrency {
		handlers.Go(func() {
			for h := range r.jobs {
				if polling.Err() != nil {
					r.giveBack(finish, h)
				} else {
					r.handle(work, finish, h)
				}
				r.permit(1)
			}
		})
	}
	done := make(chan struct{})
	go func() {
		handlers.Wait()
		close(done)
	}()
	return done
}

// within waits for done, but not longer than d.
func within(done <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// poll reserves jobs until ctx ends. It returns early with an error that a further attempt would
// get again.
func (r *run[J]) poll(ctx context.Context) error {
	for {
		n := r.takePermits(ctx)
		if n == 0 {
			return nil
		}
		jobs, err := r.Queue.Reserve(ctx, n)
		r.permit(max(0, n-len(jobs)))
		for _, h := range r.secureLeases(ctx, jobs) {
			r.jobs <- h
		}
		if err == nil {
			r.Trouble.Succeeded()
			continue
		}
		if ctx.Err() != nil {
			return nil
		}
		if final := r.Queue.Final(err); final != nil {
			return final
		}
		r.OnRefusal(err)
		_ = failure.Sleep(ctx, failure.BackoffMax) // the end of ctx shows in takePermits
	}
}

// takePermits waits for a permit and takes all that are free, up to a full batch. It returns 0 if
// ctx ended.
func (r *run[J]) takePermits(ctx context.Context) int {
	if ctx.Err() != nil {
		return 0
	}
	select {
	case <-r.permits:
	case <-ctx.Done():
		return 0
	}
	n := 1
	for n < r.BatchMax {
		select {
		case <-r.permits:
			n++
		default:
			return n
		}
	}
	return n
}

// secureLeases adds jobs to the lease renewer. A lease has normally just begun. If the poll was
// repeated or its answer was delayed, the lease may be about to end: secureLeases extends it first,
// and releases the job if that fails.
func (r *run[J]) secureLeases(ctx context.Context, jobs []J) []*lease.Held[J] {
	all := make([]*lease.Held[J], len(jobs))
	var extending sync.WaitGroup
	for i, job := range jobs {
		h, doubtful := r.leases.Add(job, r.Queue.Lease(job))
		all[i] = h
		if !doubtful {
			continue
		}
		extending.Go(func() { // lease.ExtendsMax bounds how many at a time
			if err := r.leases.Extend(ctx, h); err != nil {
				all[i] = nil
				r.OnError(job, err)
				r.giveBack(context.WithoutCancel(ctx), h)
				r.permit(1)
			}
		})
	}
	extending.Wait()
	return slices.DeleteFunc(all, func(h *lease.Held[J]) bool { return h == nil })
}

// handle runs the handler for one job and acks, nacks or releases the job.
func (r *run[J]) handle(work, finish context.Context, h *lease.Held[J]) {
	defer r.leases.Remove(h)
	ctx, cancel := context.WithCancelCause(work)
	defer cancel(nil)
	if err := r.leases.StartHandler(ctx, h, cancel); err != nil {
		r.OnError(h.Job, err)
		if !errors.Is(err, r.Lease.Stale) {
			r.giveBack(finish, h)
		}
		return
	}
	span, result := r.Queue.Handle(ctx, h.Job)
	if failed, ok := errors.AsType[*AttemptError](result); ok {
		r.OnError(h.Job, failed)
	}
	if err := r.finish(work, span.In(finish), h, result); err != nil && finish.Err() == nil {
		r.OnError(h.Job, err)
	}
}

// finish acks, nacks or releases a job, as the handler's result asks.
func (r *run[J]) finish(work, finish context.Context, h *lease.Held[J], result error) error {
	if err := r.leases.StartFinish(h); err != nil {
		return err // the server would refuse any of them
	}
	ctx, cancel := context.WithTimeout(finish, finishTimeout)
	defer cancel()
	return r.Queue.Finish(ctx, h.Job, result, work.Err() != nil)
}

// giveBackUnbegun releases the jobs without a handler.
func (r *run[J]) giveBackUnbegun(finish context.Context) {
	var all sync.WaitGroup
	for h := range r.jobs {
		all.Go(func() { r.giveBack(finish, h) })
	}
	all.Wait()
}

// giveBack releases a job without counting the attempt.
func (r *run[J]) giveBack(ctx context.Context, h *lease.Held[J]) {
	defer r.leases.Remove(h)
	if r.leases.StartFinish(h) != nil {
		return // the lease is lost
	}
	ctx, cancel := context.WithTimeout(ctx, finishTimeout)
	defer cancel()
	if err := r.Queue.Release(ctx, h.Job); err != nil {
		r.OnError(h.Job, err)
	}
}

// releaseStuck releases the jobs of handlers that do not return.
func (r *run[J]) releaseStuck(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, StopGrace)
	defer cancel()
	left := r.leases.All()
	var all sync.WaitGroup
	for _, h := range left {
		all.Go(func() { r.giveBack(ctx, h) })
	}
	all.Wait()
	return fmt.Errorf("%d %w", len(left), ErrNotStopped)
}

// An AttemptError is an attempt that failed before the handler returned a result: the handler
// panicked, or the body could not be decoded.
type AttemptError struct{ Err error }

// Error implements error.
func (e *AttemptError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *AttemptError) Unwrap() error { return e.Err }

// Protected calls a handler. It returns a panic as an AttemptError with the stack.
func Protected[J any](ctx context.Context, handler func(context.Context, J) error, job J) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &AttemptError{fmt.Errorf("the handler panicked: %v\n%s", value, debug.Stack())}
		}
	}()
	return handler(ctx, job)
}
