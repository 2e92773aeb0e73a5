package node

import (
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node/admit"
	"github.com/belfrydb/belfry/node/clock"
	"github.com/belfrydb/belfry/node/founding"
	"github.com/belfrydb/belfry/node/histogram"
	"github.com/belfrydb/belfry/node/longpoll"
	"github.com/belfrydb/belfry/node/measure"
	"github.com/belfrydb/belfry/node/outcome"
	"github.com/belfrydb/belfry/node/propose"
	"github.com/belfrydb/belfry/node/raftgroup"
	"github.com/belfrydb/belfry/node/storage"
)

// Witness says where in a shard's history a request took effect, or which state a read saw.
type Witness = propose.Witness

// Reply is the answer to a request.
type Reply = propose.Reply

// RequestMutex keeps two attempts at one request that reserves from several shards from running at
// the same time.
type RequestMutex = propose.RequestMutex

// Wait says how long a call of Reserve stays parked.
type Wait = longpoll.Wait

// Founding describes the start of a cluster that several nodes found together.
type Founding = founding.Plan

// Founding returns the founding of this node's cluster; nil if one node founded it.
func (n *Node) Founding() *Founding { return n.id.Founding }

// Status is what a node knows about itself and its groups.
type Status struct {
	ClusterID string
	// Name is the node's name, ServerID its Raft server id: name.incarnation.
	Name, ServerID string
	// PeerAddr is the address on which the node listens for its peers; empty if it does not.
	PeerAddr string
	Draining bool
	// Leaving tells that the node is about to stop and should lead no group: HandOver or Drain was
	// called.
	Leaving  bool
	DiskFull bool
	// DiskFreeBytes is the free space of the data directory's disk at the last sample. Below
	// DiskLowBytes puts are refused.
	DiskFreeBytes, DiskLowBytes uint64
	// DiskFreeInodes and DiskLowInodes are the same for inodes. Both are 0 if the file system has
	// no fixed number of inodes.
	DiskFreeInodes, DiskLowInodes uint64
	// DiskShortage is a text for people: the resource that the disk has least of, bytes or inodes,
	// and its mark.
	DiskShortage string
	// Conditions are the troubles of this node that other nodes do not share.
	Conditions []Condition
	// Memory is the node's use of memory, and its limits.
	Memory admit.MemoryStatus
	// MinVoters is the number of voters below which a shard refuses mutations.
	MinVoters int
	// ShardCount is the number of shards of the cluster. Shards are the shards on this node, in
	// order of their number.
	ShardCount int
	Shards     []GroupStatus
	// Quarantined are the names of groups whose replica here was set aside, because its state
	// differs from the others' or cannot be restored.
	Quarantined []string
	// Groups are the other groups, such as the catalog.
	Groups []GroupStatus
}

// The names of package raftgroup that callers of this package meet.
type (
	// Machine is a deterministic state machine that a Raft group replicates.
	Machine = raftgroup.Machine
	// MachineSnapshot is the state of a machine at one index.
	MachineSnapshot = raftgroup.MachineSnapshot
	// IndexDigest is the digest of a group's machine after the entry at an index.
	IndexDigest = raftgroup.IndexDigest
	// RaftStatus is the state of one Raft group on this node, whatever its machine.
	RaftStatus = raftgroup.Status
	// Role is the role of a node in a group.
	Role = raftgroup.Role
	// SnapshotStats describe the snapshots of one group.
	SnapshotStats = raftgroup.SnapshotStats
	// FollowerStats are the leader's knowledge of a follower.
	FollowerStats = raftgroup.FollowerStats
)

// The roles. A Leader has been elected; it serves once RaftStatus.Serving is set.
const (
	Follower  = raftgroup.Follower
	Candidate = raftgroup.Candidate
	Leader    = raftgroup.Leader
	Stopped   = raftgroup.Stopped
)

