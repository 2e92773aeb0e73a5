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
	begin func()
}

// newDrain returns a drain that has not begun.
func newDrain() *drain {
	begun := make(chan struct{})
	return &drain{begun: begun, begin: sync.OnceFunc(func() { close(begun) })}
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

// until returns a context that ends with ctx or when the drain begins, and a function that must be called when it is not needed any more.
func (d *drain) until(ctx context.Context) (bound context.Context, end func()) {
	bound, cancel := context.WithCancel(ctx)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		select {
		case <-d.begun:
			cancel()
		case <-bound.Done():
		}
	})
	return bound, func() {
		cancel()
		waiting.Wait()
	}
}
