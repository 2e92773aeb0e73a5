package node

import (
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node/admit"
	"github.com/belfrydb/belfry/node/clock"
	"github.com/belfrydb/belfry/node/histogram"
	"github.com/belfrydb/belfry/node/longpoll"
	"github.com/belfrydb/belfry/node/propose"
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

// Role is the role of a node in a group.
type Role uint8

// The roles.
const (
	Follower Role = iota
	Candidate
	// Leader has been elected; it serves once GroupStatus.Serving is set.
	Leader
	Stopped
)

// String returns the name of the role in lower case.
func (r Role) String() string {
	switch r {
	case Follower:
		return "follower"
	case Candidate:
		return "candidate"
	case Leader:
		return "leader"
	default:
		return "stopped"
	}
}

// GroupStatus is the state of one Raft group on this node.
type GroupStatus struct {
	// Group is the group's name: "shard-<number>" or "catalog".
	Group string
	Shard uint32
	Role  Role
	// Serving tells that this node leads the group and has finished the duties that precede
	// serving.
	Serving bool
	// Leader is the server id of the leader; empty if none is known.
	Leader string
	// Voters are the server ids of the voting members, Nonvoters those of members that only
	// replicate the log. They come from the newest configuration that this node knows to be
	// committed. MembersIndex is the position of that configuration in the log. If it is 0, no
	// committed configuration is known, and the members come from the newest one in the log.
	Voters, Nonvoters []string
	MembersIndex      uint64
	Term              uint64
	// CommitIndex, AppliedIndex, LastIndex and SnapshotIndex are positions in the group's log.
	CommitIndex, AppliedIndex, LastIndex, SnapshotIndex uint64
	// Digest is the machine's digest at DigestIndex.
	Digest, DigestIndex uint64
	// Digests are the digests of the last entries that replicas compare. The present digest is the
	// last.
	Digests []IndexDigest
	// Clock is the machine's clock; zero for groups that are not shards.
	Clock fsm.Time
	// Jobs is the number of held jobs at Clock; zero for groups that are not shards.
	Jobs int
	// Restoring tells that a restore of the shard has begun and not ended. Until it ends, the shard
	// does no other work.
	Restoring bool
	// ClockAhead tells that the shard's clock is ahead of this node's reference time by more than
	// the bound. The reference time of a leader is the median of the voters' clocks. ClockAheadBy
	// is the difference.
	ClockAhead   bool
	ClockAheadBy time.Duration
	// LastError is a text for people: the last failure of the group that was not a caller's. It is
	// empty if there was none.
	LastError string
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

// FollowerStats are the leader's knowledge of a follower.
type FollowerStats struct {
	Server string
	// Lag is the number of the leader's entries that the follower has not confirmed in this
	// leadership.
	Lag uint64
	// Heard is the time of the follower's last answer in this leadership; zero if it has not
	// answered.
	Heard time.Time
}

// QueueStats are the leader's measurements of a queue besides its jobs, since it leads the shard.
type QueueStats struct {
	// LatenessSeconds runs from a job's due time to the timestamp of the grant of its first
	// attempt.
	LatenessSeconds histogram.Values
	// JobSeconds runs from a job's put to its ack, in shard time.
	JobSeconds histogram.Values
	// Attempts counts the attempts at a job until it was acked or died.
	Attempts histogram.Values
	// Waiting is the number of parked calls of Reserve that name the queue.
	Waiting int
}

// OtherQueues is the name for all queues of a shard that have no QueueStats of their own, because
// there are too many. A queue of this name is counted here too.
const OtherQueues = "_other"

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

// SnapshotStats describe the snapshots of one group.
type SnapshotStats struct {
	// Index is the index of the newest snapshot on the disk, taken here or received from another
	// node. At is the time when it was written. For a snapshot found at the start, At is the time
	// of its file. It is zero if there is no snapshot.
	Index uint64
	At    time.Time
	// Bytes is its size.
	Bytes int64
	// Duration is how long the last snapshot took that was taken here since the start. Taken and
	// Failed count those attempts.
	Duration      time.Duration
	Taken, Failed uint64
	// LoggedBytes is the amount logged since. The next snapshot is due when it reaches DueBytes.
	LoggedBytes, DueBytes int64
}

// Histogram counts values in buckets.
type Histogram = histogram.Values
