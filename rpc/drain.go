package rpc

import (
	"context"
	"sync"
)

// drain is the moment at which a server begins to stop. http.Server.Shutdown waits for requests and does not end their
// contexts, so polls that wait must be ended another way.
type drain struct {
	// begun is closed at that moment.
	begun chan struct{}
	once  sync.Once
	// after arranges for f to run at that moment, unless stop is called first.
	after func(f func()) (stop func() bool)
	begin func()
}

// newDrain returns a drain that has not begun.
func newDrain() *drain {
	ctx, cancel := context.WithCancel(context.Background())
	d := &drain{begun: make(chan struct{}), after: func(f func()) func() bool { return context.AfterFunc(ctx, f) }}
	d.begin = func() {
		d.once.Do(func() {
			close(d.begun)
			cancel()
		})
	}
	return d
}

// isBegun reports whether the moment has passed.
func (d *drain) isBegun() bool {
	select {
	case <-d.begun:
		return true
	default:
		return false
	}
}

// until returns a context that ends with ctx or with the beginning of the drain. stop must be called.
func (d *drain) until(ctx context.Context) (until context.Context, stop context.CancelFunc) {
	until, cancel := context.WithCancel(ctx)
	forget := d.after(cancel)
	return until, func() {
		forget()
		cancel()
	}
}