// GroupStatus is the state of one Raft group on this node, and of the shard if it is one.
type GroupStatus struct {
	RaftStatus
	// Shard is the number of the shard; 0 for groups that are not shards, as all that follows.
	Shard uint32
	// Clock is the machine's clock.
	Clock fsm.Time
	// Jobs is the number of held jobs at Clock.
	Jobs int
	// Restoring tells that a restore of the shard has begun and not ended. Until it ends, the shard
	// does no other work.
	Restoring bool
	// ClockAhead tells that the shard's clock is ahead of this node's reference time by more than
	// the bound. The reference time of a leader is the median of the voters' clocks. ClockAheadBy
	// is the difference.
	ClockAhead   bool
	ClockAheadBy time.Duration
}

// Stats are measurements of a node since its start.
type Stats struct {
	// Shards are the shards on this node, in order of their number. A shard that left and came back
	// counts from its return.
	Shards []ShardStats
	// Clocks are the clock readings of the last minute from other voters of shards that this node
	// leads, in order of their server ids.
	Clocks []clock.PeerOffset
	// PeersChanged counts the connections of peers that were closed because bytes had been changed
	// in transit.
	PeersChanged uint64
}

// QueueStats are the leader's measurements of a queue besides its jobs, since it leads the shard.
type QueueStats = measure.QueueStats

// OtherQueues is the name for all queues of a shard that have no QueueStats of their own, because
// there are too many. A queue of this name is counted here too.
const OtherQueues = measure.OtherQueues

// ShardStats are measurements of one shard since the start of the node.
type ShardStats struct {
	Shard uint32
	// Applied, NotApplied and Unknown count the requests by outcome.
	Applied, NotApplied, Unknown uint64
	// Overloaded, DiskFull, MemoryFull, TooFewVoters and NoLeader count refused requests by reason.
	// They are part of NotApplied.
	Overloaded, DiskFull, MemoryFull, TooFewVoters, NoLeader uint64
	// Entries and Commands count the entries that this node proposed as leader and saw applied, and
	// their commands.
	Entries, Commands uint64
	// EntryCommands and EntryBytes are the sizes of those entries.
	EntryCommands, EntryBytes histogram.Values
	// ProposeSeconds runs from the moment a request is queued to its answer. CommitSeconds runs
	// from the proposal of an entry to its application. ApplySeconds is the machine's own time for
	// an entry.
	ProposeSeconds, CommitSeconds, ApplySeconds histogram.Values
	// ServerLateSeconds and WorkerLateSeconds are the two parts of the time from a job's due time
	// to the timestamp of the grant of its first attempt. The server's part begins when the job is
	// due, its queue gives jobs out and a call for it is here. The worker's part is the time before
	// that. It includes the time that a call takes from another node to the leader.
	ServerLateSeconds, WorkerLateSeconds histogram.Values
	// Redelivered counts the grants that were not the first of their job.
	Redelivered uint64
	// Fired, Missed, Skipped and Backfilled count the firings of schedules that this node dealt with as
	// leader. FiredLateSeconds runs from the due time of a firing's job to its put; it is 0 for a job that
	// is put before it is due.
	Fired, Missed, Skipped, Backfilled uint64
	FiredLateSeconds                   histogram.Values
	// NextFiring is when the next schedule fires, 0 if none does: in the past for a firing that the leader
	// has not dealt with yet.
	NextFiring fsm.Time
	// Leading says that this node leads the shard.
	Leading bool
	// Queues are keyed by name. The map is empty if this node does not lead the shard.
	Queues map[string]QueueStats
	// Spaces is the use here of the quotas of namespaces, by name. The map is empty if this node
	// does not lead the shard.
	Spaces map[string]admit.Amounts
	// QuotaRefusals counts the requests that were refused for those quotas, by namespace and by
	// exhausted limit. If there are too many namespaces, the last to be refused are counted
	// together as OtherQueues.
	QuotaRefusals map[string]admit.Amounts
	// Followers are in order of their server ids. There are none if this node does not lead the
	// shard.
	Followers []FollowerStats
	// QueuedRequests and QueuedBytes are in the proposer's queue. InFlight counts entries that are
	// proposed and not applied.
	QueuedRequests, InFlight int
	QueuedBytes              int64
	// Waiters is the number of parked calls of Reserve.
	Waiters int
	// LeaderChanges counts how often this node began or ceased to serve as leader.
	LeaderChanges uint64
	AppliedIndex  uint64
	Snapshot      SnapshotStats
	// LogSyncSeconds is the time to write entries to the log and sync them to the disk.
	LogSyncSeconds histogram.Values
	// Machine holds the machine's own figures, Storage those of its files.
	Machine fsm.Stats
	Storage storage.Stats
}

