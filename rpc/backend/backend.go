// Package backend declares what the handlers of rpc require of the node that they run on: the node
// itself, the catalog, and the cluster. It has interfaces, their values and the names in them.
// Package adapter implements two of them for a cluster of package cluster; *cluster.Router is the
// third.
package backend

import (
	"context"
	"time"

	"github.com/belfrydb/belfry/access/tokens"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/bulk"
	"github.com/belfrydb/belfry/node"
)

// Node has the methods that the handlers need of this node and, through it, of the shards that
// other nodes lead. *cluster.Router implements it. Its methods may be called from any goroutine.
type Node interface {
	// ShardCount returns the number of shards. They are numbered from 0.
	ShardCount() int
	// Do proposes a request to a shard and waits for its results.
	Do(ctx context.Context, shard uint32, req *fsm.Request) (node.Reply, error)
	// Start proposes a request without waiting, if it can: finish, which must be called once, waits for
	// the results. If ok is false, or finish returns again, nothing was done, and the request is for Do.
	Start(ctx context.Context, shard uint32,
		req *fsm.Request) (finish func() (reply node.Reply, again bool, err error), ok bool)
	// Reserve proposes a request of one fsm.Reserve, waits if that grants no job, and returns the
	// granted jobs.
	Reserve(ctx context.Context, shard uint32, req *fsm.Request, wait node.Wait) (node.Reply, error)
	// Offers reports whether a Reserve of these queues that does not wait would be granted a job.
	// It logs no entry and does not wait for a leader.
	Offers(ctx context.Context, shard uint32, queues []string) (bool, error)
	// LockRequest locks a request at the leader of a shard, so that attempts at it run one at a time,
	// whichever node they come through. See node.RequestMutex.
	LockRequest(ctx context.Context, shard uint32, name string, wait time.Duration) (newer <-chan struct{},
		unlock func(), err error)
	// Query answers q. The answer shows every request that was answered before.
	Query(ctx context.Context, shard uint32, q fsm.Query) (fsm.Reading, node.Witness, error)
	// Peek answers q from what this node has applied, which includes its own replies.
	Peek(shard uint32, q fsm.Query) (fsm.Reading, node.Witness, error)
	// Stale answers q from the nearest replica as it is, whether or not the shard has a leader.
	Stale(ctx context.Context, shard uint32, q fsm.Query) (fsm.Reading, node.Witness, error)
	// Export passes the records of a shard for a backup to emit. It exports the queues that keep
	// accepts.
	Export(ctx context.Context, shard uint32, keep func(*fsm.QueueRecord) bool, emit func(fsm.BackupRecord) error) error
	// Serves reports whether this node itself leads a shard and serves. It is fast.
	Serves(shard uint32) bool
	// Unreached says why calls through this node are not served, by the name of the group,
	// "shard-3" or "catalog". It is empty if all are served. The entry of the catalog is a problem
	// of this node alone. Unreached may be called often, and answers within a second.
	Unreached(ctx context.Context) map[string]string
	// ClientAddr returns the address for clients of a shard's leader. It asks no other node, and
	// returns "" if this node does not know the address.
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
	// Version grows with every change of the settings and is above 0. While the queue is being
	// deleted it is 0; then no job is put into the queue, and no shard learns of it.
	Version  uint64
	Settings fsm.Settings
}

// Deleting reports whether the queue is being deleted.
func (c *QueueConfig) Deleting() bool { return c.Version == 0 }

