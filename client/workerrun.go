package client

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
	"github.com/belfrydb/belfry/rpc/portcheck"
)

// A workerRun is one run of a worker. One goroutine polls, one extends the leases, and
// Worker.Concurrency goroutines run handlers.
type workerRun struct {
	client  *Client
	worker  Worker
	handler Handler
	leases  *lease.Renewer[*Job]
	trouble *trouble
	looking sync.WaitGroup         // for queues that do not exist
	jobs    chan *lease.Held[*Job] // reserved, without a handler yet; has room for every permit
	permits chan struct{}          // one value for each further job that may be reserved
}

var (
	errRunOver    = errors.New("the worker stopped")
	errNotStopped = errors.New("handlers did not return after their contexts ended; their jobs were given back")
)

func newWorkerRun(c *Client, w Worker, h Handler) *workerRun {
	lost, tell := &trouble{logger: c.logger, addresses: c.addresses}, w.OnError
	w.OnError = func(job *Job, err error) {
		if job == nil {
			lost.failed(err)
		} else {
			c.logger.Warn("a worker's job", "queue", job.Queue, "id", job.ID, "attempt", job.Attempt, "error", err)
		}
		tell(job, err)
	}
	s := &workerRun{
		client: c, worker: w, handler: h, leases: newRenewer(c, w), trouble: lost,
		jobs:    make(chan *lease.Held[*Job], w.Concurrency+w.Prefetch),
		permits: make(chan struct{}, w.Concurrency+w.Prefetch),
	}
	s.permit(cap(s.permits))
	return s
}

// newRenewer returns what extends the leases of a worker.
func newRenewer(c *Client, w Worker) *lease.Renewer[*Job] {
	return lease.NewRenewer(lease.Config[*Job]{
		MaxLease: w.MaxLease, OnError: w.OnError, Stale: ErrStaleLease,
		Extend: func(ctx context.Context, job *Job) error {
			_, err := c.Extend(ctx, job.Lease, w.TTR)
			return err
		},
		Lost:     func(err error) bool { return errors.Is(err, ErrStaleLease) || errors.Is(err, ErrJobNotFound) },
		Describe: func(job *Job) string { return fmt.Sprintf("job %s in queue %s", job.ID, job.Queue) },
	})
}

// grant returns what is known of the lease of a job that was just reserved.
func (j *Job) grant() lease.Grant {
	length := j.lease
	if length <= 0 {
		length = j.TTR // the server did not say when it granted the lease
	}
	return lease.Grant{Received: j.received, Age: j.age, Length: length}
}

// permit allows n more jobs to be reserved.
func (s *workerRun) permit(n int) {
	for range n {
		s.permits <- struct{}{}
	}
}

// run consumes jobs until ctx ends or the server refuses for good; see [Worker.Run] for how it
// stops.
func (s *workerRun) run(ctx context.Context) error {
	detached := context.WithoutCancel(ctx)
	work, stopWork := context.WithCancelCause(detached) // for the handlers
	defer stopWork(nil)
	finish, stopFinish := context.WithCancelCause(detached) // for acks, nacks and releases
	defer stopFinish(errRunOver)
	keep, stopKeeping := context.WithCancel(detached)

	var keeping sync.WaitGroup
	keeping.Go(func() { s.leases.Run(keep) })
	polling, stopPolling := context.WithCancel(ctx)
	done := s.startHandlers(polling, work, finish)

	err := s.poll(polling)
	stopPolling() // also if the server refused: no further handler runs
	s.looking.Wait()
	close(s.jobs)
	s.giveBackUnbegun(finish)
	if !within(done, s.worker.ShutdownTimeout) {
		stopWork(errRunOver)
		if !within(done, stopGrace) {
			stopFinish(errRunOver)
			err = errors.Join(err, s.releaseStuck(detached))
		}
	}
	stopKeeping()
	keeping.Wait()
	return cmp.Or(err, s.trouble.never())
}

