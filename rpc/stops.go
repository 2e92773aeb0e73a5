package rpc

import "sync"

// Watchable is a Catalog that tells when queues are altered.
type Watchable interface {
	// Altered returns a channel that is closed when the record of a queue begins, ends or changes after this call.
	Altered() <-chan struct{}
}

// stops are the moments at which polls cease to wait. All polls that wait share one channel and one goroutine. The zero value is ready for use.
type stops struct {
	mu      sync.Mutex
	altered <-chan struct{}
	stop    chan struct{}
}

// next returns a channel that is closed when the server drains or queues are altered after this call.
func (s *stops) next(service *queueService) <-chan struct{} {
	watchable, ok := service.catalog.(Watchable)
	if !ok {
		return service.drain.begun
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if altered := watchable.Altered(); altered != s.altered {
		stop := make(chan struct{})
		s.altered, s.stop = altered, stop
		go func() {
			defer close(stop)
			select {
			case <-altered:
			case <-service.drain.begun:
			}
		}()
	}
	return s.stop
}
