package catalog

import (
	"context"
	"fmt"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
)

// deleteQueue is DeleteQueue on the catalog's leader.
func (c *Catalog) deleteQueue(ctx context.Context, name string) error {
	if _, recorded := c.Queue(name); !recorded {
		// A replaced leader may not have the record yet.
		if _, err := c.group.Confirm(ctx); err != nil {
			return fmt.Errorf("deleting queue %q: %w", name, err)
		}
		if _, recorded = c.Queue(name); !recorded {
			return nil
		}
	}
	out, err := c.propose(ctx, command{Delete: &versioned{Name: name}})
	if err != nil {
		return fmt.Errorf("deleting queue %q: %w", name, err)
	}
	if out.verdict == overtaken {
		return nil // another call deletes it
	}
	defer c.requeue() // completes what fails below
	return c.finishDelete(ctx, out.queue)
}

// finishDelete empties the shards of a queue that is being deleted and removes its record, unless
// that has been replaced.
func (c *Catalog) finishDelete(ctx context.Context, q QueueConfig) error {
	unlock, err := c.lockQueues(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if held, recorded := c.Queue(q.Name); !recorded || held.State != Deleting {
		return nil // another call deleted it, and the queue may have been created again
	}
	for p := range q.Partitions {
		if err := c.stillLeads(); err != nil {
			return err
		}
		if err := c.emptyShard(ctx, q.Name, p); err != nil {
			return fmt.Errorf("deleting partition %d of queue %q: %w", p, q.Name, err)
		}
	}
	if _, err := c.propose(ctx, command{Forget: &versioned{Name: q.Name, Version: q.Version}}); err != nil {
		return fmt.Errorf("forgetting queue %q: %w", q.Name, err)
	}
	return nil
}

// emptyShard removes a queue's partition from its shard, in steps.
func (c *Catalog) emptyShard(ctx context.Context, name string, partition uint32) error {
	shard := node.ShardOf(name, partition, c.shards.ShardCount())
	for {
		reply, err := c.shards.Do(ctx, shard, &fsm.Request{Commands: []fsm.Command{&fsm.DeleteQueue{Queue: name}}})
		if err != nil {
			return err
		}
		switch result := &reply.Results[0]; {
		case result.Code == fsm.QueueNotFound:
			return nil
		case result.Code != fsm.OK:
			return fmt.Errorf("shard %d answered code %d", shard, result.Code)
		case !result.More:
			return nil
		}
	}
}

// lockQueues waits until no other call opens or empties partitions. The caller must call unlock.
func (c *Catalog) lockQueues(ctx context.Context) (unlock func(), err error) {
	select {
	case c.contentLock <- struct{}{}:
		return func() { <-c.contentLock }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for another change of queues: %w: %w", node.ErrCanceled, context.Cause(ctx))
	}
}
