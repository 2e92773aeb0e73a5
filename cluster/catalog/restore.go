package catalog

import (
	"context"
	"fmt"
)

// RestoreQueue records a queue of a backup. Its shards hold all or some of its partitions already;
// RestoreQueue opens the others. It may be repeated until it succeeds.
func (c *Catalog) RestoreQueue(ctx context.Context, q QueueConfig) error {
	record := &queueRecord{Name: q.Name, Partitions: max(1, q.Partitions), Settings: settingsRecord(q.Settings)}
	if c.group.Serving() {
		return c.restore(ctx, record)
	}
	if _, err := c.askLeader(ctx, queueCall{Restore: record}); err != nil {
		return fmt.Errorf("restoring queue %q: %w", q.Name, err)
	}
	return nil
}

// restore is RestoreQueue on the catalog's leader.
func (c *Catalog) restore(ctx context.Context, record *queueRecord) error {
	out, err := c.propose(ctx, command{Create: record})
	if err != nil {
		return fmt.Errorf("recording queue %q: %w", record.Name, err)
	}
	if out.queue.Partitions != record.Partitions {
		return fmt.Errorf("queue %q: %w, with %d partitions instead of %d", record.Name, ErrQueueExists, out.queue.Partitions,
			record.Partitions)
	}
	if _, err := c.openPartitions(ctx, out.queue); err != nil {
		return fmt.Errorf("restoring queue %q: %w", record.Name, err)
	}
	return nil
}
