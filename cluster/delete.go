package cluster

import (
	"context"
	"fmt"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
)

// end is DeleteQueue where the catalog is led.
func (c *Catalog) end(ctx context.Context, name string) error {
	if _, recorded := c.Queue(name); !recorded {
		// One that was replaced may not know it yet.
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
		return nil // another call came first
	}
	defer c.kick() // completes what fails below
	return c.bury(ctx, out.queue)
}

// bury empties the shards of a queue that is being deleted and forgets its record, unless that is another one by now.
func (c *Catalog) bury(ctx context.Context, q QueueConfig) error {
	leave, err := c.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if held, recorded := c.Queue(q.Name); !recorded || held.State != Deleting {
		return nil // another call came first, and the queue may have been made again
	}
	for p := range q.Partitions {
		if err := c.stillLeads(); err != nil {
			return err
		}
		if err := c.empty(ctx, q.Name, p); err != nil {
			return fmt.Errorf("deleting partition %d of queue %q: %w", p, q.Name, err)
		}
	}
	if _, err := c.propose(ctx, command{Forget: &versioned{Name: q.Name, Version: q.Version}}); err != nil {
		return fmt.Errorf("forgetting queue %q: %w", q.Name, err)
	}
	return nil
}

// empty removes what one shard holds of a queue, step by step.
func (c *Catalog) empty(ctx context.Context, name string, partition uint32) error {
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

// enter waits until nobody else opens or empties partitions. leave must be called.
func (c *Catalog) enter(ctx context.Context) (leave func(), err error) {
	select {
	case c.turn <- struct{}{}:
		return func() { <-c.turn }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for another change of queues: %w: %w", node.ErrCanceled, context.Cause(ctx))
	}
}
