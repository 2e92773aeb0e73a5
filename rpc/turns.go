package rpc

import "sync"

// turnsMax bounds the queues whose turns are kept. Only queues of several partitions have turns, and those were created on purpose.
const turnsMax = 10_000

// turns says which partition of a queue a poll asks first: each in its turn, so that a full partition keeps no other waiting. Each queue has turns of its
// own, since what else goes on would otherwise decide which partitions a queue's polls meet. The zero value is ready for use.
type turns struct {
	mu      sync.Mutex
	byQueue map[string]uint32
}

// next returns the next turn of a queue, below n.
func (t *turns) next(queue string, n int) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byQueue == nil || len(t.byQueue) >= turnsMax {
		t.byQueue = map[string]uint32{}
	}
	turn := t.byQueue[queue]
	t.byQueue[queue] = turn + 1
	return int(turn % uint32(n)) //nolint:gosec // a number of partitions
}
