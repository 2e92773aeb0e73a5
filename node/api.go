package node

import (
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node/clock"
	"github.com/belfrydb/belfry/node/storage"
)

// Witness says where in a shard's history a request took effect, or what a read saw.
type Witness struct {
	Shard uint32
	Term  uint64
	Index uint64
	// Entry is the position of the request's first command among the commands of the log entry; 0 for a read.
	Entry uint32
	// Time is the shard's clock as of the entry.
	Time fsm.Time
}

// Reply is what a request was answered. Results[i] belongs to the request's command i, whose witness has Entry Witness.Entry+i.
// The zero Witness means that nothing was logged.
type Reply struct {
	Witness Witness
	Results []fsm.Result
	// Jobs, which only Reserve fills, are the granted jobs in the order of the grants, as fsm.HeldQuery answers them: one that was not held
	// any more when they were read, because its lease was short or a repeat of the call has finished it, is left out.
	Jobs []fsm.Job
}

// Wait says how long a call of Reserve stays among the waiters.
type Wait struct {
	// For is the longest wait; a call that does not wait has 0.
	For time.Duration
	// Stop, if it is not nil, ends the wait when it is closed, as if For had passed: a call whose reservation is under way
	// returns with what that grants. A call that begins after it reserves nothing; it only returns live grants that an
	// earlier attempt at its request got.
	Stop <-chan struct{}
}

// stopped reports whether the wait was ended by Stop.
func (w Wait) stopped() bool {
	select {
	case <-w.Stop:
		return true
	default:
		return false
	}
}

// Status is what a node knows about itself and its groups.
type Status struct {
	ClusterID string
	// Name is the node's name, ServerID its Raft server id: name.incarnation.
	Name, ServerID string
	// PeerAddr is the address on which the node listens for its peers; empty if it does not.
	PeerAddr string
	Draining bool
	// Leaving tells that the node is about to stop, and should lead nothing: HandOver or Drain was called.
	Leaving  bool
	DiskFull bool
	// DiskFreeBytes is the free space of the data directory's disk as last sampled. Below DiskLowBytes puts are refused.
	DiskFreeBytes, DiskLowBytes uint64
	// DiskFreeInodes and DiskLowInodes are the same of inodes, both 0 where the file system has no fixed number of them.
	DiskFreeInodes, DiskLowInodes uint64
	// DiskShortage says for people what the disk has least of, bytes or inodes, and its mark.
	DiskShortage string
	// Conditions are the troubles of this node that the others do not share.
	Conditions []Condition
	// Memory is what the node takes of memory, and may.
	Memory MemoryStatus
	// MinVoters is with how many voters a shard takes mutations.
	MinVoters int
	// ShardCount is the number of shards of the cluster, Shards are those that are here, in order of their number.
	ShardCount int
	Shards     []GroupStatus
	// Quarantined are the names of groups whose replica here was set aside because its state differs from the others', or cannot be restored.
	Quarantined []string
	// Groups are the other groups, such as the catalog.
	Groups []GroupStatus
}

// Role is what a node is in a group.
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
	// Serving tells that this node leads the group and has finished the duties that come before serving.
	Serving bool
	// Leader is the server id of the leader; empty if none is known.
	Leader string
	// Voters are the server ids of the voting members, Nonvoters those of members that only follow the log, by the newest configuration that is
	// known here to be committed. MembersIndex is its position in the log: 0 if none is known, and then they are by the newest in the log.
	Voters, Nonvoters []string
	MembersIndex      uint64
	Term              uint64
	// CommitIndex, AppliedIndex, LastIndex and SnapshotIndex are positions in the group's log.
	CommitIndex, AppliedIndex, LastIndex, SnapshotIndex uint64
	// Digest is the machine's digest at DigestIndex.
	Digest, DigestIndex uint64
	// Digests are those of the last entries that are compared between replicas, the present one last.
	Digests []IndexDigest
	// Clock is the machine's clock; zero for groups that are not shards.
	Clock fsm.Time
	// Jobs is the number of held jobs as of Clock; zero for groups that are not shards.
	Jobs int
	// Restoring tells that a restore of the shard has begun and not ended: it does nothing else.
	Restoring bool
	// ClockAhead tells that the shard's clock is ahead by more than the bound of what this node takes the time to be: if it leads, by the
	// median of the voters' clocks. ClockAheadBy is by how much.
	ClockAhead   bool
	ClockAheadBy time.Duration
	// LastError is the last failure of the group that was not a caller's, for people; empty if there was none.
	LastError string
}

