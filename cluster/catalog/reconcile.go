package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
)

// Reconciled lists the shards that have a queue's record, and those that do not.
type Reconciled struct {
	// Witnesses are of the shards that have it, one each: of the entry that set it, or of a read
	// that found it.
	Witnesses []node.Witness `json:"witnesses,omitempty"`
	// Pending are the shards that could not be reached. The catalog's leader updates them later.
	Pending []uint32 `json:"pending,omitempty"`
}

// ErrQueueGone says that a queue is not recorded any more, or is being deleted.
var ErrQueueGone = errors.New("the queue is not recorded any more")

// Reconcile updates the shards of a queue from its record. Only the catalog's leader updates
// shards, one queue after the other, as for creation and deletion. Any other node could send a
// queue to a shard from which it was just removed, and the shard would keep a queue without a
// record. A shard that has the record logs nothing. Reconcile may be repeated; it fails only if no
// shard was reached.
func (c *Catalog) Reconcile(ctx context.Context, name string) (Reconciled, error) {
	if c.group.Serving() {
		return c.reconcile(ctx, name)
	}
	answer, err := c.askLeader(ctx, queueCall{Reconcile: name})
	if err != nil {
		return Reconciled{}, fmt.Errorf("reconciling queue %q: %w", name, err)
	}
	return answer.Reconciled, nil
}

// reconcile is Reconcile on the catalog's leader. It asks all shards for their records before it
// takes the queue lock: it takes seconds to find that a shard cannot be reached, and no other call
// should wait for that.
func (c *Catalog) reconcile(ctx context.Context, name string) (Reconciled, error) {
	q, err := c.activeQueue(name)
	if err != nil {
		return Reconciled{}, err
	}
	all := c.askShards(ctx, q)
	if err := c.stillLeads(); err != nil {
		return Reconciled{}, err
	}
	if slices.ContainsFunc(all, shardRecord.lags) {
		if q, all, err = c.updateLagging(ctx, q, all); err != nil {
			return Reconciled{}, err
		}
	}
	return c.reconciled(q, all)
}

// activeQueue returns the record of a queue that is not being deleted.
func (c *Catalog) activeQueue(name string) (QueueConfig, error) {
	q, recorded := c.Queue(name)
	if !recorded || q.State == Deleting {
		return QueueConfig{}, fmt.Errorf("queue %q: %w", name, ErrQueueGone)
	}
	return q, nil
}

// shardRecord says whether the shard of one partition has a queue's record.
type shardRecord struct {
	witness node.Witness
	has     bool  // the shard has the record, or a later one
	err     error // the shard was not reached
}

// lags reports whether a shard was reached and lacks the record.
func (h shardRecord) lags() bool { return !h.has && h.err == nil }

// askShards asks the shards of all partitions, all at once, whether they have a queue's present
// record or a later one.
func (c *Catalog) askShards(ctx context.Context, q QueueConfig) []shardRecord {
	all := make([]shardRecord, q.Partitions)
	var asking sync.WaitGroup
	for p := range all {
		asking.Go(func() {
			shard := node.ShardOf(q.Name, uint32(p), c.shards.ShardCount()) //nolint:gosec // at most Partitions
			r, w, err := c.shards.Query(ctx, shard, &fsm.QueueQuery{Queue: q.Name})
			if err != nil {
				all[p].err = fmt.Errorf("asking shard %d for queue %q: %w", shard, q.Name, err)
				return
			}
			all[p] = shardRecord{witness: w, has: len(r.Queues) > 0 && r.Queues[0].Version >= q.Version}
		})
	}
	asking.Wait()
	return all
}

// updateLagging updates the shards that lag, all at once, from the queue's record as it is once the
// lock is taken.
func (c *Catalog) updateLagging(ctx context.Context, asked QueueConfig, all []shardRecord) (QueueConfig,
	[]shardRecord, error) {
	unlock, err := c.lockQueues(ctx)
	if err != nil {
		return asked, nil, err
	}
	defer unlock()
	q, err := c.activeQueue(asked.Name)
	if err == nil {
		err = c.stillLeads()
	}
	if err != nil {
		return asked, nil, err
	}
	if q.Version != asked.Version { // the shards were asked about an older record
		for p := range all {
			all[p].has = false
		}
		all = append(all, make([]shardRecord, q.Partitions)...)[:q.Partitions]
	}
	var updating sync.WaitGroup
	for p := range all {
		if all[p].lags() {
			updating.Go(func() {
				all[p].witness, all[p].err = c.configure(ctx, q, uint32(p)) //nolint:gosec // at most Partitions
				all[p].has = all[p].err == nil
			})
		}
	}
	updating.Wait()
	return q, all, nil
}

// reconciled returns the answer of Reconcile.
func (c *Catalog) reconciled(q QueueConfig, all []shardRecord) (Reconciled, error) {
	var b Reconciled
	var unreached error
	for p, h := range all {
		switch {
		case errors.Is(h.err, ErrQueueExists):
			return Reconciled{}, h.err
		case h.err != nil:
			//nolint:gosec // at most Partitions
			b.Pending, unreached = append(b.Pending, node.ShardOf(q.Name, uint32(p), c.shards.ShardCount())),
				errors.Join(unreached, h.err)
		default:
			b.Witnesses = append(b.Witnesses, h.witness)
		}
	}
	if unreached != nil {
		c.requeue()
	}
	if len(b.Witnesses) == 0 {
		return Reconciled{}, fmt.Errorf("no shard of queue %q was reached: %w", q.Name, unreached)
	}
	return b, nil
}
