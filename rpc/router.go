package rpc

import (
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/rpc/backend"
)

// router says where a queue's jobs are.
type router struct {
	node    backend.Node
	catalog backend.Catalog
}

// partitions returns the number of a queue's partitions. A queue that the catalog does not know has one.
func (r router) partitions(queue string) uint32 {
	if config, ok := r.catalog.Queue(queue); ok {
		return max(1, config.Partitions)
	}
	return 1
}

// deleting reports whether a queue is being deleted.
func (r router) deleting(queue string) bool {
	config, ok := r.catalog.Queue(queue)
	return ok && config.Deleting()
}

// shard returns the shard of a partition.
func (r router) shard(queue string, partition uint32) uint32 {
	return node.ShardOf(queue, partition, r.node.ShardCount())
}

// shards returns the shards of all partitions of a queue, in order of the partitions. They are distinct: a queue has at
// most as many partitions as there are shards.
func (r router) shards(queue string) []uint32 {
	shards := make([]uint32, r.partitions(queue))
	for p := range shards {
		shards[p] = r.shard(queue, uint32(p))
	}
	return shards
}

// partitionOfJob returns the partition of a job that may exist. A generated id carries it.
func (r router) partitionOfJob(queue, id string) (partition uint32, ok bool) {
	partitions := r.partitions(queue)
	if p, _, generated := fsm.ParseID(id); generated {
		return p, p < partitions
	}
	return node.PartitionOf(id, int(partitions)), true
}
