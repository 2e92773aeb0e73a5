package rpc

import (
	"context"
	"sync"
)

// drain marks when a server starts to stop. http.Server.Shutdown waits for requests and does not
// end their contexts, so polls that wait are ended through this type.
type drain struct {
	// started is closed when the drain starts.
	started chan struct{}
	start   func()
}

// newDrain returns a drain that has not started.
func newDrain() *drain {
	started := make(chan struct{})
	return &drain{started: started, start: sync.OnceFunc(func() { close(started) })}
}

// hasStarted reports whether the drain has started.
func (d *drain) hasStarted() bool {
	select {
	case <-d.started:
		return true
	default:
		return false
	}
}

// until returns a context that ends with ctx or when the drain starts, and a function that must be
// called when the context is not needed any more.
func (d *drain) until(ctx context.Context) (bound context.Context, end func()) {
	bound, cancel := context.WithCancel(ctx)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		select {
		case <-d.started:
			cancel()
		case <-bound.Done():
		}
	})
	return bound, func() {
		cancel()
		waiting.Wait()
	}
}
