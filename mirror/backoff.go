package mirror

import (
	"context"
	"time"
)

// backoff waits longer after each failure.
type backoff struct{ last time.Duration }

const (
	backoffFirst = 50 * time.Millisecond
	backoffMax   = 2 * time.Second
)

// wait waits until another try makes sense.
func (p *backoff) wait(ctx context.Context) error {
	p.last = min(backoffMax, max(backoffFirst, 2*p.last))
	return sleep(ctx, p.last)
}

// sleep waits, or returns why ctx ended.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	alarm := time.NewTimer(d)
	defer alarm.Stop()
	select {
	case <-alarm.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
