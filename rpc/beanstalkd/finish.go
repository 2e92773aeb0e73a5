package beanstalkd

import (
	"context"
	"time"

	"github.com/belfrydb/belfry/access/tokens"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/rpc/beanstalkd/protocol"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/shardcall"
)

// propose proposes a command, and again while its outcome is unknown or the shard has no leader.
func (c *conn) propose(ctx context.Context, shard uint32, command fsm.Command) (a shardcall.Answer) {
	id := c.door.requestID()
	retry(ctx, func() *fault.Error {
		a = c.door.cfg.Router.Propose(ctx, shard, id, command)
		return a.Fault
	})
	return a
}

// absent reports whether a fault says that there is no such job for this connection.
func absent(f *fault.Error) bool {
	switch f.Reason {
	case belfryv1.Reason_REASON_JOB_NOT_FOUND, belfryv1.Reason_REASON_JOB_RESERVED, belfryv1.Reason_REASON_STALE_LEASE,
		belfryv1.Reason_REASON_QUEUE_NOT_FOUND:
		return true
	default:
		return false
	}
}

// find reads a job by its id, if the caller may do one of the actions to its queue. If there is none
// it answers NOT_FOUND and returns nil.
func (c *conn) find(ctx context.Context, id uint64, actions ...tokens.Action) (job *fsm.Job, f *fault.Error) {
	shard, serial := protocol.SplitID(id)
	if int(shard) >= c.door.cfg.Router.Node.ShardCount() || serial == 0 {
		c.answer(protocol.NotFound)
		return nil, nil
	}
	r, f := c.query(ctx, shard, &fsm.SerialQuery{Serial: serial})
	if f != nil {
		return nil, f
	}
	if len(r.Jobs) == 0 {
		c.answer(protocol.NotFound)
		return nil, nil
	}
	for _, action := range actions {
		if f = c.door.cfg.Queues.Allow(ctx, action, r.Jobs[0].Queue); f == nil {
			return &r.Jobs[0], nil
		}
	}
	return nil, f
}

// deleteByID deletes a job that nobody holds.
func (c *conn) deleteByID(ctx context.Context, id uint64) *fault.Error {
	job, f := c.find(ctx, id, tokens.Consume, tokens.Put)
	if job == nil {
		return f
	}
	shard, _ := protocol.SplitID(id)
	switch a := c.propose(ctx, shard, &fsm.Cancel{Queue: job.Queue, ID: job.ID, Key: job.Key}); {
	case a.Fault != nil && !absent(a.Fault):
		return a.Fault
	case a.Fault != nil:
		c.answer(protocol.NotFound)
	default:
		c.answer(protocol.Deleted)
	}
	return nil
}

// finish carries out release, bury or touch, for which the connection must hold the job.
func (c *conn) finish(ctx context.Context, cmd *protocol.Command) *fault.Error {
	job := c.held[cmd.ID]
	if job == nil || !job.until.After(time.Now()) {
		c.answer(protocol.NotFound)
		return nil
	}
	if f := c.door.cfg.Queues.Allow(ctx, tokens.Consume, job.ref.Queue); f != nil {
		return f
	}
	var command fsm.Command
	answer := protocol.Touched
	switch cmd.Op {
	case protocol.Release:
		command, answer = &fsm.Release{
			Ref: job.ref, Delay: min(seconds(cmd.Delay), c.door.cfg.DelayMax),
			PriorityGiven: true, Priority: int64(cmd.Priority),
		}, protocol.Released
	case protocol.Bury:
		command, answer = &fsm.Nack{
			Ref: job.ref, Dead: true, PriorityGiven: true, Priority: int64(cmd.Priority),
		}, protocol.Buried
	default:
		command = &fsm.Extend{Ref: job.ref}
	}
	shard, _ := protocol.SplitID(cmd.ID)
	a := c.propose(ctx, shard, command)
	if a.Fault != nil && !absent(a.Fault) {
		return a.Fault
	}
	if a.Fault != nil {
		c.drop(cmd.ID)
		c.answer(protocol.NotFound)
		return nil
	}
	if cmd.Op == protocol.Touch {
		if a.Request != nil {
			job.until = time.Now().Add(a.Result.Until.Sub(a.Request.Time))
		}
	} else {
		c.drop(cmd.ID)
	}
	c.answer(answer)
	return nil
}

// kickJob makes one job ready that is buried or delayed.
func (c *conn) kickJob(ctx context.Context, id uint64) *fault.Error {
	job, f := c.find(ctx, id, tokens.Consume, tokens.Put)
	if job == nil {
		return f
	}
	shard, serial := protocol.SplitID(id)
	switch a := c.propose(ctx, shard, &fsm.Kick{Queue: job.Queue, Serial: serial}); {
	case a.Fault != nil && !absent(a.Fault):
		return a.Fault
	case a.Fault != nil:
		c.answer(protocol.NotFound)
	default:
		c.answer(protocol.KickedOne)
	}
	return nil
}

// kick makes up to bound jobs of the tube in use ready: buried ones, else delayed ones.
func (c *conn) kick(ctx context.Context, bound uint64) *fault.Error {
	if f := c.door.cfg.Queues.Allow(ctx, tokens.Consume, c.queue); f != nil {
		return f
	}
	var kicked uint64
	for _, shard := range c.door.cfg.Router.Shards(c.queue) {
		for more := true; more && kicked < bound; {
			most := uint32(min(bound-kicked, fsm.StepMax)) //nolint:gosec // at most StepMax
			a := c.propose(ctx, shard, &fsm.Kick{Queue: c.queue, Max: most})
			if a.Fault != nil && a.Fault.Reason != belfryv1.Reason_REASON_QUEUE_NOT_FOUND {
				return shardcall.Partly(a.Fault, kicked)
			}
			if more = a.Fault == nil && a.Result.More; a.Fault == nil {
				kicked += a.Result.Count
			}
		}
	}
	c.out = protocol.AppendKicked(c.out, kicked)
	return nil
}
