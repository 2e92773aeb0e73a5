package queue

import "sync"

// rotationQueuesMax bounds the queues whose rotation is kept. Only queues with several partitions
// have one, and those were created on purpose.
const rotationQueuesMax = 10_000

// rotation says which partition of a queue a poll asks first: the next one each time, so that a full
// partition does not starve the others. Each queue has a rotation of its own, or the polls of other
// queues would decide which partitions its polls ask first. The zero value is ready for use.
type rotation struct {
	mu      sync.Mutex
	byQueue map[string]uint32
}

// nextIndex returns the index of the next partition of a queue, below n.
func (r *rotation) nextIndex(queue string, n int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byQueue == nil || len(r.byQueue) >= rotationQueuesMax {
		r.byQueue = map[string]uint32{}
	}
	next := r.byQueue[queue]
	r.byQueue[queue] = next + 1
	return int(next % uint32(n)) //nolint:gosec // a number of partitions
}
