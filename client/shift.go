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
)

// A shift is one run of a worker: one goroutine polls, one keeps the leases, and as many as the worker's concurrency
// handle jobs.
type shift struct {
	client  *Client
	worker  Worker
	handler Handler
	keeper  *keeper
	trouble *trouble
	looking sync.WaitGroup // for queues that do not exist
	jobs    chan *held     // reserved, not begun; has room for every permit
	permits chan struct{}  // one value for each job that may be held beyond those that are
}

var (
	errShiftOver  = errors.New("the worker stopped")
	errNotStopped = errors.New("handlers did not return after their contexts ended; their jobs were given back")
)

func newShift(c *Client, w Worker, h Handler) *shift {
	lost, tell := &trouble{logger: c.logger, addresses: c.addresses}, w.OnError
	w.OnError = func(job *Job, err error) {
		if job == nil {
			lost.failed(err)
		} else {
			c.logger.Warn("a worker's job", "queue", job.Queue, "id", job.ID, "attempt", job.Attempt, "error", err)
		}
		tell(job, err)
	}
	s := &shift{
		client: c, worker: w, handler: h, keeper: newKeeper(c, w), trouble: lost,
		jobs:    make(chan *held, w.Concurrency+w.Prefetch),
		permits: make(chan struct{}, w.Concurrency+w.Prefetch),
	}
	s.permit(cap(s.permits))
	return s
}

// permit lets n more jobs be held.
func (s *shift) permit(n int) {
	for range n {
		s.permits <- struct{}{}
	}
}

// run works until ctx ends or the server refuses for good, and stops in good order.
func (s *shift) run(ctx context.Context) error {
	detached := context.WithoutCancel(ctx)
	work, stopWork := context.WithCancelCause(detached) // of the handlers
	defer stopWork(nil)
	finish, stopFinish := context.WithCancelCause(detached) // of telling the server what became of jobs
	defer stopFinish(errShiftOver)
	keep, stopKeeping := context.WithCancel(detached)

	var keeping sync.WaitGroup
	keeping.Go(func() { s.keeper.run(keep) })
	polling, stopPolling := context.WithCancel(ctx)
	done := s.startHandlers(polling, work, finish)

	err := s.poll(polling)
	stopPolling() // also if the server refused: then nothing new is begun either
	s.looking.Wait()
	close(s.jobs)
	s.giveBackUnbegun(finish)
	if !within(done, s.worker.ShutdownTimeout) {
		stopWork(errShiftOver)
		if !within(done, stopGrace) {
			stopFinish(errShiftOver)
			err = errors.Join(err, s.abandon(detached))
		}
	}
	stopKeeping()
	keeping.Wait()
	return cmp.Or(err, s.trouble.never())
}

// startHandlers starts the goroutines that handle jobs. The channel is closed when all have returned, which is after jobs
// was closed.
func (s *shift) startHandlers(polling, work, finish context.Context) <-chan struct{} {
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

// poll reserves jobs for as long as ctx lasts; the error is one that the server would give again.
func (s *shift) poll(ctx context.Context) error {
	looked := false
	for {
		n := s.takePermits(ctx)
		if n == 0 {
			return nil
		}
		jobs, err := s.reserve(ctx, n)
		s.permit(max(0, n-len(jobs)))
		for _, h := range s.secured(ctx, jobs) {
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
			return err
		}
		s.worker.OnError(nil, err)
		_ = sleep(ctx, backoffMax) // the end of ctx shows in takePermits
	}
}

// warnOfUnknown logs which of the worker's queues do not exist: a worker would wait for ever where a name is mistyped. It is no error, since a queue may be made
// later, by a put say. A look at each queue costs a call, so that it happens once: after the first poll that got nothing, or after the first one where there are several queues. It takes the scope
// admin, and ends with the first queue of which nothing can be known.
func (s *shift) warnOfUnknown(ctx context.Context) {
	for _, queue := range s.worker.Queues {
		switch _, err := s.client.Admin().Queue(ctx, queue); {
		case errors.Is(err, reasonQueueNotFound):
			s.client.logger.Warn("a worker's queue does not exist yet", "queue", queue)
		case err != nil:
			return
		}
	}
}

// permanent reports whether a refusal to hand out jobs will not go away by itself.
func permanent(err *Error) bool {
	switch err.Reason {
	case reasonInvalid, reasonUnauthenticated, reasonForbidden, reasonUnimplemented:
		return true
	default:
		return unfit(err) // a proxy may be set up meanwhile
	}
}

// takePermits waits until a job may be held, and takes all permits there are; none if ctx ended.
func (s *shift) takePermits(ctx context.Context) int {
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

// reserve polls once. If ctx ends meanwhile the poll has pollGrace to bring what it may have got; what it gets after that is
// collected and given back.
func (s *shift) reserve(ctx context.Context, n int) ([]*Job, *Error) {
	polling, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(pollGrace, cancel) })
	defer stop()
	o := ReserveOptions{Queues: s.worker.Queues, Max: n, Wait: pollWait, TTR: s.worker.TTR}
	jobs, err := s.client.reserveMany(polling, o, func(err *Error) { s.worker.OnError(nil, err) })
	if err != nil {
		collecting, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopGrace)
		defer cancel()
		s.client.collect(collecting, o, err)
	}
	return jobs, err
}