// startHandlers starts the goroutines that run handlers. They return after jobs is closed; the
// channel is closed when all have returned.
func (s *workerRun) startHandlers(polling, work, finish context.Context) <-chan struct{} {
	var handlers sync.WaitGroup
	for range s.worker.Concurrency {
		handlers.Go(func() {
			for h := range s.jobs {
				if polling.Err() != nil {
					s.giveBack(finish, h)
				} else {
					s.handle(work, finish, h)
				}
				s.permit(1)
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
func (s *workerRun) poll(ctx context.Context) error {
	looked := false
	for {
		n := s.takePermits(ctx)
		if n == 0 {
			return nil
		}
		jobs, err := s.reserve(ctx, n)
		s.permit(max(0, n-len(jobs)))
		for _, h := range s.secureLeases(ctx, jobs) {
			s.jobs <- h
		}
		switch {
		case err == nil:
			s.trouble.succeeded()
			if !looked && (len(jobs) == 0 || len(s.worker.Queues) > 1) {
				looked = true
				s.looking.Go(func() { s.warnOfUnknown(ctx) })
			}
			continue
		case ctx.Err() != nil:
			return nil
		case s.client.closed() != nil:
			return closedError()
		case permanent(err):
			return public(err)
		}
		s.worker.OnError(nil, public(err))
		_ = failure.Sleep(ctx, failure.BackoffMax) // the end of ctx shows in takePermits
	}
}

// warnOfUnknown logs which of the worker's queues do not exist: a worker with a mistyped name would
// wait for ever. This is no error, since a later put may create the queue. It costs a call for each
// queue, so it runs once: after the first poll that got no job, or after the first poll if there
// are several queues. It needs the scope admin, and ends at the first queue that it cannot look up.
func (s *workerRun) warnOfUnknown(ctx context.Context) {
	for _, queue := range s.worker.Queues {
		switch _, err := s.client.Admin().Queue(ctx, queue); {
		case errors.Is(err, Reason(failure.QueueNotFound)):
			s.client.logger.Warn("a worker's queue does not exist yet", "queue", queue)
		case err != nil:
			return
		}
	}
}

// permanent reports whether a further attempt to reserve would be refused again.
func permanent(err *failure.Error) bool {
	switch err.Reason {
	case failure.Invalid, failure.Unauthenticated, failure.Forbidden, failure.Unimplemented:
		return true
	default:
		return portcheck.Unfit(err) // but a proxy may recover
	}
}

// takePermits waits for a permit and takes all that are free, up to a full batch. It returns 0 if
// ctx ended.
func (s *workerRun) takePermits(ctx context.Context) int {
	if ctx.Err() != nil {
		return 0
	}
	select {
	case <-s.permits:
	case <-ctx.Done():
		return 0
	}
	n := 1
	for n < batchJobsMax {
		select {
		case <-s.permits:
			n++
		default:
			return n
		}
	}
	return n
}

// reserve polls once. If ctx ends during the poll, the poll has pollGrace to return jobs that it
// may have been granted. Jobs granted after that are collected and released.
func (s *workerRun) reserve(ctx context.Context, n int) ([]*Job, *failure.Error) {
	polling, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(pollGrace, cancel) })
	defer stop()
	o := ReserveOptions{Queues: s.worker.Queues, Max: n, Wait: pollWait, TTR: s.worker.TTR}
	jobs, err := s.client.reserveMany(polling, o, func(err *failure.Error) { s.worker.OnError(nil, public(err)) })
	if err != nil {
		collecting, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopGrace)
		defer cancel()
		s.client.collect(collecting, o, err)
	}
	return jobs, err
}

// secureLeases adds jobs to the lease renewer. A lease has normally just begun. If the poll was
// repeated or its answer was delayed, the lease may be about to end: secureLeases extends it first,
// and releases the job if that fails.
func (s *workerRun) secureLeases(ctx context.Context, jobs []*Job) []*lease.Held[*Job] {
	all := make([]*lease.Held[*Job], len(jobs))
	var extending sync.WaitGroup
	for i, job := range jobs {
		h, doubtful := s.leases.Add(job, job.grant())
		all[i] = h
		if !doubtful {
			continue
		}
		extending.Go(func() { // lease.ExtendsMax bounds how many at a time
			if err := s.leases.Extend(ctx, h); err != nil {
				all[i] = nil
				s.worker.OnError(job, err)
				s.giveBack(context.WithoutCancel(ctx), h)
				s.permit(1)
			}
		})
	}
	extending.Wait()
	return slices.DeleteFunc(all, func(h *lease.Held[*Job]) bool { return h == nil })
}

// handle runs the handler for one job and acks, nacks or releases the job.
func (s *workerRun) handle(work, finish context.Context, h *lease.Held[*Job]) {
	defer s.leases.Remove(h)
	ctx, cancel := context.WithCancelCause(work)
	defer cancel(nil)
	if err := s.leases.StartHandler(ctx, h, cancel); err != nil {
		s.worker.OnError(h.Job, err)
		if !errors.Is(err, ErrStaleLease) {
			s.giveBack(finish, h)
		}
		return
	}
	ctx, op := s.client.tracer.Process(ctx, h.Job.traced())
	result := protected(ctx, s.handler, h.Job)
	op.End(failureOf(result))
	if failed := (*attemptError)(nil); errors.As(result, &failed) {
		s.worker.OnError(h.Job, failed)
	}
	if err := s.finish(work, op.In(finish), h, result); err != nil && finish.Err() == nil {
		s.worker.OnError(h.Job, err)
	}
}

// protected calls a handler. It returns a panic as an error with the stack.
func protected(ctx context.Context, h Handler, job *Job) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &attemptError{fmt.Errorf("panic: %v\n%s", value, debug.Stack())}
		}
	}()
	return h(ctx, job)
}

// finish acks, nacks or releases a job, as the handler's result asks.
func (s *workerRun) finish(work, finish context.Context, h *lease.Held[*Job], result error) error {
	if err := s.leases.StartFinish(h); err != nil {
		return err // the server would refuse any of them
	}
	ctx, cancel := context.WithTimeout(finish, finishTimeout)
	defer cancel()
	switch kind := resultOf(result).kind; {
	case kind == resultDone:
		return h.Job.Ack(ctx)
	case kind == resultRetry && work.Err() != nil:
		return h.Job.Release(ctx, 0) // the worker ended the attempt
	}
	return h.Job.Nack(ctx, result)
}

// giveBackUnbegun releases the jobs without a handler.
func (s *workerRun) giveBackUnbegun(finish context.Context) {
	var all sync.WaitGroup
	for h := range s.jobs {
		all.Go(func() { s.giveBack(finish, h) })
	}
	all.Wait()
}

// giveBack releases a job without counting the attempt.
func (s *workerRun) giveBack(ctx context.Context, h *lease.Held[*Job]) {
	defer s.leases.Remove(h)
	if s.leases.StartFinish(h) != nil {
		return // the lease is lost
	}
	ctx, cancel := context.WithTimeout(ctx, finishTimeout)
	defer cancel()
	if _, _, err := s.client.release(ctx, h.Job.Lease, 0); err != nil {
		s.worker.OnError(h.Job, err)
	}
}

// releaseStuck releases the jobs of handlers that do not return.
func (s *workerRun) releaseStuck(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stopGrace)
	defer cancel()
	left := s.leases.All()
	var all sync.WaitGroup
	for _, h := range left {
		all.Go(func() { s.giveBack(ctx, h) })
	}
	all.Wait()
	return fmt.Errorf("%d %w", len(left), errNotStopped)
}
