package cluster

import (
	"context"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
)

// kick has the leader look for shards that lag.
func (c *Catalog) kick() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// lead works while this node leads the catalog: it brings records to the shards that do not have them, because the process
// that changed a record ended before it told them, or could not reach them. Where nothing lags, nothing is logged.
func (c *Catalog) lead(ctx context.Context, _ *node.Group) {
	select {
	case <-c.ready:
	case <-ctx.Done():
		return
	}
	again := time.NewTimer(0)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.changed:
			// Whoever changed something is about to tell the shards; what is left after a while is ours.
			again.Reset(healInterval)
		case <-again.C:
			if !c.heal(ctx) {
				again.Reset(healInterval)
			}
		}
	}
}

// heal brings every record to the shards that lag. It reports whether none does any more.
func (c *Catalog) heal(ctx context.Context) bool {
	healed := true
	for _, q := range c.Queues() {
		if q.State == Deleting {
			if err := c.bury(ctx, q); err != nil && ctx.Err() == nil {
				c.logger.Warn("deleting a queue", "queue", q.Name, "error", err)
				healed = false
			}
			continue
		}
		if q.State == Active && !c.lags(q) {
			continue
		}
		if _, err := c.bear(ctx, q); err != nil && ctx.Err() == nil {
			c.logger.Warn("bringing a queue's settings to its shards", "queue", q.Name, "error", err)
			healed = false
		}
	}
	return healed
}

// lags reports whether a shard does not have a queue's record as it is now.
func (c *Catalog) lags(q QueueConfig) bool {
	for p := range q.Partitions {
		var version uint64
		shard := node.ShardOf(q.Name, p, c.shards.ShardCount())
		_, err := c.shards.View(shard, func(m *fsm.Machine, now fsm.Time) {
			held, _ := m.Queue(q.Name, now)
			version = held.Version
		})
		if err != nil || version < q.Version {
			return true
		}
	}
	return false
}