// Catalog has the methods that the handlers need of the cluster's catalog: the durable record of
// configured queues and of tokens. Package adapter has the implementation for a cluster. A queue
// that was never configured is unknown to the catalog: it has one partition, in its home shard, and
// default settings.
type Catalog interface {
	// CreateQueue records a queue. It fails with a *fault.Error of reason QUEUE_EXISTS if it is
	// recorded already.
	CreateQueue(ctx context.Context, name string, partitions uint32, settings fsm.Settings) (QueueConfig, error)
	// UpdateQueue replaces the settings with the result of change, and raises the version. It
	// records a queue that was unknown, with one partition. change may be called more than once; if it
	// fails, UpdateQueue changes nothing and returns its error.
	UpdateQueue(ctx context.Context, name string,
		change func(fsm.Settings) (fsm.Settings, error)) (QueueConfig, error)
	// DeleteQueue marks a queue as being deleted, removes what its shards still hold, and deletes
	// the record. An unknown queue is no error. After a failure it may be called again, and
	// continues.
	DeleteQueue(ctx context.Context, name string) error
	// ForRequest returns the catalog as one request sees it. For 5 minutes, a CreateQueue or
	// UpdateQueue that has succeeded under the same id returns its first answer. If the content
	// differs, it fails with an error that has a method OtherContent() string.
	ForRequest(id, content string) Catalog
	// Reconcile updates the shards of a queue from its record, in one order with the creation and
	// deletion of queues on all nodes. It fails with a *fault.Error of reason QUEUE_CHANGED if the
	// queue is no longer recorded or is being deleted. Otherwise it fails only if no shard was
	// reached.
	Reconcile(ctx context.Context, name string) (Reconciled, error)
	// Queue returns the record of a queue, from memory.
	Queue(name string) (QueueConfig, bool)
	// Queues returns the records of all queues, from memory.
	Queues() []QueueConfig
	// RestoreQueue records a queue of a backup whose partitions are already in the shards. It may
	// be repeated until it succeeds.
	RestoreQueue(ctx context.Context, config QueueConfig) error
	// Altered returns a channel that is closed when the record of a queue is added, changed or
	// removed after this call.
	Altered() <-chan struct{}
	// Refresh returns when the catalog shows every change that any node acknowledged before the
	// call.
	Refresh(ctx context.Context) error
	// AddToken records a token. It fails with a *fault.Error of reason QUOTA if there are too many.
	AddToken(ctx context.Context, t tokens.Record) error
	// EndToken deletes a token, or lets it end at a time that is not zero. found says whether there
	// is one. EndToken may be repeated.
	EndToken(ctx context.Context, id string, at time.Time) (found bool, err error)
	// Tokens returns all tokens by id, from memory.
	Tokens() []*tokens.Record
	// StartTask records a task, which the cluster then carries out. It may be repeated with the same
	// content. It fails with a *fault.Error of reason QUOTA, INVALID or UNIMPLEMENTED.
	StartTask(ctx context.Context, t bulk.Task) error
	// StopTask asks a task to end. It may be repeated.
	StopTask(ctx context.Context, id string) error
	// Tasks returns all tasks, oldest first, from memory.
	Tasks() []bulk.Task
}

// Reconciled says which shards have the record of a queue. Witnesses are from shards that have it;
// Pending has the shards that could not be reached.
type Reconciled struct {
	Witnesses []node.Witness
	Pending   []uint32
}

// Member is a node of the cluster.
type Member struct {
	Name, ServerID string
	// ClientAddr is the address for clients, and PeerAddr the one for other nodes. Zone is the
	// failure domain of the node.
	ClientAddr, PeerAddr, Zone string
	// Format is the latest format of logs and snapshots that the node reads.
	Format fsm.Format
	// Draining says that the node drains.
	Draining bool
	// DiskFree is the free space of the data directory's disk in bytes; below DiskLow puts are
	// refused. Both are 0, and ClockOffset is nil, if the node does not say. ClockOffset is how far its
	// clock is ahead of the median of the clocks that it compared.
	DiskFree, DiskLow uint64
	ClockOffset       *time.Duration
	// BackupAt is when the node last sent a complete backup; zero if it never did.
	BackupAt time.Time
	// Mirrored are the queues of Redisson that the node bridges.
	Mirrored []MirroredQueue
	// Answers says that the node answered in this round. Version, ZoneData, Groups, Quarantined,
	// Conditions and Unreached are from its answer.
	Answers bool
	// SilentSince is the time of the last answer of a node that does not answer; zero if it is
	// unknown.
	SilentSince time.Time
	Version     string
	// ZoneData is the version of the node's time-zone data; empty if it does not say.
	ZoneData string
	// Groups has the node's replicas of all groups. In a status, Role, Leader, LastIndex,
	// SnapshotIndex, ClockAhead and LastError may be missing.
	Groups []node.GroupStatus
	// Quarantined has the groups whose replica the node has set aside, because its state differs
	// from the others' or cannot be restored.
	Quarantined []string
	// Conditions has the problems of this node that the others do not share.
	Conditions []node.Condition
	// Unreached has the nodes to which this node cannot connect.
	Unreached []UnreachedNode
	// Behind has the groups in which the node is a voter, and has been behind the leader for some
	// seconds.
	Behind []BehindReplica
}

// MirroredQueue is what a node's bridge between a queue of Redisson and one of Belfry has done since
// the node started.
type MirroredQueue struct {
	// RedisQueue is the name that Redisson gives the queue, Queue that of Belfry.
	RedisQueue, Queue string
	// Waits says what the bridge waits for, for people; empty while it works.
	Waits string
	// Came are entries that came from Redis, Delivered are due jobs put on Redisson's ready list. Dead
	// are due jobs for which Redisson has no form. SetAside are entries that Belfry cannot take. Failed
	// counts bridges that ended with an error and began again.
	Came, Delivered, Dead, SetAside, Failed uint64
	// Left is how many entries Redis had at the last look, at the time Looked. The first of them was or
	// is due at Earliest. Both times are zero if there was none.
	Left             uint64
	Looked, Earliest time.Time
	// Lateness is how late the last job came on the ready list.
	Lateness time.Duration
}

