package node

import (
	"github.com/hashicorp/raft"
)

// status returns the state of the group.
func (g *group) status() GroupStatus {
	r := g.instance()
	_, leader := r.LeaderWithID()
	members := g.replica.committedMembers()
	if members.Index == 0 {
		members.Voters, members.Nonvoters = g.members() // a start without a leader: what people may still be shown
	}
	st := GroupStatus{
		Group: g.cfg.Name, Serving: g.serves(), Leader: string(leader), Voters: members.Voters, Nonvoters: members.Nonvoters,
		MembersIndex: members.Index,
		Term:         r.CurrentTerm(), CommitIndex: r.CommitIndex(), AppliedIndex: r.AppliedIndex(), LastIndex: r.LastIndex(),
		SnapshotIndex: g.snapshotStats().Index,
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

// Status returns what the node knows about itself and its groups.
func (n *Node) Status() Status {
	space := n.space.Stats()
	st := Status{
		ClusterID: n.id.ClusterID, MinVoters: n.MinVoters(), ShardCount: len(n.shards), Name: n.id.Name,
		ServerID:    n.id.serverID(),
		Quarantined: n.quarantined(), Draining: n.draining.Load(), Leaving: n.leaving.Load(), DiskFull: space.Low,
		DiskFreeBytes: space.FreeBytes, DiskLowBytes: space.LowWaterBytes,
		DiskFreeInodes: space.FreeFiles, DiskLowInodes: space.LowWaterFiles, DiskShortage: space.Shortage(),
		Conditions: n.Conditions(),
		Memory:     n.memory.Status(),
	}
	if n.cfg.Peers != nil {
		st.PeerAddr = n.cfg.Peers.Addr().String()
	}
	for _, s := range n.here() {
		st.Shards = append(st.Shards, s.status())
	}
	n.mu.Lock()
	groups := n.groups
	n.mu.Unlock()
	for _, g := range groups {
		st.Groups = append(st.Groups, g.group.status())
	}
	return st
}

// Stats returns the measurements since the start.
func (n *Node) Stats() Stats {
	st := Stats{Clocks: n.clocks.Lately(), PeersChanged: n.mux.ChangedConns()}
	for _, s := range n.here() {
		st.Shards = append(st.Shards, s.statistics())
	}
	return st
}
