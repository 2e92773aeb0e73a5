package shardcall

import (
	"context"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/rpc/backend"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/wire"
)

// Router says where a queue's jobs are.
type Router struct {
	Node    backend.Node
	Catalog backend.Catalog
	// PartsAtOnce is how many parts of one call are proposed at a time; 0 means 1.
	PartsAtOnce int
}

// Partitions returns the number of a queue's partitions. A queue that the catalog does not know has
// one.
func (r Router) Partitions(queue string) uint32 {
	if config, ok := r.Catalog.Queue(queue); ok {
		return max(1, config.Partitions)
	}
	return 1
}

// Deleting reports whether a queue is being deleted.
func (r Router) Deleting(queue string) bool {
	config, ok := r.Catalog.Queue(queue)
	return ok && config.Deleting()
}

// Shard returns the shard of a partition.
func (r Router) Shard(queue string, partition uint32) uint32 {
	return node.ShardOf(queue, partition, r.Node.ShardCount())
}

// Shards returns the shards of all partitions of a queue, in order of the partitions. They are
// distinct: a queue has at most as many partitions as there are shards.
func (r Router) Shards(queue string) []uint32 {
	shards := make([]uint32, r.Partitions(queue))
	for p := range shards {
		shards[p] = r.Shard(queue, uint32(p))
	}
	return shards
}

// PartitionsOfJob returns the partition in which a job is looked for first, and the others in which it
// may be, in their order. A key says where its jobs are, and a generated id carries its partition.
// Another id says where a job without a key is; one with a key may be anywhere. ok is false if there
// is no such job.
func (r Router) PartitionsOfJob(queue, id, key string) (first uint32, others []uint32, ok bool) {
	partitions := r.Partitions(queue)
	if key != "" {
		return node.PartitionOf(key, int(partitions)), nil, true
	}
	if p, _, generated := fsm.ParseID(id); generated {
		return p, nil, p < partitions
	}
	first = node.PartitionOf(id, int(partitions))
	for p := range partitions {
		if p != first {
			others = append(others, p)
		}
	}
	return first, others, true
}

// ShardOfKey returns the shard of the partition that has the jobs of a key.
func (r Router) ShardOfKey(queue, key string) uint32 {
	partitions := int(r.Partitions(queue)) //nolint:gosec // at most the number of shards
	return r.Shard(queue, node.PartitionOf(key, partitions))
}

// FaultAt is fault.OfShard that names the leader to a client which should have gone there.
func (r Router) FaultAt(shard uint32, err error) *fault.Error {
	f := fault.OfShard(shard, err)
	if f.Reason == belfryv1.Reason_REASON_NOT_LEADER || f.Reason == belfryv1.Reason_REASON_NO_LEADER {
		f.Leader = r.Node.ClientAddr(shard)
	}
	return f
}

// BeingDeleted returns the fault of a call for a queue that is being deleted.
func BeingDeleted(queue string) *fault.Error {
	f := fault.New(belfryv1.Reason_REASON_QUEUE_CHANGED)
	f.Field, f.Message = "queue", "queue: "+queue+" is being deleted"
	return f
}

// Configure has the catalog update the shards of a queue. pending are the shards that it could not
// reach.
func (r Router) Configure(ctx context.Context,
	queue string) (witnesses []*belfryv1.Witness, pending []uint32, err error) {
	done, err := r.Catalog.Reconcile(ctx, queue)
	if err != nil {
		return nil, nil, fault.Of(err)
	}
	for _, w := range done.Witnesses {
		witnesses = append(witnesses, wire.Witness(w))
	}
	return witnesses, done.Pending, nil
}
