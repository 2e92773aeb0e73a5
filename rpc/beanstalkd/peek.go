package beanstalkd

import (
	"context"

	"github.com/belfrydb/belfry/access/tokens"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/rpc/beanstalkd/protocol"
	"github.com/belfrydb/belfry/rpc/fault"
)

// peek shows a job.
func (c *conn) peek(ctx context.Context, id uint64) *fault.Error {
	job, f := c.find(ctx, id, tokens.Consume)
	if job != nil {
		c.out = protocol.AppendFound(c.out, id, job.Body)
	}
	return f
}

// peekFirst shows the first job of the tube in use in a state. In a queue with several partitions it
// is the first one of those of the partitions.
func (c *conn) peekFirst(ctx context.Context, state fsm.State) *fault.Error {
	if f := c.door.cfg.Queues.Allow(ctx, tokens.Consume, c.queue); f != nil {
		return f
	}
	first, shard, f := c.first(ctx, c.queue, state)
	switch {
	case f != nil:
		return f
	case first == nil:
		c.answer(protocol.NotFound)
	default:
		c.out = protocol.AppendFound(c.out, protocol.IDOf(shard, first.Serial), first.Body)
	}
	return nil
}

// first returns the first job of a queue in a state, and its shard; nil if there is none.
func (c *conn) first(ctx context.Context, queue string, state fsm.State) (first *fsm.Job, at uint32, f *fault.Error) {
	router := &c.door.cfg.Router
	for _, shard := range router.Shards(queue) {
		r, f := c.query(ctx, shard, &fsm.FirstQuery{Queue: queue, State: state})
		if f != nil {
			return nil, 0, f
		}
		if len(r.Jobs) > 0 && (first == nil || precedes(&r.Jobs[0], first, state)) {
			first, at = &r.Jobs[0], shard
		}
	}
	return first, at, nil
}

// precedes reports whether a job comes before another one that is in the same state.
func precedes(a, b *fsm.Job, state fsm.State) bool {
	switch {
	case state == fsm.Ready && a.Priority != b.Priority:
		return a.Priority < b.Priority
	case state == fsm.Ready:
		return a.Created < b.Created
	case state == fsm.Dead:
		return a.Died < b.Died
	default:
		return a.Due < b.Due
	}
}
