package catalog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/belfrydb/belfry/node"
)

// requeue makes the leader look for shards that lag. Every node calls it; only the leader acts on
// it.
func (c *Catalog) requeue() { c.changed.Send() }

// lead runs while this node leads the catalog. It updates shards that lag behind the records
// because the process that changed a record ended first, or could not reach them. If no shard lags,
// it logs nothing.
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
	waiting := !c.reconcileAll(ctx)
	again := time.NewTimer(reconcileInterval)
	defer again.Stop()
	if !waiting {
		again.Stop()
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.changed:
			// The call that changed a record updates the shards itself. This loop updates the rest
			// after a while. Further changes do not postpone that.
			if !waiting {
				again.Reset(reconcileInterval)
			}
			waiting = true
		case <-again.C:
			if waiting = !c.reconcileAll(ctx); waiting {
				again.Reset(reconcileInterval)
			}
		}
	}
}

// reconcileAll updates every shard that lags behind the records. It reports whether none lags any
// more.
func (c *Catalog) reconcileAll(ctx context.Context) bool {
	done := true
	for _, q := range c.Queues() {
		if q.State == Deleting {
			if err := c.finishDelete(ctx, q); err != nil && !ending(ctx, err) {
				c.logger.Warn("deleting a queue", "queue", q.Name, "error", err)
				done = false
			}
			continue
		}
		if err := c.reconcileQueue(ctx, q); err != nil && !ending(ctx, err) {
			c.logger.Warn("updating a queue's shards", "queue", q.Name, "error", err)
			done = false
		}
	}
	return done
}

// ending reports whether an attempt failed because this leadership or the node ends. The next
// leader completes the work.
func ending(ctx context.Context, err error) bool {
	return ctx.Err() != nil || errors.Is(err, node.ErrShuttingDown)
}

// reconcileQueue completes the creation of a queue, or updates the shards that lag behind its
// record.
func (c *Catalog) reconcileQueue(ctx context.Context, q QueueConfig) error {
	if q.State == Creating {
		_, err := c.finishCreate(ctx, q)
		return err
	}
	b, err := c.reconcile(ctx, q.Name)
	switch {
	case errors.Is(err, ErrQueueGone):
		return nil // the deletion is completed as such
	case err == nil && len(b.Pending) > 0:
		return fmt.Errorf("%w: the shards %v were not reached", node.ErrNoLeader, b.Pending)
	default:
		return err
	}
}
