package pair

import (
	"context"

	"github.com/belfrydb/belfry/mirror/redisconn"
)

// Begin does a check before any work, again while Redis is not reached. Any other error it returns,
// explained.
func (l *Link) Begin(ctx context.Context, check func(ctx context.Context) error) error {
	return l.repeat(ctx, check, redisconn.Fleeting)
}

// Persist does work, again while it fails with what may pass, as when Redis restarts. Any other
// error it returns, explained.
func (l *Link) Persist(ctx context.Context, work func(ctx context.Context) error) error {
	return l.repeat(ctx, work, Passing)
}

// repeat repeats work while it fails with what passes.
func (l *Link) repeat(ctx context.Context, work func(ctx context.Context) error, passes func(error) bool) error {
	for retry := (Backoff{}); ; {
		err := work(ctx)
		if err == nil {
			return nil
		}
		if err := l.wait(ctx, err, &retry, passes); err != nil {
			return err
		}
	}
}

// Outlast waits until another try makes sense after an error that may pass. It returns any other
// error, explained, and the cause if ctx has ended.
func (l *Link) Outlast(ctx context.Context, err error, retry *Backoff) error {
	return l.wait(ctx, err, retry, Passing)
}

// wait is Outlast with a choice of what passes.
func (l *Link) wait(ctx context.Context, err error, retry *Backoff, passes func(error) bool) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case !passes(err):
		return Explain(err)
	}
	l.Notice(Explain(err))
	return retry.Wait(ctx)
}
