package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/belfrydb/belfry/client/internal/consume"
	"github.com/belfrydb/belfry/client/internal/failure"
	"github.com/belfrydb/belfry/client/internal/lease"
	"github.com/belfrydb/belfry/rpc/portcheck"
)

// A workerRun is one run of a worker at a server. It implements [consume.Queue].
type workerRun struct {
	client  *Client
	worker  Worker
	handler Handler
	trouble *consume.Trouble
	looked  bool           // for queues that do not exist
	looking sync.WaitGroup // until it has looked
}

func newWorkerRun(c *Client, w Worker, h Handler) *workerRun {
	return &workerRun{client: c, worker: w, handler: h, trouble: consume.NewTrouble(c.logger, c.addresses)}
}

// run consumes jobs until ctx ends or the server refuses for good; see [Worker.Run] for how it
// stops.
func (s *workerRun) run(ctx context.Context) error {
	defer s.looking.Wait()
	return consume.Run(ctx, consume.Config[*Job]{
		Concurrency: s.worker.Concurrency, Prefetch: s.worker.Prefetch, BatchMax: batchJobsMax,
		ShutdownTimeout: s.worker.ShutdownTimeout, Queue: s, Trouble: s.trouble, OnError: s.failed, OnRefusal: s.refused,
		Lease: lease.Config[*Job]{
			MaxLease: s.worker.MaxLease, OnError: s.failed, Stale: ErrStaleLease,
			Extend: func(ctx context.Context, job *Job) error {
				_, err := s.client.Extend(ctx, job.Lease, s.worker.TTR)
				return err
			},
			Lost:     func(err error) bool { return errors.Is(err, ErrStaleLease) || errors.Is(err, ErrJobNotFound) },
			Describe: func(job *Job) string { return fmt.Sprintf("job %s in queue %s", job.ID, job.Queue) },
		},
	})
}

// failed reports a failure that concerns a job.
func (s *workerRun) failed(job *Job, err error) {
	s.client.logger.Warn("a worker had an error with a job", "queue", job.Queue, "id", job.ID,
		"attempt", job.Attempt, "error", err)
	s.worker.OnError(job, err)
}

// refused reports a failed attempt to reserve.
func (s *workerRun) refused(failed *failure.Error) {
	err := public(failed)
	s.trouble.Failed(err)
	s.worker.OnError(nil, err)
}

// Reserve implements [consume.Queue] by a long poll. If ctx ends during the poll, the poll has
// pollGrace to return jobs that it may have been granted. Jobs granted after that are collected and
// released.
func (s *workerRun) Reserve(ctx context.Context, n int) ([]*Job, *failure.Error) {
	polling, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(pollGrace, cancel) })
	defer stop()
	o := ReserveOptions{Queues: s.worker.Queues, Max: n, Wait: pollWait, TTR: s.worker.TTR}
	jobs, err := s.client.reserveMany(polling, o, s.refused)
	if err != nil {
		collecting, cancel := context.WithTimeout(context.WithoutCancel(ctx), consume.StopGrace)
		defer cancel()
		s.client.collect(collecting, o, err)
		return jobs, err
	}
	if !s.looked && (len(jobs) == 0 || len(s.worker.Queues) > 1) {
		s.looked = true
		s.looking.Go(func() { s.warnOfUnknown(ctx) })
	}
	return jobs, nil
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

// Final implements [consume.Queue].
func (s *workerRun) Final(err *failure.Error) error {
	if s.client.closed() != nil {
		return closedError()
	}
	switch err.Reason {
	case failure.Invalid, failure.Unauthenticated, failure.Forbidden, failure.Unimplemented:
		return public(err)
	default:
		if portcheck.Unfit(err) { // but a proxy may recover
			return public(err)
		}
		return nil
	}
}

// Lease implements [consume.Queue].
func (s *workerRun) Lease(job *Job) lease.Grant {
	length := job.lease
	if length <= 0 {
		length = job.TTR // the server did not say when it granted the lease
	}
	return lease.Grant{Received: job.received, Age: job.age, Length: length}
}

// Handle implements [consume.Queue].
func (s *workerRun) Handle(ctx context.Context, job *Job) (span consume.Span, result error) {
	ctx, op := s.client.tracer.Process(ctx, job.traced())
	result = consume.Protected(ctx, s.handler, job)
	op.End(consume.FailureOf(result))
	return op, result
}

// Finish implements [consume.Queue].
func (s *workerRun) Finish(ctx context.Context, job *Job, result error, interrupted bool) error {
	switch kind := consume.ResultOf(result).Kind; {
	case kind == consume.ResultDone:
		return job.Ack(ctx)
	case kind == consume.ResultRetry && interrupted:
		return job.Release(ctx, 0)
	}
	return job.Nack(ctx, result)
}

// Release implements [consume.Queue].
func (s *workerRun) Release(ctx context.Context, job *Job) error {
	_, _, err := s.client.release(ctx, job.Lease, 0)
	return err
}
