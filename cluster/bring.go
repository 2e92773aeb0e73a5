package cluster

import (
	"context"
	"errors"
	"fmt"

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

// Bring has the shards of a queue know its record as it is now. As births and ends are, this is done by the node that leads the catalog, one queue
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

// bring is Bring where the catalog is led.
func (c *Catalog) bring(ctx context.Context, name string) (Brought, error) {
	leave, err := c.enter(ctx)
	if err != nil {
		return Brought{}, err
	}
	defer leave()
	q, recorded := c.Queue(name)
	if !recorded || q.State == Deleting {
		return Brought{}, fmt.Errorf("queue %q: %w", name, ErrQueueGone)
	}
	var b Brought
	var unreached error
	for p := range q.Partitions {
		if err := c.stillLeads(); err != nil {
			return Brought{}, err
		}
		w, err := c.bringTo(ctx, q, p)
		switch {
		case errors.Is(err, ErrQueueExists):
			return Brought{}, err
		case err != nil:
			b.Pending, unreached = append(b.Pending, node.ShardOf(name, p, c.shards.ShardCount())), errors.Join(unreached, err)
		default:
			b.Witnesses = append(b.Witnesses, w)
		}
	}
	if unreached != nil {
		c.kick()
	}
	if len(b.Witnesses) == 0 {
		return Brought{}, fmt.Errorf("no shard of queue %q was reached: %w", name, unreached)
	}
	return b, nil
}

// bringTo brings a record to the shard of one partition, unless that has it.
func (c *Catalog) bringTo(ctx context.Context, q QueueConfig, partition uint32) (node.Witness, error) {
	if w, has, err := c.has(ctx, q, partition); has || err != nil {
		return w, err
	}
	return c.configure(ctx, q, partition)
}

// has reports whether the shard of a partition has a queue's record as it is now, or a later one.
func (c *Catalog) has(ctx context.Context, q QueueConfig, partition uint32) (node.Witness, bool, error) {
	shard := node.ShardOf(q.Name, partition, c.shards.ShardCount())
	r, w, err := c.shards.Query(ctx, shard, &fsm.QueueQuery{Queue: q.Name})
	if err != nil {
		return node.Witness{}, false, fmt.Errorf("asking shard %d for queue %q: %w", shard, q.Name, err)
	}
	return w, len(r.Queues) > 0 && r.Queues[0].Version >= q.Version, nil
}
