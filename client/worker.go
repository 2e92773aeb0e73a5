package client

import (
	"context"
	"errors"
	"slices"
	"time"
)

// A Handler does the work of one job. Its context ends when the lease is lost, with [ErrStaleLease] as its cause, and when
// a stopping worker waits no longer; what it returns then no longer matters, respectively has the job given back. See the
// package's documentation for what else its result means. A panic is a failed attempt.
type Handler func(ctx context.Context, job *Job) error

// A Worker consumes jobs: it reserves them, runs a handler for each, extends their leases meanwhile, and finishes them by
// what the handler returns. A Worker is a configuration; it may run several times and at the same time.
type Worker struct {
	// Queues are 1 to 64 queues, tried in this order.
	Queues []string
	// Concurrency is how many handlers run at a time: 1 to 1,000, default 16.
	Concurrency int
	// Prefetch is how many jobs beyond those the worker holds, so that a handler need not wait for its next one: 0 to 1,000.
	// Jobs held here are out of reach of other workers. Default 0.
	Prefetch int
	// TTR is the length of the leases: 1 ms to 24 h. Default: each job's own.
	TTR time.Duration
	// MaxLease bounds for how long one job's lease is extended: the lease of a handler that hangs is let go after it. Default
	// 1 h.
	MaxLease time.Duration
	// ShutdownTimeout is how long handlers that run may go on when the worker stops. Default 25 s.
	ShutdownTimeout time.Duration
	// Middleware wraps the handler, in this order: the first is the outermost, sees each job first and its result last. What it returns
	// counts. A [Queue] decodes bodies beneath all of it.
	Middleware []func(next Handler) Handler
	// OnError, if not nil, hears of what goes wrong beside what handlers return: attempts to reserve (job is nil), panics of handlers, bodies
	// that a [Queue] cannot decode, acks, nacks, extensions. All of it is logged too; see [WithLogger]. It is called from several goroutines
	// and must not block. The worker itself goes on.
	OnError func(job *Job, err error)
}

const (
	concurrencyDefault     = 16
	concurrencyMax         = 1000
	maxLeaseDefault        = time.Hour
	shutdownTimeoutDefault = 25 * time.Second
	pollWait               = 20 * time.Second // of one long poll
	// A poll that is on its way when the worker stops is let finish for so long: a job that it brings can then be given
	// back, whereas one whose answer is cut off stays reserved until its lease lapses, and the attempt counts.
	pollGrace = 100 * time.Millisecond
	// stopGrace is how long handlers may take to return after their contexts ended.
	stopGrace = time.Second
	// finishTimeout bounds the attempts to tell the server what became of a job.
	finishTimeout = 30 * time.Second
)

// Run consumes jobs until ctx ends, and then stops in good order: it reserves no more, gives jobs back that no handler has
// begun, waits ShutdownTimeout for the handlers, ends the contexts of those that still run, and gives their jobs back too.
// No attempt is counted for a job given back. Run returns nil when all handlers have returned, else an error that says
// how many have not. If no call ever got an answer until ctx ended, because the server was out of reach, say, Run returns an error that wraps
// the last reason; trouble that came after an answer is logged, reported to OnError, and no error of Run.
//
// It also stops, and returns an error, if the configuration is wrong or the server refuses for good to hand out jobs.
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
