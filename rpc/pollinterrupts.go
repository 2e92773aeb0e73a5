package rpc

import "sync"

// Watchable is a Catalog that reports changes of queues.
type Watchable interface {
	// Altered returns a channel that is closed when the record of a queue is added, changed or
	// removed after this call.
	Altered() <-chan struct{}
}

// pollInterrupts interrupts the polls that wait. All of them share one channel and one goroutine.
// The zero value is ready for use.
type pollInterrupts struct {
	mu        sync.Mutex
	altered   <-chan struct{}
	interrupt chan struct{}
}

// nextInterrupt returns a channel that is closed when the server drains or a queue changes after
// this call.
func (p *pollInterrupts) nextInterrupt(service *queueService) <-chan struct{} {
	watchable, ok := service.catalog.(Watchable)
	if !ok {
		return service.drain.started
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if altered := watchable.Altered(); altered != p.altered {
		interrupt := make(chan struct{})
		p.altered, p.interrupt = altered, interrupt
		go func() {
			defer close(interrupt)
			select {
			case <-altered:
			case <-service.drain.started:
			}
		}()
	}
	return p.interrupt
}