// Stats are measurements of a node since its start.
type Stats struct {
	// Shards are those that are here, in order of their number. One that left and came back counts from its return.
	Shards []ShardStats
	// Clocks are what other voters of shards that this node leads said about the time within the last minute, in order of their server ids.
	Clocks []clock.PeerOffset
	// PeersChanged counts the connections of peers that were ended because bytes on them had been changed on the way.
	PeersChanged uint64
}

// FollowerStats are what a leader knows of a follower.
type FollowerStats struct {
	Server string
	// Lag is how many entries the leader has that the follower has not confirmed in this leadership.
	Lag uint64
	// Heard is when the follower last answered in this leadership; zero if it has not.
	Heard time.Time
}

// QueueStats are what a shard's leader knows of a queue besides the jobs, since it leads.
type QueueStats struct {
	// LatenessSeconds runs from a job's due time to the stamp of the grant of its first attempt.
	LatenessSeconds Histogram
	// JobSeconds runs from a job's put to its ack, in shard time.
	JobSeconds Histogram
	// Attempts counts those that a job took until it was acked or died.
	Attempts Histogram
	// Waiting is the number of parked calls of Reserve that name the queue.
	Waiting int
}

// OtherQueues stands for the queues of a shard that have no QueueStats of their own, because there are too many; for a queue of this name, too.
const OtherQueues = "_other"

// ShardStats are measurements of one shard since the start of the node.
type ShardStats struct {
	Shard uint32
	// Applied, NotApplied and Unknown count the requests by outcome.
	Applied, NotApplied, Unknown uint64
	// Overloaded, DiskFull, MemoryFull, TooFewVoters and NoLeader count the refused requests by reason; they are part of NotApplied.
	Overloaded, DiskFull, MemoryFull, TooFewVoters, NoLeader uint64
	// Entries and Commands count what this node proposed as leader and saw applied.
	Entries, Commands uint64
	// EntryCommands and EntryBytes are the sizes of those entries.
	EntryCommands, EntryBytes Histogram
	// ProposeSeconds runs from the moment a request is queued to its answer, CommitSeconds from the proposal of an entry
	// to its application, ApplySeconds is the machine's own time for an entry.
	ProposeSeconds, CommitSeconds, ApplySeconds Histogram
	// ServerLateSeconds and WorkerLateSeconds are the two parts of the time from a job's due time to the stamp of the grant of its first attempt: the
	// first runs from the moment at which the job was due, its queue gave jobs out and a call for it was here, the second is what was before. The time that
	// a call takes from another node to the leader is in the second.
	ServerLateSeconds, WorkerLateSeconds Histogram
	// Redelivered counts the grants that were not the first of their job.
	Redelivered uint64
	// Queues are by name; it is empty where this node does not lead.
	Queues map[string]QueueStats
	// Spaces is what is used here of the quotas of namespaces, by name; it is empty where this node does not lead.
	Spaces map[string]Amounts
	// QuotaRefusals counts the requests that were refused for those quotas, by the limit of which there was too little. Of too many namespaces the last to
	// be refused are together as OtherQueues.
	QuotaRefusals map[string]Amounts
	// Followers are in order of their server ids; there are none where this node does not lead.
	Followers []FollowerStats
	// QueuedRequests and QueuedBytes are in the proposer's queue, InFlight entries are proposed and not applied.
	QueuedRequests, InFlight int
	QueuedBytes              int64
	// Waiters is the number of parked calls of Reserve.
	Waiters int
	// LeaderChanges counts the times that this node began or ceased to serve as leader.
	LeaderChanges uint64
	AppliedIndex  uint64
	Snapshot      SnapshotStats
	// LogSyncSeconds is the time in which entries were written to the log and synced to the disk.
	LogSyncSeconds Histogram
	// Machine are the machine's own figures, Storage those of its files.
	Machine fsm.Stats
	Storage storage.Stats
}

// SnapshotStats describe the snapshots of one group.
type SnapshotStats struct {
	// Index is the index of the newest snapshot on the disk, own or from another node, At when it was written: of one that a start found the time of
	// its file. At is zero if there is no snapshot.
	Index uint64
	At    time.Time
	// Bytes is its size.
	Bytes int64
	// Duration is how long the last took that was taken here since the start; Taken and Failed count those attempts.
	Duration      time.Duration
	Taken, Failed uint64
	// LoggedBytes is what was logged since, DueBytes how much that is when the next one is due.
	LoggedBytes, DueBytes int64
}

// Histogram counts values in buckets: Counts[i] values are at most Bounds[i] and above Bounds[i-1]; the last of Counts,
// which has no bound, holds the rest.
type Histogram struct {
	Bounds []float64
	Counts []uint64
	Sum    float64
	Count  uint64
}
