package rpc

import "sync"

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
	p.mu.Lock()
	defer p.mu.Unlock()
	altered := service.Catalog.Altered()
	if altered == nil {
		return service.drain.Started
	}
	if altered != p.altered {
		interrupt := make(chan struct{})
		p.altered, p.interrupt = altered, interrupt
		go func() {
			defer close(interrupt)
			select {
			case <-altered:
			case <-service.drain.Started:
			}
		}()
	}
	return p.interrupt
}
