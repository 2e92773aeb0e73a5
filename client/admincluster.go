package client

import (
	"strings"
	"time"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// A Cluster is nodes and shards as the answering node heard of them.
type Cluster struct {
	// ID was made when the cluster was founded. AnsweredBy is the name of the answering node.
	ID, AnsweredBy string
	// Problems say what is not as it should be, one sentence each, for people; none if the cluster is healthy. Advice says what could be done to make it
	// safer; none of it is a problem.
	Problems, Advice []string
	// Nodes are in order of their names, Shards in order of their numbers. Catalog is the group that holds what all nodes agree on; of its fields Number, Jobs,
	// AppliedIndex, Digest, Time, ClockAhead and VotersWanted are not set.
	Nodes   []ClusterNode
	Shards  []ClusterShard
	Catalog ClusterShard
	// ReplicationFactor is how many voters a shard is to have, if there are as many nodes; MinVoters with how many it takes mutations.
	ReplicationFactor, MinVoters int
	// GracePeriod is how long a node may be silent before its replicas are replaced; 0 if there can be no other nodes.
	GracePeriod time.Duration
	// NoAutoCreate: a put into a queue that does not exist is refused.
	NoAutoCreate bool
	// Format is that of logs and snapshots that the nodes write: the latest that all of them read.
	Format int
	// Moves say what is done about shards that are not where they should be, as far as the leader of the catalog says.
	Moves []ShardMove
}

// A ShardMove says for people what is done about a shard, or waited for, and why.
type ShardMove struct {
	Shard uint32
	Text  string
}

// A ClusterNode is one server.
type ClusterNode struct {
	// Name is its name. Incarnation is the id made at the first start of its data directory, 16 hexadecimal digits.
	Name, Incarnation string
	// Address is where clients reach it; PeerAddress is where other nodes do, empty if there can be none.
	Address, PeerAddress string
	// Version is that of the software it runs; empty if it does not answer. Zone is what it fails together with.
	Version, Zone string
	// State is "LIVE", "SILENT" or "DRAINING". Draining: it is to be emptied, also if it is silent.
	State    string
	Draining bool
	// Replicas is how many replicas of shards it has, voting or not, Leads how many shards it leads.
	Replicas, Leads int
	// SilentSince is when a node that does not answer did so last, as far as the leader of the catalog knows.
	SilentSince time.Time
	// Format is the latest of logs and snapshots that it reads.
	Format int
	// Conditions are its troubles that the other nodes do not share. A node with one hands its leaderships over and is given none.
	Conditions []NodeCondition
	// UnreachedBy are the names of the nodes that cannot connect to it although it runs.
	UnreachedBy []string
}

// A NodeCondition is trouble of one node.
type NodeCondition struct {
	// Kind is DISK_PRESSURE, MEMORY_PRESSURE, SLOW_DISK, UNREACHABLE, or another in the future.
	Kind string
	// Message is what was measured, for people.
	Message string
	Since   time.Time
}

// A ClusterShard is one Raft group as its leader reports it; without a leader, as the replica that has applied most.
type ClusterShard struct {
	Number uint32
	// Leader is the name of the node that leads it; empty if there is none. Term is the Raft term.
	Leader string
	Term   uint64
	// AppliedIndex is that of the last entry applied; Digest is that of the state there, 16 hexadecimal digits.
	AppliedIndex uint64
	Digest       string
	// Voters and Nonvoters are names of nodes. VotersWanted is how many voters it should have; with fewer it is under-replicated.
	Voters, Nonvoters []string
	VotersWanted      int
	Jobs              int
	// Time is shard time; ClockAhead is by how much it is ahead of the nodes' clocks, if that is more than the clock bound.
	Time       time.Time
	ClockAhead time.Duration
	// Replicas are all, voters first, each as its own node reports it.
	Replicas []ClusterReplica
}

// A ClusterReplica is one node's copy of a Raft group.
type ClusterReplica struct {
	// Node and Incarnation are those of its node.
	Node, Incarnation string
	Voter             bool
	// Silent: its node does not answer; what follows is then not set.
	Silent bool
	// AppliedIndex and Digest are as those of a ClusterShard.
	AppliedIndex uint64
	Digest       string
	// BehindSince is since when a voter has not had what its leader has, if that is some seconds; else zero.
	BehindSince time.Time
}

// clusterOf reads a cluster off the wire.
func clusterOf(c *belfryv1.GetClusterResponse) Cluster {
	out := Cluster{
		ID: c.GetClusterId(), AnsweredBy: c.GetAnsweredBy(), Problems: c.GetProblems(), Advice: c.GetAdvice(), ReplicationFactor: int(c.GetReplicationFactor()),
		MinVoters: int(c.GetMinVoters()), GracePeriod: c.GetGracePeriod().AsDuration(), NoAutoCreate: c.GetNoAutoCreate(), Format: int(c.GetFormat()),
	}
	for _, n := range c.GetNodes() {
		out.Nodes = append(out.Nodes, nodeOf(n))
	}
	for _, s := range c.GetShards() {
		out.Shards = append(out.Shards, ClusterShard{
			Number: s.GetShard(), Leader: s.GetLeader(), Term: s.GetTerm(), AppliedIndex: s.GetAppliedIndex(), Digest: s.GetDigest(), Voters: s.GetVoters(),
			Nonvoters: s.GetNonvoters(), VotersWanted: int(s.GetVotersWanted()), Jobs: int(s.GetJobs()), Time: timeOf(s.GetTime()),
			ClockAhead: s.GetClockAhead().AsDuration(), Replicas: replicasOf(s.GetReplicas()),
		})
	}
	g := c.GetCatalog()
	out.Catalog = ClusterShard{
		Leader: g.GetLeader(), Term: g.GetTerm(), Voters: g.GetVoters(), Nonvoters: g.GetNonvoters(), Replicas: replicasOf(g.GetReplicas()),
	}
	for _, m := range c.GetMoves() {
		out.Moves = append(out.Moves, ShardMove{Shard: m.GetShard(), Text: m.GetText()})
	}
	return out
}

// nodeOf reads a node off the wire.
func nodeOf(n *belfryv1.Node) ClusterNode {
	out := ClusterNode{
		Name: n.GetName(), Incarnation: n.GetIncarnation(), Address: n.GetAddress(), PeerAddress: n.GetPeerAddress(), Version: n.GetVersion(), Zone: n.GetZone(),
		State: strings.TrimPrefix(n.GetState().String(), "NODE_STATE_"), Draining: n.GetDraining(), Replicas: int(n.GetReplicas()), Leads: int(n.GetLeads()),
		SilentSince: timeOf(n.GetSilentSince()), Format: int(n.GetFormat()), UnreachedBy: n.GetUnreachedBy(),
	}
	for _, c := range n.GetConditions() {
		out.Conditions = append(out.Conditions, NodeCondition{Kind: c.GetKind(), Message: c.GetMessage(), Since: timeOf(c.GetSince())})
	}
	return out
}

// replicasOf reads the replicas of a group off the wire.
func replicasOf(replicas []*belfryv1.Replica) (all []ClusterReplica) {
	for _, r := range replicas {
		all = append(all, ClusterReplica{
			Node: r.GetNode(), Incarnation: r.GetIncarnation(), Voter: r.GetVoter(), Silent: r.GetSilent(), AppliedIndex: r.GetAppliedIndex(), Digest: r.GetDigest(),
			BehindSince: timeOf(r.GetBehindSince()),
		})
	}
	return all
}
