package queue

import (
	"sync"

	"github.com/belfrydb/belfry/rpc/backend"
)

// interrupts interrupts the polls that wait. All of them share one channel and one goroutine.
// The zero value is ready for use.
type interrupts struct {
	mu        sync.Mutex
	altered   <-chan struct{}
	interrupt chan struct{}
}

// next returns a channel that is closed when the server drains or the catalog changes after this
// call.
func (p *interrupts) next(catalog backend.Catalog, draining <-chan struct{}) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	altered := catalog.Altered()
	if altered != p.altered {
		interrupt := make(chan struct{})
		p.altered, p.interrupt = altered, interrupt
		go func() {
			defer close(interrupt)
			select {
			case <-altered:
			case <-draining:
			}
		}()
	}
	return p.interrupt
}
