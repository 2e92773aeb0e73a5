package raftgroup

import (
	"time"

	"github.com/hashicorp/raft"
)

// Role is the role of a node in a group.
type Role uint8

// The roles.
const (
	Follower Role = iota
	Candidate
	// Leader has been elected; it serves once Status.Serving is set.
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

// Status returns the state of the group.
func (g *Group) Status() Status {
	r := g.instance()
	_, leader := r.LeaderWithID()
	members := g.replica.CommittedMembers()
	if members.Index == 0 {
		members.Voters, members.Nonvoters = g.latestMembers() // a start without a leader: what people may still be shown
	}
	durable := r.replica.log.Load().Unwritten() - 1
	st := Status{
		Group: g.cfg.Name, Serving: g.Serves(), Leader: string(leader), Voters: members.Voters, Nonvoters: members.Nonvoters,
		MembersIndex: members.Index, Term: r.CurrentTerm(),
		// Raft's own count entries that are not durable here, and are not applied.
		CommitIndex: min(r.CommitIndex(), durable), AppliedIndex: min(r.AppliedIndex(), durable), LastIndex: r.LastIndex(),
	}
	newest := g.SnapshotStats()
	st.SnapshotIndex, st.SnapshotAt = newest.Index, newest.At
	if st.Heard = r.LastContact(); r.State() == raft.Leader {
		st.Heard = time.Now()
	}
	switch r.State() {
	case raft.Follower:
		st.Role = Follower
	case raft.Candidate:
		st.Role = Candidate
	case raft.Leader:
		st.Role = Leader
	case raft.Shutdown:
		st.Role = Stopped
	}
	st.Digests = g.replica.compared()
	if last := len(st.Digests) - 1; last >= 0 {
		st.Digest, st.DigestIndex = st.Digests[last].Digest, st.Digests[last].Index
	}
	st.AppliedIndex = max(st.AppliedIndex, st.DigestIndex) // Raft's own figure follows a moment later
	if text := g.lastError.Load(); text != nil {
		st.LastError = *text
	}
	return st
}

// Status is the state of one Raft group on this node.
type Status struct {
	// Group is the group's name: "shard-<number>" or "catalog".
	Group string
	Role  Role
	// Serving tells that this node leads the group and has finished the duties that precede serving.
	Serving bool
	// Leader is the server id of the leader; empty if none is known.
	Leader string
	// Heard is when this node last heard from the leader, or led; zero if never since its start.
	Heard time.Time
	// Voters are the server ids of the voting members, Nonvoters those of members that only
	// replicate the log. They come from the newest configuration that this node knows to be
	// committed. MembersIndex is the position of that configuration in the log. If it is 0, no
	// committed configuration is known, and the members come from the newest one in the log.
	Voters, Nonvoters []string
	MembersIndex      uint64
	Term              uint64
	// CommitIndex, AppliedIndex, LastIndex and SnapshotIndex are positions in the group's log.
	CommitIndex, AppliedIndex, LastIndex, SnapshotIndex uint64
	// SnapshotAt is when the newest snapshot was written; zero if there is none.
	SnapshotAt time.Time
	// Digest is the machine's digest at DigestIndex.
	Digest, DigestIndex uint64
	// Digests are the digests of the last entries that replicas compare. The present digest is the
	// last.
	Digests []IndexDigest
	// LastError is a text for people: the last failure of the group that was not a caller's. It is
	// empty if there was none.
	LastError string
}
