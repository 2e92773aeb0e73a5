package rpc

import (
	"context"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
)

// Node is what the handlers need of a [node.Node].
type Node interface {
	// ShardCount returns the number of shards; they are numbered from 0.
	ShardCount() int
	// Do proposes a request to a shard and waits for its results.
	Do(ctx context.Context, shard uint32, req *fsm.Request) (node.Reply, error)
	// Reserve proposes a request of one fsm.Reserve, and waits if that grants nothing.
	Reserve(ctx context.Context, shard uint32, req *fsm.Request, wait time.Duration) (node.Reply, error)
	// Read runs f on a machine that has everything that was answered before.
	Read(ctx context.Context, shard uint32, f func(m *fsm.Machine, now fsm.Time)) (node.Witness, error)
	// View runs f on what this node has applied, which includes its own replies.
	View(shard uint32, f func(m *fsm.Machine, now fsm.Time)) (node.Witness, error)
	// Status returns what the node knows about itself and its groups.
	Status() node.Status
	// Stats returns the node's measurements.
	Stats() node.Stats
}

// QueueConfig is what the catalog holds about a queue.
type QueueConfig struct {
	Name       string
	Partitions uint32
	// Version grows with every change of the settings and is above 0, except while the queue is being deleted: then it is 0,
	// nothing is put into the queue, and no shard is told of it.
	Version  uint64
	Settings fsm.Settings
}

// deleting reports whether the queue is being deleted.
func (c *QueueConfig) deleting() bool { return c.Version == 0 }

// Catalog is what the handlers need of the cluster's catalog: the durable record of queues that were configured. What
// follows from a record in the shards is done here, not there. A queue that was never configured is unknown to the
// catalog: it has one partition, in its home shard, and default settings.
type Catalog interface {
	// CreateQueue records a queue. It fails with a *Fault of reason QUEUE_EXISTS if it is recorded already.
	CreateQueue(ctx context.Context, name string, partitions uint32, settings fsm.Settings) (QueueConfig, error)
	// UpdateQueue replaces the settings by what change makes of them and raises the version. It records a queue that was
	// unknown, with one partition. change may be called more than once.
	UpdateQueue(ctx context.Context, name string, change func(fsm.Settings) fsm.Settings) (QueueConfig, error)
	// DeleteQueue marks a queue as being deleted, removes what its shards still hold, and forgets it; one that is unknown is
	// no error. After a failure it may be called again, and goes on.
	DeleteQueue(ctx context.Context, name string) error
	// Queue returns the record of a queue, from memory.
	Queue(name string) (QueueConfig, bool)
}