// Histogram counts values in buckets.
type Histogram = histogram.Values

// Outcome is what is known about a request when its call ends. See package outcome.
type Outcome = outcome.Outcome

// The three outcomes.
const (
	Applied    = outcome.Applied
	NotApplied = outcome.NotApplied
	Unknown    = outcome.Unknown
)

// OutcomeOf returns the outcome that err stands for: Applied for nil, and Unknown for an error that
// is not of this package.
func OutcomeOf(err error) Outcome { return outcome.Of(err) }

// The errors that callers branch on, with errors.Is. Package outcome says what each means.
var (
	ErrNotLeader      = outcome.ErrNotLeader
	ErrNoLeader       = outcome.ErrNoLeader
	ErrOverloaded     = outcome.ErrOverloaded
	ErrShuttingDown   = outcome.ErrShuttingDown
	ErrQuota          = outcome.ErrQuota
	ErrRateLimited    = outcome.ErrRateLimited
	ErrQuotaUnknown   = outcome.ErrQuotaUnknown
	ErrDiskFull       = outcome.ErrDiskFull
	ErrMemoryFull     = outcome.ErrMemoryFull
	ErrTooFewVoters   = outcome.ErrTooFewVoters
	ErrNoQueue        = outcome.ErrNoQueue
	ErrClockAhead     = outcome.ErrClockAhead
	ErrCanceled       = outcome.ErrCanceled
	ErrRestoring      = outcome.ErrRestoring
	ErrTooLarge       = outcome.ErrTooLarge
	ErrUnsupported    = outcome.ErrUnsupported
	ErrUnknownShard   = outcome.ErrUnknownShard
	ErrNotHere        = outcome.ErrNotHere
	ErrLeads          = outcome.ErrLeads
	ErrDisproved      = outcome.ErrDisproved
	ErrOvertaken      = outcome.ErrOvertaken
	ErrSilent         = outcome.ErrSilent
	ErrUnknownOutcome = outcome.ErrUnknownOutcome
)

// CheckFormat refuses a request that has what a format does not have, with a *FormatError.
func CheckFormat(req *fsm.Request, format fsm.Format) error { return admit.CheckFormat(req, format) }

// Callers of this package meet these values and errors of package admit.
type (
	// Limit names one of the limits of a namespace.
	Limit = admit.Limit
	// Amounts holds one amount for each limit.
	Amounts = admit.Amounts
	// ShardQuota is the part of a namespace's quota that one shard may use.
	ShardQuota = admit.ShardQuota
	// NamespaceUse is what a namespace uses in one shard.
	NamespaceUse = admit.NamespaceUse
	// MemoryStatus is a node's use of memory.
	MemoryStatus = admit.MemoryStatus
	// QuotaError refuses a request beyond the quota of its namespace.
	QuotaError = admit.QuotaError
	// QueuesError refuses a queue beyond the number that a namespace may create in a shard.
	QueuesError = admit.QueuesError
	// NoQueueError refuses a put into a queue that does not exist and may not be created.
	NoQueueError = admit.NoQueueError
	// FormatError refuses what the format of the cluster does not have.
	FormatError = admit.FormatError
	// MemoryError refuses a put because a voter's memory is full.
	MemoryError = admit.MemoryError
	// VotersError refuses a request because the shard has too few voters.
	VotersError = admit.VotersError
)

// The limits of a namespace. PutRate is in thousandths of a put per second.
const (
	JobsLimit   = admit.JobsLimit
	BytesLimit  = admit.BytesLimit
	LeasesLimit = admit.LeasesLimit
	PutRate     = admit.PutRate
	Limits      = admit.Limits
)

// MemoryBytesMin is the least limit of memory with which a node can work.
const MemoryBytesMin = admit.MemoryBytesMin
