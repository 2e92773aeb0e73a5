package node

import (
	"context"
	"errors"
	"time"

	"github.com/belfrydb/belfry/fsm"
)

var errPending = errors.New("being written")

// Node is one process's shards. Open makes one, Close ends it.
type Node struct{}

// Open starts a node on its data directory and returns when every shard of which it is the only voter serves.
// ctx bounds the start only. The caller must Close the node.
func Open(ctx context.Context, cfg Config) (*Node, error) { return nil, errPending }

// Drain wakes every waiter with what it has and refuses all new work with ErrShuttingDown. What is under way goes on.
func (n *Node) Drain() {}

// Close drains the node, waits for what is under way until ctx ends, stops every group and unlocks the data directory.
func (n *Node) Close(ctx context.Context) error { return errPending }

// ShardCount returns the number of shards; shards are numbered from 0.
func (n *Node) ShardCount() int { return 0 }

// Route returns the home shard of a queue: the one of its partition 0.
func (n *Node) Route(queue string) uint32 { return ShardOf(queue, 0, n.ShardCount()) }

// Do proposes a request to a shard and waits for its results. See OutcomeOf for what an error means; if ctx ends first, the
// error wraps ErrCanceled when the request was not logged, else ErrUnknownOutcome. The request must not be changed meanwhile.
func (n *Node) Do(ctx context.Context, shard uint32, req *fsm.Request) (Reply, error) {
	return Reply{}, errPending
}

// Reserve proposes a request that consists of one fsm.Reserve. If that grants nothing, the call waits its turn among the
// waiters of the queues until something is granted or wait has passed; it then returns one Result without grants, and the
// zero Witness if nothing was logged. If ctx ends first, what was granted meanwhile is released without counting an attempt.
// Queues that do not exist yet may be named. On Drain it returns at once as if wait had passed.
func (n *Node) Reserve(ctx context.Context, shard uint32, req *fsm.Request, wait time.Duration) (Reply, error) {
	return Reply{}, errPending
}

// Read runs f on the shard's machine such that f sees every request that was answered before Read was called. f runs
// under a shared lock: it must be quick and keep nothing that aliases the machine. now is the time at which reads evaluate:
// the later of the shard's clock and the stamp that the leader would issue. An error means that f was not run.
func (n *Node) Read(ctx context.Context, shard uint32, f func(m *fsm.Machine, now fsm.Time)) (Witness, error) {
	return Witness{}, errPending
}

// View is Read without the promise: f sees what this node has applied, which includes every reply that this node gave. It
// asks no other node and works on any replica, in particular to read the bodies of granted jobs with fsm.Machine.Held.
func (n *Node) View(shard uint32, f func(m *fsm.Machine, now fsm.Time)) (Witness, error) {
	return Witness{}, errPending
}

// Status returns what the node knows about itself and its groups.
func (n *Node) Status() Status { return Status{} }

// Stats returns the measurements since the start.
func (n *Node) Stats() Stats { return Stats{} }

// Snapshot takes a snapshot of one shard now and waits until it is stored.
func (n *Node) Snapshot(ctx context.Context, shard uint32) error { return errPending }
