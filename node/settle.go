package node

import (
	"context"
	"time"
)

// settlePoll is how often Settle looks whether waiters still have reservations under way.
const settlePoll = time.Millisecond

// Settle carries out what is due by now in the shards that this node leads, hands jobs that are due to the calls that wait for them, and returns when
// nothing of that is left. It is for whoever moves Config.Clock by hand: a clock that runs needs none of it. The error is that of an entry, or
// why ctx ended; it may be repeated after any.
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

// settle has all queues looked at and returns when no job that is to be had waits to be handed out.
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

// settled reports whether no queue is being looked at or has reservations under way.
func (ws *waiters) settled() bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	busy := ws.closed == nil && (ws.looking || len(ws.dirty) > 0)
	for _, q := range ws.queues {
		busy = busy || q.reserving > 0
	}
	return !busy
}