// secured puts jobs into the keeper's care. Normally a lease has just begun. If the poll had to be repeated, or its answer was
// held up, it may be about to end: then it is extended before anything else, and the job is given back if that fails.
func (s *shift) secured(ctx context.Context, jobs []*Job) []*held {
	all := make([]*held, len(jobs))
	var extending sync.WaitGroup
	for i, job := range jobs {
		h, doubtful := s.keeper.take(job)
		all[i] = h
		if !doubtful {
			continue
		}
		extending.Go(func() { // as many at a time as the keeper lets
			if err := s.keeper.extend(ctx, h); err != nil {
				all[i] = nil
				s.worker.OnError(job, err)
				s.giveBack(context.WithoutCancel(ctx), h)
				s.permit(1)
			}
		})
	}
	extending.Wait()
	return slices.DeleteFunc(all, func(h *held) bool { return h == nil })
}

// handle runs the handler for one job and tells the server what became of it.
func (s *shift) handle(work, finish context.Context, h *held) {
	defer s.keeper.forget(h)
	ctx, cancel := context.WithCancelCause(work)
	defer cancel(nil)
	if err := s.keeper.begin(ctx, h, cancel); err != nil {
		s.worker.OnError(h.job, err)
		if !errors.Is(err, ErrStaleLease) {
			s.giveBack(finish, h)
		}
		return
	}
	ctx, op := s.client.tracing.process(ctx, h.job)
	result := protected(ctx, s.handler, h.job)
	op.end(failureOf(result))
	if failed := (*attemptError)(nil); errors.As(result, &failed) {
		s.worker.OnError(h.job, failed)
	}
	if err := s.finish(work, op.in(finish), h, result); err != nil && finish.Err() == nil {
		s.worker.OnError(h.job, err)
	}
}

// protected calls a handler, and makes a panic an error with the place it came from.
func protected(ctx context.Context, h Handler, job *Job) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &attemptError{fmt.Errorf("panic: %v\n%s", value, debug.Stack())}
		}
	}()
	return h(ctx, job)
}

// finish tells the server what became of a job.
func (s *shift) finish(work, finish context.Context, h *held, result error) error {
	if err := s.keeper.finish(h); err != nil {
		return err // by the server: it would refuse what we say now too
	}
	ctx, cancel := context.WithTimeout(finish, finishTimeout)
	defer cancel()
	verdict := verdictOf(result)
	if verdict.kind == verdictDone {
		return h.job.Ack(ctx)
	}
	if verdict.kind == verdictRetry && work.Err() != nil {
		return h.job.Release(ctx, 0) // it was we who ended the attempt
	}
	return h.job.Nack(ctx, result)
}

// giveBackUnbegun gives back the jobs that no handler has begun.
func (s *shift) giveBackUnbegun(finish context.Context) {
	var all sync.WaitGroup
	for h := range s.jobs {
		all.Go(func() { s.giveBack(finish, h) })
	}
	all.Wait()
}

// giveBack gives a job back without counting an attempt.
func (s *shift) giveBack(ctx context.Context, h *held) {
	defer s.keeper.forget(h)
	if s.keeper.finish(h) != nil {
		return // it is not ours any more
	}
	ctx, cancel := context.WithTimeout(ctx, finishTimeout)
	defer cancel()
	if _, _, err := s.client.release(ctx, h.job.Lease, 0); err != nil {
		s.worker.OnError(h.job, err)
	}
}

// abandon gives back the jobs of handlers that do not return.
func (s *shift) abandon(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stopGrace)
	defer cancel()
	left := s.keeper.all()
	var all sync.WaitGroup
	for _, h := range left {
		all.Go(func() { s.giveBack(ctx, h) })
	}
	all.Wait()
	return fmt.Errorf("%d %w", len(left), errNotStopped)
}
