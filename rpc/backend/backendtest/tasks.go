package backendtest

import (
	"context"
	"slices"

	"github.com/belfrydb/belfry/fsm/bulk"
	"github.com/belfrydb/belfry/node"
)

// StartTask implements backend.Catalog. The task waits for RunTasks.
func (c *Catalog) StartTask(_ context.Context, t bulk.Task) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.ContainsFunc(c.tasks, func(known bulk.Task) bool { return known.ID == t.ID }) {
		c.tasks = append(c.tasks, t)
	}
	return nil
}

// StopTask implements backend.Catalog. The task ends at once.
func (c *Catalog) StopTask(_ context.Context, id string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.tasks {
		if c.tasks[i].ID == id {
			c.tasks[i].Stop, c.tasks[i].Progress.Ended = true, c.tasks[i].Created+1
		}
	}
	return nil
}

// Tasks implements backend.Catalog.
func (c *Catalog) Tasks() []bulk.Task {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.tasks)
}

// RunTasks carries out all tasks that have not ended, in the shards of the node that SetNode set. It
// does not heed their rates.
func (c *Catalog) RunTasks(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.tasks {
		t := &c.tasks[i]
		if !t.Running() {
			continue
		}
		partitions := max(1, c.queues[t.Queue].Partitions)
		for p := range partitions {
			for !t.Done(p) && !t.Full() {
				if err := c.step(ctx, t, p); err != nil {
					return err
				}
			}
		}
		t.Progress.Ended = t.Created + 1
	}
	return nil
}

// step searches a part of a partition and acts on what it finds. c.mu is held.
func (c *Catalog) step(ctx context.Context, t *bulk.Task, partition uint32) error {
	shard := node.ShardOf(t.Queue, partition, c.node.ShardCount())
	found, _, err := c.node.Query(ctx, shard, t.Query(partition, 1000))
	if err != nil {
		return err
	}
	t.Trim(&found)
	var reply node.Reply
	if req := t.Request(partition, &found, 0); req != nil {
		if reply, err = c.node.Do(ctx, shard, req); err != nil {
			return err
		}
	}
	t.Advance(partition, &found, reply.Results)
	return nil
}
