package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/belfrydb/belfry/node"
)

// kick has the leader look for shards that lag. It is called on every node, and heeded by the leader.
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
	if c.whileLeading != nil {
		var leading sync.WaitGroup
		defer leading.Wait()
		leading.Go(func() { c.whileLeading(ctx) })
	}
	waiting := !c.heal(ctx)
	again := time.NewTimer(healInterval)
	defer again.Stop()
	if !waiting {
		again.Stop()
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.changed:
			// Whoever changed something is about to tell the shards; what is left after a while is ours. Changes without end put nothing off.
			if !waiting {
				again.Reset(healInterval)
			}
			waiting = true
		case <-again.C:
			if waiting = !c.heal(ctx); waiting {
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
			if err := c.bury(ctx, q); err != nil && !ending(ctx, err) {
				c.logger.Warn("deleting a queue", "queue", q.Name, "error", err)
				healed = false
			}
			continue
		}
		if err := c.mend(ctx, q); err != nil && !ending(ctx, err) {
			c.logger.Warn("bringing a queue's settings to its shards", "queue", q.Name, "error", err)
			healed = false
		}
	}
	return healed
}

// ending reports whether an attempt failed because this leadership, or the node, ends: what is left is its successor's.
func ending(ctx context.Context, err error) bool {
	return ctx.Err() != nil || errors.Is(err, node.ErrShuttingDown)
}

// mend completes the birth of a queue, or has the shards that lag know its record.
func (c *Catalog) mend(ctx context.Context, q QueueConfig) error {
	if q.State == Creating {
		_, err := c.bear(ctx, q)
		return err
	}
	b, err := c.bring(ctx, q.Name)
	switch {
	case errors.Is(err, ErrQueueGone):
		return nil // its end is looked after as such
	case err == nil && len(b.Pending) > 0:
		return fmt.Errorf("%w: the shards %v were not reached", node.ErrNoLeader, b.Pending)
	default:
		return err
	}
}
