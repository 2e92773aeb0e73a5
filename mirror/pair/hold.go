package pair

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/belfrydb/belfry/client"
)

// For how long after a process was killed no other may do its work: the bounds and the default of
// the Hold of options.
const (
	HoldMin     = time.Second
	HoldMax     = 5 * time.Minute
	HoldDefault = 15 * time.Second
)

const (
	holdID = "hold"
	// heldMax is how long one process may hold on: a server runs for long.
	heldMax = 10 * 365 * 24 * time.Hour
	// waitNotice is the wait after which a notice says that another process has the hold.
	waitNotice = time.Second
	// LingerMax is how long work that should end may finish what must not be left half done. The next
	// process finds and finishes the rest.
	LingerMax = 2 * time.Second
	// shutdownMax bounds that and the giving back of the hold, which ends by itself if Belfry does
	// not answer.
	shutdownMax = LingerMax + time.Second
)

// underHold runs work while this process holds the lease of the control queue's job. The lease
// lasts for ttr and is extended; work gets its fence. underHold waits until no other process has
// it, and calls waiting once if that takes a while. The context of work ends when the lease is
// lost; then ErrHoldLost is among the errors.
func underHold(ctx context.Context, c *client.Client, queue string, ttr time.Duration, waiting func(),
	work func(ctx context.Context, fence uint64) error) error {
	_, err := c.Put(ctx, queue, nil, client.ID(holdID), client.MaxAttempts(0), client.Again())
	if err != nil && !errors.Is(err, client.ErrJobExists) { // it may have been made with other options
		return fmt.Errorf("making the job whose lease is the right to mirror: %w", err)
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	notice := time.AfterFunc(waitNotice, waiting)
	defer notice.Stop()
	worked := make(chan error, 1)
	began := false
	worker := client.Worker{Queues: []string{queue}, Concurrency: 1, TTR: ttr, MaxLease: heldMax,
		ShutdownTimeout: shutdownMax}
	err = worker.Run(running, c, func(leased context.Context, job *client.Job) error {
		if began {
			return client.Snooze(0)
		}
		began = true
		notice.Stop()
		defer stop()
		held, end := context.WithCancelCause(ctx)
		defer end(nil)
		defer context.AfterFunc(leased, func() { end(context.Cause(leased)) })()
		ended := errBroken // unless it returns
		defer func() { worked <- ended }()
		ended = work(held, job.Fence)
		if errors.Is(context.Cause(leased), client.ErrStaleLease) {
			ended = errors.Join(ended, ErrHoldLost)
		}
		return client.Snooze(0)
	})
	select {
	case ended := <-worked:
		return errors.Join(ended, err, ctx.Err())
	default:
		return errors.Join(err, ctx.Err())
	}
}

// Holder reports whether a process has the hold, and when its lease ends unless it is extended.
func (l *Link) Holder(ctx context.Context) (held bool, until time.Time, err error) {
	job, err := l.Belfry.Get(ctx, l.control, holdID)
	switch {
	case IsGone(err):
		return false, time.Time{}, nil
	case err != nil:
		return false, time.Time{}, fmt.Errorf("looking who has the queue: %w", err)
	case job.State != "RESERVED":
		return false, time.Time{}, nil
	default:
		return true, job.LeaseUntil, nil
	}
}

// ErrHeld says that another process has the hold.
var ErrHeld = errors.New("another process mirrors this queue, or was killed a moment ago; waiting until it ends or " +
	"its hold does")

// errBroken says that work ended in a panic, which the worker has caught.
var errBroken = errors.New("the mirror broke down; this is a mistake of the program")

// ErrHoldLost says that the lease of the hold lapsed while work was under way: Belfry did not
// answer for so long.
var ErrHoldLost = errors.New("the right to mirror this queue was lost: Belfry could not be reached for too long, or " +
	"another process took over; run it again")
