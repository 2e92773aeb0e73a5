package rpc

import (
	"context"
	"time"

	"github.com/belfrydb/belfry/access/tokens"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
)

// Node is what the handlers need of this node and, through it, of the shards that other nodes lead. *cluster.Router
// implements it. Its methods may be called from any goroutine.
type Node interface {
	// ShardCount returns the number of shards. They are numbered from 0.
	ShardCount() int
	// Do proposes a request to a shard and waits for its results.
	Do(ctx context.Context, shard uint32, req *fsm.Request) (node.Reply, error)
	// Reserve proposes a request of one fsm.Reserve, waits if that grants nothing, and answers with the granted jobs.
	Reserve(ctx context.Context, shard uint32, req *fsm.Request, wait node.Wait) (node.Reply, error)
	// Offers reports whether a Reserve of these queues that does not wait would be granted a job. Nothing is logged, and
	// no leader is waited for.
	Offers(ctx context.Context, shard uint32, queues []string) (bool, error)
	// LockRequest locks a request at the leader of a shard, so that attempts at it run one at a time, whichever node they
	// come through. See node.RequestMutex.
	LockRequest(ctx context.Context, shard uint32, name string, wait time.Duration) (newer <-chan struct{}, unlock func(), err error)
	// Query answers q. The answer shows every request that was answered before.
	Query(ctx context.Context, shard uint32, q fsm.Query) (fsm.Reading, node.Witness, error)
	// Peek answers q from what this node has applied, which includes its own replies.
	Peek(shard uint32, q fsm.Query) (fsm.Reading, node.Witness, error)
	// Stale answers q from the nearest replica as it is, whether or not the shard has a leader.
	Stale(ctx context.Context, shard uint32, q fsm.Query) (fsm.Reading, node.Witness, error)
	// Export passes the records of a shard for a backup to emit: those of the queues that keep accepts.
	Export(ctx context.Context, shard uint32, keep func(*fsm.QueueRecord) bool, emit func(fsm.BackupRecord) error) error
	// Serves reports whether this node itself leads a shard and serves. It is quick.
	Serves(shard uint32) bool
	// Unreached says why calls through this node are not served, by the name of the group, "shard-3" or "catalog". It is
	// empty if all are. That of the catalog is this node's own trouble. It may be called often and answers within a second.
	Unreached(ctx context.Context) map[string]string
	// ClientAddr returns the address for clients of a shard's leader, as far as this node knows without asking; empty if
	// it does not know.
	ClientAddr(shard uint32) string
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

// Catalog is what the handlers need of the cluster's catalog: the durable record of configured queues and of tokens.
// Package backend has the one of a cluster. A queue that was never configured is unknown to the catalog: it has one
// partition, in its home shard, and default settings.
type Catalog interface {
	// CreateQueue records a queue. It fails with a *Fault of reason QUEUE_EXISTS if it is recorded already.
	CreateQueue(ctx context.Context, name string, partitions uint32, settings fsm.Settings) (QueueConfig, error)
	// UpdateQueue replaces the settings by what change makes of them and raises the version. It records a queue that was
	// unknown, with one partition. change may be called more than once.
	UpdateQueue(ctx context.Context, name string, change func(fsm.Settings) fsm.Settings) (QueueConfig, error)
	// DeleteQueue marks a queue as being deleted, removes what its shards still hold, and forgets it. An unknown queue is
	// no error. After a failure it may be called again, and goes on.
	DeleteQueue(ctx context.Context, name string) error
	// ForRequest returns the catalog as one request sees it. A CreateQueue or UpdateQueue that has succeeded under the
	// same id answers as it did then, for 5 minutes. If the content differs, it fails with an error that has a method
	// OtherContent() string.
	ForRequest(id, content string) Catalog
	// Reconcile updates the shards of a queue from its record, in one order with the creation and deletion of queues on
	// all nodes. It fails with a *Fault of reason QUEUE_CHANGED if the queue is not recorded any more or is being deleted,
	// and otherwise only if no shard was reached.
	Reconcile(ctx context.Context, name string) (Reconciled, error)
	// Queue returns the record of a queue, from memory.
	Queue(name string) (QueueConfig, bool)
	// Queues returns the records of all queues, from memory.
	Queues() []QueueConfig
	// RestoreQueue records a queue of a backup whose partitions the shards hold already. It may be repeated until it
	// succeeds.
	RestoreQueue(ctx context.Context, config QueueConfig) error
	// Altered returns a channel that is closed when the record of a queue is added, changed or removed after this call. It
	// is nil for a catalog that reports no changes.
	Altered() <-chan struct{}
	// Refresh returns when the catalog shows every change that was answered, by any node, before the call.
	Refresh(ctx context.Context) error
	// AddToken records a token. It fails with a *Fault of reason QUOTA if there are too many.
	AddToken(ctx context.Context, t tokens.Record) error
	// EndToken forgets a token, or has it end at a time that is not zero. It reports whether there is one, and may be repeated.
	EndToken(ctx context.Context, id string, at time.Time) (found bool, err error)
	// Tokens returns all tokens by id, from memory.
	Tokens() []*tokens.Record
}

// Reconciled says which shards have a queue's record: Witnesses are of those that have it, Pending are
// those that could not be reached.
type Reconciled struct {
	Witnesses []node.Witness
	Pending   []uint32
}

// Member is a node of the cluster.
type Member struct {
	Name, ServerID string
	// ClientAddr is where clients reach it, PeerAddr where other nodes do, Zone what it fails together with.
	ClientAddr, PeerAddr, Zone string
	// Format is the latest format of logs and snapshots that it reads.
	Format fsm.Format
	// Draining tells that the node is to be emptied.
	Draining bool
	// Answers tells that the node was asked and answered. What follows is what it said.
	Answers bool
	// SilentSince is when a node that does not answer did so last; zero if that is not known.
	SilentSince time.Time
	Version     string
	// Groups are its replicas of all groups. Of the fields of a status Role, Leader, LastIndex, SnapshotIndex, ClockAhead and
	// LastError may be missing.
	Groups []node.GroupStatus
	// Quarantined are the groups whose replica the node has set aside because its state differs from the others', or cannot be restored.
	Quarantined []string
	// Conditions are the node's troubles that the others do not share.
	Conditions []node.Condition
	// Unreached are the nodes that it cannot connect to.
	Unreached []UnreachedNode
	// Behind are the groups of which it votes and has not had what the leader has for some seconds.
	Behind []BehindReplica
}

// UnreachedNode is a node that another one cannot connect to.
type UnreachedNode struct {
	// ServerID is the node's, Address is where it was tried.
	ServerID, Address string
	// Calls tells that it runs: it calls the node that cannot connect to it.
	Calls bool
}

// BehindReplica is a voting replica that does not get what its leader has.
type BehindReplica struct {
	Group string
	// Applied is what it has, Commit what its leader has committed.
	Applied, Commit uint64
	// Since is when it was first seen not to be level.
	Since time.Time
}

// Cluster is what the handlers need of the cluster as a whole. A server id is a name, a dot and an incarnation.
type Cluster interface {
	// Members asks all nodes for their state, and for what placement does; it waits at most some seconds. The nodes are in order of their
	// server ids, the moves in order of their shards.
	Members(ctx context.Context) ([]Member, []Move)
	// Settings returns the settings of the cluster.
	Settings() ClusterSettings
	// Configure changes the settings that are not zero, and returns those that hold then. It may be repeated.
	Configure(ctx context.Context, s ClusterSettings) (ClusterSettings, error)
	// LowerMinVoters is Configure for MinVoters, which that only raises.
	LowerMinVoters(ctx context.Context, least int) (ClusterSettings, error)
	// Format returns the format of logs and snapshots that the nodes write.
	Format() fsm.Format
	// VotersWanted returns how many voters each shard should have, from memory: the replication factor, or one in a cluster of one node.
	VotersWanted() int
	// Drain says that a node is to be emptied, Undrain that it is not. Both may be repeated. A drain that would leave fewer than keep other nodes
	// that do not drain is refused with a *Fault.
	Drain(ctx context.Context, serverID string, keep int) error
	Undrain(ctx context.Context, serverID string) error
	// Remove forgets a node for good. A node that is not recorded is no error.
	Remove(ctx context.Context, serverID string) error
	// TransferLeader has the leader of a shard hand over.
	TransferLeader(ctx context.Context, t Transfer) error
	// ResetClock has the leader of a shard, the server of the given id, move the shard's time back if it is ahead; see node.Node.ResetClock.
	ResetClock(ctx context.Context, leader string, shard uint32) (node.ClockReset, error)
	// Namespaces returns the namespaces with a quota, by name, from memory.
	Namespaces() []Namespace
	// SetNamespace sets those limits of a namespace that set names. It may be repeated.
	SetNamespace(ctx context.Context, name string, set [node.Limits]bool, quota node.Amounts) (Namespace, error)
	// RestoreNamespaces sets all limits of namespaces of a backup. It may be repeated until it succeeds.
	RestoreNamespaces(ctx context.Context, all []Namespace) error
	// RemoveNamespace removes the quota of a namespace. It reports whether there was one, and may be repeated.
	RemoveNamespace(ctx context.Context, name string) (found bool, err error)
}

// Move says, for people, what is done about a shard that is not where it should be, and why.
type Move struct {
	Shard uint32
	Text  string
	// Leaves is the server that Text says leaves the shard; empty for other moves.
	Leaves string
}

// ClusterSettings are those of the whole cluster.
type ClusterSettings struct {
	// Factor is how many voters a shard is to have, if there are as many nodes.
	Factor int
	// Grace is how long a node may be silent before its replicas are replaced.
	Grace time.Duration
	// MinVoters is with how many voters a shard takes mutations.
	MinVoters int
	// NoAutoCreate is whether a put into a queue that does not exist is refused rather than makes the queue; nil leaves that as it is.
	NoAutoCreate *bool
}

// Transfer is a change of a shard's leader.
type Transfer struct {
	Shard uint32
	// From is the server id of the leader, To that of the voter that is to lead.
	From, To string
}