// UnreachedNode is a node to which another one cannot connect.
type UnreachedNode struct {
	// ServerID is the id of the node. Address is the address that was tried.
	ServerID, Address string
	// Calls says that the node runs: it calls the node that cannot connect to it.
	Calls bool
}

// BehindReplica is a voting replica that does not get the entries of its leader.
type BehindReplica struct {
	Group string
	// Applied is the index up to which the replica has applied. Commit is the index up to which its
	// leader has committed.
	Applied, Commit uint64
	// Since is when the replica was first seen behind.
	Since time.Time
}

// Cluster has the methods that the handlers need of the cluster as a whole. A server id is a name,
// a dot and an incarnation.
type Cluster interface {
	// Members asks all nodes for their state, and placement for its moves. It waits at most some
	// seconds. The nodes are ordered by server id, the moves by shard.
	Members(ctx context.Context) ([]Member, []Move)
	// Settings returns the settings of the cluster.
	Settings() ClusterSettings
	// Configure changes the settings that are not zero, and returns the resulting ones. It may be
	// repeated.
	Configure(ctx context.Context, s ClusterSettings) (ClusterSettings, error)
	// LowerMinVoters is Configure for a lower MinVoters; Configure only raises it.
	LowerMinVoters(ctx context.Context, least int) (ClusterSettings, error)
	// Format returns the format of logs and snapshots that the nodes write.
	Format() fsm.Format
	// VotersWanted returns how many voters each shard should have, from memory: the replication
	// factor, or one in a cluster of one node.
	VotersWanted() int
	// Drain starts to drain a node, and Undrain ends that. Both may be repeated. Drain fails with a
	// *fault.Error if fewer than keep other nodes would remain that do not drain.
	Drain(ctx context.Context, serverID string, keep int) error
	Undrain(ctx context.Context, serverID string) error
	// Remove removes a node for good. It is no error if the node is not recorded.
	Remove(ctx context.Context, serverID string) error
	// TransferLeader lets the leader of a shard transfer its leadership.
	TransferLeader(ctx context.Context, t Transfer) error
	// ResetClock lets the leader of a shard, the server with the given id, move the shard's time
	// back if it is ahead; see node.Node.ResetClock.
	ResetClock(ctx context.Context, leader string, shard uint32) (node.ClockReset, error)
	// Namespaces returns the namespaces with a quota, by name, from memory.
	Namespaces() []Namespace
	// SetNamespace sets the limits of a namespace that set selects. It may be repeated.
	SetNamespace(ctx context.Context, name string, set [node.Limits]bool, quota node.Amounts) (Namespace, error)
	// RestoreNamespaces sets all limits of the namespaces of a backup. It may be repeated until it
	// succeeds.
	RestoreNamespaces(ctx context.Context, all []Namespace) error
	// RemoveNamespace removes the quota of a namespace. found says whether there was one.
	// RemoveNamespace may be repeated.
	RemoveNamespace(ctx context.Context, name string) (found bool, err error)
	// AnswerAudit lets this node answer AskAudit of all nodes with what answer returns. The query
	// and the answer are bytes that only the handlers read. answer may be called from several
	// goroutines at once, and returns without waiting.
	AnswerAudit(answer func(query []byte) ([]byte, error))
	// AskAudit sends a query to all nodes, this one included, and returns their answers. It waits at
	// most some seconds.
	AskAudit(ctx context.Context, query []byte) []AuditAnswer
}

// AuditAnswer is the answer of one node to AskAudit.
type AuditAnswer struct {
	// Name is the name of the node.
	Name   string
	Answer []byte
	// Err says why the node gave no answer; nil if it did.
	Err error
}

// Move says, for people, what is done about a shard that is misplaced, and why.
type Move struct {
	Shard uint32
	Text  string
	// Leaves is the server that leaves according to Text; empty for other moves.
	Leaves string
}

// ClusterSettings has the settings of the whole cluster.
type ClusterSettings struct {
	// Factor is how many voters a shard should have, if there are as many nodes.
	Factor int
	// Grace is how long a node may be silent before its replicas are replaced.
	Grace time.Duration
	// MinVoters is how many voters a shard needs to accept mutations.
	MinVoters int
	// NoAutoCreate says whether a put into an unknown queue is refused instead of creating the
	// queue; nil leaves the setting as it is.
	NoAutoCreate *bool
}

// Transfer is a change of a shard's leader.
type Transfer struct {
	Shard uint32
	// From is the server id of the leader, and To that of the next one, which must be a voter.
	From, To string
}

// Namespace is a namespace with a quota.
type Namespace struct {
	Name  string
	Quota node.Amounts
	// Pending has the shards in which the quota does not apply yet.
	Pending []uint32
}
