package pair

import (
	"context"
	"time"
)

// Backoff waits longer after each failure: 50 ms at first, 2 s at most. The zero value is ready.
type Backoff struct{ last time.Duration }

const (
	backoffFirst = 50 * time.Millisecond
	backoffMax   = 2 * time.Second
)

// Wait waits until another try makes sense. It returns the cause if ctx ends before.
func (p *Backoff) Wait(ctx context.Context) error {
	p.last = min(backoffMax, max(backoffFirst, 2*p.last))
	return Sleep(ctx, p.last)
}

// Sleep waits for d. It returns the cause if ctx ends before.
func Sleep(ctx context.Context, d time.Duration) error {
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

// Outliving returns a context that ends, with the same cause, by later than ctx does. The caller
// must call end.
func Outliving(ctx context.Context, by time.Duration) (outlives context.Context, end context.CancelFunc) {
	outlives, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	alarms := make(chan *time.Timer, 1)
	stop := context.AfterFunc(ctx, func() { alarms <- time.AfterFunc(by, func() { cancel(context.Cause(ctx)) }) })
	return outlives, func() {
		if !stop() {
			(<-alarms).Stop()
		}
		cancel(nil)
	}
}
