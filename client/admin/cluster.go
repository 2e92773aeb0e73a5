package admin

import (
	"strings"
	"time"

	"github.com/belfrydb/belfry/client/internal/values"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// A Cluster describes nodes and shards, as far as the answering node knows them.
type Cluster struct {
	// ID was generated when the cluster was founded. AnsweredBy is the name of the answering node.
	ID, AnsweredBy string
	// Problems are the cluster's faults, one sentence each, for people; none if the cluster is
	// healthy. Advice says what could make it safer; no advice is a problem.
	Problems, Advice []string
	// Nodes are ordered by name, Shards by number. Catalog is the group that holds what all nodes
	// agree on. Its fields Number, Jobs, AppliedIndex, Digest, Time, ClockAhead and VotersWanted
	// are not set.
	Nodes   []Node
	Shards  []Shard
	Catalog Shard
	// ReplicationFactor is how many voters a shard should have, if there are as many nodes.
	// MinVoters is how many voters a shard needs to accept mutations.
	ReplicationFactor, MinVoters int
	// GracePeriod is how long a node may be silent before its replicas are replaced; 0 if the
	// cluster cannot have other nodes.
	GracePeriod time.Duration
	// NoAutoCreate means that a put into a queue that does not exist is refused.
	NoAutoCreate bool
	// Format is the format of logs and snapshots that the nodes write: the latest that all of them
	// read.
	Format int
	// Moves describe the work on shards that are not where they should be, as far as the leader of
	// the catalog reports it.
	Moves []ShardMove
}

// A ShardMove tells people what is being done about a shard, or what is awaited, and why.
type ShardMove struct {
	Shard uint32
	Text  string
}

// A Node is one server.
type Node struct {
	// Name is the node's name. Incarnation is the id generated at the first start of its data
	// directory, 16 hexadecimal digits.
	Name, Incarnation string
	// Address is where clients reach the node. PeerAddress is where other nodes reach it, empty if
	// there can be none.
	Address, PeerAddress string
	// Version is the version of the node's software; empty if the node does not answer. Zone names
	// its failure domain: what it fails together with.
	Version, Zone string
	// State is "LIVE", "SILENT" or "DRAINING". Draining means that the node is to be emptied, and
	// is set also if the node is silent.
	State    string
	Draining bool
	// Replicas is how many replicas of shards the node has, voting or not. Leads is how many shards
	// it leads.
	Replicas, Leads int
	// SilentSince is when a node that does not answer last answered, as far as the leader of the
	// catalog knows. BackupAt is when it last sent a complete backup, zero if it never did.
	SilentSince, BackupAt time.Time
	// Format is the latest format of logs and snapshots that the node reads.
	Format int
	// Conditions are the node's troubles that the other nodes do not share. A node that has one
	// transfers its leaderships and gets no new ones.
	Conditions []NodeCondition
	// UnreachedBy are the names of nodes that cannot connect to this node although it runs.
	UnreachedBy []string
	// DiskFree is the free space of the disk with the node's data, in bytes, 0 if it is not known.
	// Below DiskLow the node refuses puts.
	DiskFree, DiskLow uint64
	// ClockOffset is how far the node's clock is ahead of the median of all clocks; nil if it has
	// compared none in the last minute.
	ClockOffset *time.Duration
	// Mirrored are the queues of Redisson that the node bridges.
	Mirrored []MirroredQueue
	// TimeZoneData is the version of the time-zone data with which the node finds the firings of
	// schedules; empty if it does not answer.
	TimeZoneData string
}

// A MirroredQueue is what a node's bridge between a queue of Redisson and one of Belfry has done since
// the node started. One node at a time does the work for a queue, and the others wait.
type MirroredQueue struct {
	// RedisQueue is the name that Redisson gives the queue, Queue that of Belfry.
	RedisQueue, Queue string
	// Waits tells people what the bridge waits for; empty while it works.
	Waits string
	// Came are entries that came from Redis, Delivered are due jobs put on Redisson's ready list. Dead
	// are due jobs for which Redisson has no form, SetAside entries that Belfry cannot take. Failed
	// counts bridges that ended with an error and began again.
	Came, Delivered, Dead, SetAside, Failed int
	// Left is how many entries Redis had at the last look, at LookedAt. The first of them was or is due
	// at EarliestDueAt. The times are zero if there was none.
	// Lateness is how late the last job came on the ready list.
	Left                    int
	LookedAt, EarliestDueAt time.Time
	Lateness                time.Duration
}

// A NodeCondition is one trouble of one node.
type NodeCondition struct {
	// Kind is DISK_PRESSURE, MEMORY_PRESSURE, SLOW_DISK, UNREACHABLE, or another in the future.
	Kind string
	// Message tells people what was measured.
	Message string
	Since   time.Time
}

// A Shard is one Raft group as its leader reports it. Without a leader, the replica that has
// applied most reports it.
type Shard struct {
	Number uint32
	// Leader is the name of the node that leads the shard; empty if there is none. Term is the Raft
	// term.
	Leader string
	Term   uint64
	// AppliedIndex is the index of the last entry applied. Digest is the digest of the state at
	// that index, 16 hexadecimal digits.
	AppliedIndex uint64
	Digest       string
	// Voters and Nonvoters are names of nodes. VotersWanted is how many voters the shard should
	// have; with fewer it is under-replicated.
	Voters, Nonvoters []string
	VotersWanted      int
	Jobs              int
	// Time is shard time. ClockAhead is how far it is ahead of the nodes' clocks, if that is more
	// than the clock bound.
	// HeardAt is when the answering node last heard from the catalog's leader; zero for a shard.
	Time, HeardAt time.Time
	ClockAhead    time.Duration
	// Replicas are all replicas, voters first, each as its own node reports it.
	Replicas []Replica
}

// A Replica is one node's copy of a Raft group.
type Replica struct {
	// Node and Incarnation identify the replica's node.
	Node, Incarnation string
	Voter             bool
	// Silent means that the replica's node does not answer. The fields below are then not set.
	Silent bool
	// AppliedIndex and Digest are as in [Shard].
	AppliedIndex uint64
	Digest       string
	// BehindSince is when a voter began to lack entries that its leader has, if that was some
	// seconds ago; else zero. SnapshotAt is when its newest snapshot was written, zero if it has none.
	BehindSince, SnapshotAt time.Time
}

// clusterOf reads a cluster off the wire.
func clusterOf(c *belfryv1.GetClusterResponse) Cluster {
	out := Cluster{
		ID: c.GetClusterId(), AnsweredBy: c.GetAnsweredBy(), Problems: c.GetProblems(), Advice: c.GetAdvice(),
		ReplicationFactor: int(c.GetReplicationFactor()), MinVoters: int(c.GetMinVoters()),
		GracePeriod: c.GetGracePeriod().AsDuration(), NoAutoCreate: c.GetNoAutoCreate(), Format: int(c.GetFormat()),
		Nodes: values.Each(c.GetNodes(), nodeOf), Shards: values.Each(c.GetShards(), shardOf),
	}
	g := c.GetCatalog()
	out.Catalog = Shard{
		Leader: g.GetLeader(), Term: g.GetTerm(), Voters: g.GetVoters(), Nonvoters: g.GetNonvoters(),
		Replicas: values.Each(g.GetReplicas(), replicaOf), HeardAt: values.TimeOf(g.GetHeardAt()),
	}
	out.Moves = values.Each(c.GetMoves(), func(m *belfryv1.ShardMove) ShardMove {
		return ShardMove{Shard: m.GetShard(), Text: m.GetText()}
	})
	return out
}

// shardOf reads a shard off the wire.
func shardOf(s *belfryv1.Shard) Shard {
	return Shard{
		Number: s.GetShard(), Leader: s.GetLeader(), Term: s.GetTerm(), AppliedIndex: s.GetAppliedIndex(),
		Digest: s.GetDigest(), Voters: s.GetVoters(), Nonvoters: s.GetNonvoters(), VotersWanted: int(s.GetVotersWanted()),
		Jobs: int(s.GetJobs()), Time: values.TimeOf(s.GetTime()), ClockAhead: s.GetClockAhead().AsDuration(),
		Replicas: values.Each(s.GetReplicas(), replicaOf),
	}
}

// nodeOf reads a node off the wire.
func nodeOf(n *belfryv1.Node) Node {
	return Node{
		Name: n.GetName(), Incarnation: n.GetIncarnation(), Address: n.GetAddress(), PeerAddress: n.GetPeerAddress(),
		Version: n.GetVersion(), Zone: n.GetZone(), Draining: n.GetDraining(),
		TimeZoneData: n.GetTimeZoneData(),
		State:        strings.TrimPrefix(n.GetState().String(), "NODE_STATE_"),
		Replicas:     int(n.GetReplicas()), Leads: int(n.GetLeads()), Format: int(n.GetFormat()),
		Mirrored:    values.Each(n.GetMirrored(), mirroredOf),
		SilentSince: values.TimeOf(n.GetSilentSince()), BackupAt: values.TimeOf(n.GetBackupAt()),
		UnreachedBy: n.GetUnreachedBy(),
		DiskFree:    n.GetDiskFreeBytes(), DiskLow: n.GetDiskLowBytes(), ClockOffset: values.DurationOf(n.GetClockOffset()),
		Conditions: values.Each(n.GetConditions(), func(c *belfryv1.NodeCondition) NodeCondition {
			return NodeCondition{Kind: c.GetKind(), Message: c.GetMessage(), Since: values.TimeOf(c.GetSince())}
		}),
	}
}

// mirroredOf reads what a bridge has done off the wire.
func mirroredOf(q *belfryv1.MirroredQueue) MirroredQueue {
	return MirroredQueue{
		RedisQueue: q.GetRedisQueue(), Queue: q.GetQueue(), Waits: q.GetWaits(), Came: int(q.GetCame()),
		Delivered: int(q.GetDelivered()), Dead: int(q.GetDead()), SetAside: int(q.GetSetAside()),
		Failed: int(q.GetFailed()), Left: int(q.GetLeft()), LookedAt: values.TimeOf(q.GetLookedAt()),
		EarliestDueAt: values.TimeOf(q.GetEarliestDueAt()), Lateness: q.GetLateness().AsDuration(),
	}
}

// replicaOf reads a replica of a group off the wire.
func replicaOf(r *belfryv1.Replica) Replica {
	return Replica{
		Node: r.GetNode(), Incarnation: r.GetIncarnation(), Voter: r.GetVoter(), Silent: r.GetSilent(),
		AppliedIndex: r.GetAppliedIndex(), Digest: r.GetDigest(), BehindSince: values.TimeOf(r.GetBehindSince()),
		SnapshotAt: values.TimeOf(r.GetSnapshotAt()),
	}
}
