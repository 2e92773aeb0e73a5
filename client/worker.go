package client

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/belfrydb/belfry/client/internal/consume"
)

// A Handler does the work of one job. See the package's documentation for the meaning of its
// result. A panic is a failed attempt.
//
// The handler's context ends when the lease is lost, with [ErrStaleLease] as the cause. The result
// then counts only if the lease still lasts at the server. The context also ends when a stopping
// worker waits no longer. A plain error, or a panic, then releases the job; other results count as
// usual.
type Handler func(ctx context.Context, job *Job) error

// A Worker consumes jobs: it reserves them, runs a handler for each, extends their leases
// meanwhile, and finishes them according to the handler's result. A Worker is a configuration. It
// may run several times, also at the same time.
type Worker struct {
	// Queues are 1 to 64 queues, tried in this order.
	Queues []string
	// Concurrency is how many handlers run at a time: 1 to 1,000, default 16.
	Concurrency int
	// Prefetch is how many jobs the worker holds beyond those that handlers run, so that a handler
	// need not wait for its next job: 0 to 1,000. Other workers cannot get these jobs. Default 0.
	Prefetch int
	// TTR is the length of the leases: 1 ms to 24 h. Default: each job's own.
	TTR time.Duration
	// MaxLease is how long the worker extends one job's lease at most. After that, the lease of a
	// handler that hangs expires. Default 1 h.
	MaxLease time.Duration
	// ShutdownTimeout is how long running handlers may go on when the worker stops. Default 25 s.
	ShutdownTimeout time.Duration
	// Middleware wraps the handler, in this order: the first is the outermost. It sees each job
	// first and each result last. The result of the outermost counts. A [Queue] decodes bodies
	// beneath all middleware.
	Middleware []func(next Handler) Handler
	// OnError, if not nil, is called with failures other than the results of handlers: failed
	// attempts to reserve (job is nil), panics of handlers, bodies that a [Queue] cannot decode,
	// and failed acks, nacks and extensions. The worker logs all of these too; see [WithLogger].
	// OnError is called from several goroutines and must not block. The worker itself goes on.
	OnError func(job *Job, err error)
}

const (
	concurrencyDefault     = 16
	concurrencyMax         = 1000
	maxLeaseDefault        = time.Hour
	shutdownTimeoutDefault = 25 * time.Second
	pollWait               = 20 * time.Second // of one long poll
	// pollGrace is how long a poll in flight may go on when the worker stops. A job that it brings
	// can then be released. If its answer is cut off, the job stays reserved until the lease
	// expires, and the attempt counts.
	pollGrace = 100 * time.Millisecond
)

// Run consumes jobs until ctx ends, and then stops in good order. It reserves no more, releases
// jobs that no handler has begun, and waits ShutdownTimeout for the handlers. Then it ends the
// contexts of those that still run, and releases the jobs that they do not finish. No attempt
// counts for a released job.
//
// Run returns nil if all handlers have returned, otherwise an error that says how many have not. If
// no call got an answer before ctx ended, for example because the server was out of reach, Run
// returns an error that wraps the last reason. Failures after a first answer are logged and
// reported to OnError, but Run does not return them.
//
// Run also stops, and returns an error, if the configuration is wrong or the server permanently
// refuses to reserve jobs.
func (w Worker) Run(ctx context.Context, c *Client, h Handler) error {
	w, err := w.checked()
	if err != nil {
		return err
	}
	for _, wrap := range slices.Backward(w.Middleware) {
		h = wrap(h)
	}
	return newWorkerRun(c, w, h).run(ctx)
}

// checked fills in defaults and refuses what is out of range.
func (w Worker) checked() (Worker, error) {
	setDefault(&w.Concurrency, concurrencyDefault)
	setDefault(&w.MaxLease, maxLeaseDefault)
	setDefault(&w.ShutdownTimeout, shutdownTimeoutDefault)
	if w.OnError == nil {
		w.OnError = func(*Job, error) {}
	}
	var problems []error
	if len(w.Queues) == 0 {
		problems = append(problems, invalidError("Worker.Queues is empty"))
	}
	if w.Concurrency < 1 || w.Concurrency > concurrencyMax {
		problems = append(problems, invalidError("Worker.Concurrency is %d, must be 1 to %d", w.Concurrency, concurrencyMax))
	}
	if w.Prefetch < 0 || w.Prefetch > concurrencyMax {
		problems = append(problems, invalidError("Worker.Prefetch is %d, must be 0 to %d", w.Prefetch, concurrencyMax))
	}
	if w.TTR < 0 || w.MaxLease < 0 || w.ShutdownTimeout < 0 {
		problems = append(problems, invalidError("Worker.TTR, MaxLease and ShutdownTimeout must not be negative"))
	}
	return w, errors.Join(problems...)
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// RetryAfter returns an error for a handler to return: the job is tried again after d (0 to 100
// years) instead of its retry delay. The attempt counts. The error may be wrapped.
func RetryAfter(d time.Duration, err error) error { return consume.RetryAfter(d, err) }

// Dead returns an error for a handler to return when no further attempt can succeed: the job is
// dead at once.
func Dead(err error) error { return consume.Dead(err) }

// Snooze returns an error for a handler to return when it is too early for the job: the job is
// released and due again after d (0 to 100 years). The attempt does not count.
func Snooze(d time.Duration) error { return consume.Snooze(d) }
