package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
)

// Brought says where a queue's record is known.
type Brought struct {
	// Witnesses are of the shards that have it, one each: of the entry that brought it, or of a reading that found it.
	Witnesses []node.Witness `json:"witnesses,omitempty"`
	// Pending are the shards that could not be reached. The leader of the catalog brings the record to them later.
	Pending []uint32 `json:"pending,omitempty"`
}

// ErrQueueGone says that a queue is not recorded any more, or is being deleted.
var ErrQueueGone = errors.New("the queue is not recorded any more")

// Bring has the shards of a queue know its record as it is now. As of births and ends, shards are told by the node that leads the catalog, of one queue
// after the other: a shard that was told by anybody else could be told of a queue that was just removed from it, and would keep
// what no record knows. A shard that has the record already logs nothing. It may be repeated; it is an error only if no shard was reached.
func (c *Catalog) Bring(ctx context.Context, name string) (Brought, error) {
	if c.group.Serving() {
		return c.bring(ctx, name)
	}
	answer, err := c.askLeader(ctx, queueCall{Bring: name})
	if err != nil {
		return Brought{}, fmt.Errorf("bringing the record of queue %q to its shards: %w", name, err)
	}
	return answer.Brought, nil
}

// bring is Bring where the catalog is led. What can be asked without changing anything is asked before its turn, for all shards at once: that one
// cannot be reached is known after seconds only, and nobody else waits for that.
func (c *Catalog) bring(ctx context.Context, name string) (Brought, error) {
	q, err := c.living(name)
	if err != nil {
		return Brought{}, err
	}
	all := c.askShards(ctx, q)
	if err := c.stillLeads(); err != nil {
		return Brought{}, err
	}
	if slices.ContainsFunc(all, holding.lags) {
		if q, all, err = c.tell(ctx, q, all); err != nil {
			return Brought{}, err
		}
	}
	return c.brought(q, all)
}

// living returns the record of a queue that is not being deleted.
func (c *Catalog) living(name string) (QueueConfig, error) {
	q, recorded := c.Queue(name)
	if !recorded || q.State == Deleting {
		return QueueConfig{}, fmt.Errorf("queue %q: %w", name, ErrQueueGone)
	}
	return q, nil
}

// holding is what is known of a queue's record in the shard of one partition.
type holding struct {
	witness node.Witness
	has     bool  // the shard has the record, or a later one
	err     error // the shard was not reached
}

// lags reports whether a shard was reached and lacks the record.
func (h holding) lags() bool { return !h.has && h.err == nil }

// askShards asks the shards of all partitions, at once, whether they have a queue's record as it is now, or a later one.
func (c *Catalog) askShards(ctx context.Context, q QueueConfig) []holding {
	all := make([]holding, q.Partitions)
	var asking sync.WaitGroup
	for p := range all {
		asking.Go(func() {
			shard := node.ShardOf(q.Name, uint32(p), c.shards.ShardCount()) //nolint:gosec // at most Partitions
			r, w, err := c.shards.Query(ctx, shard, &fsm.QueueQuery{Queue: q.Name})
			if err != nil {
				all[p].err = fmt.Errorf("asking shard %d for queue %q: %w", shard, q.Name, err)
				return
			}
			all[p] = holding{witness: w, has: len(r.Queues) > 0 && r.Queues[0].Version >= q.Version}
		})
	}
	asking.Wait()
	return all
}

// tell brings a queue's record, as it is by the time that its turn has come, to those shards that were asked and lag, all at once.
func (c *Catalog) tell(ctx context.Context, asked QueueConfig, all []holding) (QueueConfig, []holding, error) {
	leave, err := c.enter(ctx)
	if err != nil {
		return asked, nil, err
	}
	defer leave()
	q, err := c.living(asked.Name)
	if err == nil {
		err = c.stillLeads()
	}
	if err != nil {
		return asked, nil, err
	}
	if q.Version != asked.Version { // nobody was asked for this one
		for p := range all {
			all[p].has = false
		}
		all = append(all, make([]holding, q.Partitions)...)[:q.Partitions]
	}
	var telling sync.WaitGroup
	for p := range all {
		if all[p].lags() {
			telling.Go(func() {
				all[p].witness, all[p].err = c.configure(ctx, q, uint32(p)) //nolint:gosec // at most Partitions
				all[p].has = all[p].err == nil
			})
		}
	}
	telling.Wait()
	return q, all, nil
}

// brought makes the answer of Bring.
func (c *Catalog) brought(q QueueConfig, all []holding) (Brought, error) {
	var b Brought
	var unreached error
	for p, h := range all {
		switch {
		case errors.Is(h.err, ErrQueueExists):
			return Brought{}, h.err
		case h.err != nil:
			b.Pending, unreached = append(b.Pending, node.ShardOf(q.Name, uint32(p), c.shards.ShardCount())), errors.Join(unreached, h.err) //nolint:gosec // at most Partitions
		default:
			b.Witnesses = append(b.Witnesses, h.witness)
		}
	}
	if unreached != nil {
		c.kick()
	}
	if len(b.Witnesses) == 0 {
		return Brought{}, fmt.Errorf("no shard of queue %q was reached: %w", q.Name, unreached)
	}
	return b, nil
}
