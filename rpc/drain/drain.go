// Package drain says when a server begins to stop. See the page of rpc for what ends then.
package drain

import (
	"context"
	"sync"
)

// Signal marks when a server starts to stop. http.Server.Shutdown waits for requests and does not
// end their contexts, so polls that wait are ended through this type.
type Signal struct {
	// Started is closed when the drain starts.
	Started chan struct{}
	// Start starts the drain. It may be called more than once.
	Start func()
}

// New returns a drain that has not started.
func New() *Signal {
	started := make(chan struct{})
	return &Signal{Started: started, Start: sync.OnceFunc(func() { close(started) })}
}

// HasStarted reports whether the drain has started.
func (d *Signal) HasStarted() bool {
	select {
	case <-d.Started:
		return true
	default:
		return false
	}
}

// Until returns a context that ends with ctx or when the drain starts, and a function that must be
// called when the context is not needed any more.
func (d *Signal) Until(ctx context.Context) (bound context.Context, end func()) {
	bound, cancel := context.WithCancel(ctx)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		select {
		case <-d.Started:
			cancel()
		case <-bound.Done():
		}
	})
	return bound, func() {
		cancel()
		waiting.Wait()
	}
}
