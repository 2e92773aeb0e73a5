package node

import (
	"context"
	"time"
)

// settlePoll is the time between two checks of Settle whether reservations are in flight.
const settlePoll = time.Millisecond

// Settle carries out everything that is due in the shards that this node leads, grants due jobs to
// parked calls, and returns when nothing is left. It is for tests that move Config.Clock by hand;
// with a running clock it is not needed. It may be repeated after an error.
func (n *Node) Settle(ctx context.Context) error {
	for _, s := range n.here() {
		if !s.serves() {
			continue
		}
		if err := s.settle(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *shard) settle(ctx context.Context) error {
	deadline := s.nextDeadline()
	for more := deadline != 0 && deadline <= s.clock.Now(); more; {
		var err error
		if more, err = s.expire(ctx); err != nil {
			return s.refusal(err)
		}
	}
	return s.waiters.settle(ctx)
}

// settle checks all queues and returns when no reservable job waits to be granted.
func (ws *waiters) settle(ctx context.Context) error {
	ws.mu.Lock()
	ws.markAll()
	ws.mu.Unlock()
	look := time.NewTicker(settlePoll)
	defer look.Stop()
	for !ws.settled() {
		select {
		case <-look.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// settled reports whether no queue is being checked or has reservations in flight.
func (ws *waiters) settled() bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	busy := ws.closed == nil && (ws.looking || len(ws.dirty) > 0)
	for _, q := range ws.queues {
		busy = busy || q.reserving > 0
	}
	return !busy
}
