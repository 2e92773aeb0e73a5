package node

import (
	"github.com/hashicorp/raft"
)

// status returns the state of the group.
func (g *group) status() GroupStatus {
	r := g.instance()
	_, leader := r.LeaderWithID()
	st := GroupStatus{
		Group: g.name, Serving: g.serving.Load() != nil, Leader: string(leader), Voters: g.voters(),
		Term: r.CurrentTerm(), CommitIndex: r.CommitIndex(), AppliedIndex: r.AppliedIndex(), LastIndex: r.LastIndex(),
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
	g.replica.view(func(m Machine, _, index uint64) { st.Digest, st.DigestIndex = m.Digest(), index })
	st.AppliedIndex = max(st.AppliedIndex, st.DigestIndex) // Raft's own figure follows a moment later
	if text := g.lastError.Load(); text != nil {
		st.LastError = *text
	}
	return st
}

// Status returns what the node knows about itself and its groups.
func (n *Node) Status() Status {
	st := Status{
		ClusterID: n.id.ClusterID, Name: n.id.Name, ServerID: n.id.serverID(),
		Draining: n.draining.Load(), DiskFull: n.space.Low(), DiskFreeBytes: n.space.Stats().FreeBytes,
	}
	if n.cfg.Peers != nil {
		st.PeerAddr = n.cfg.Peers.Addr().String()
	}
	for _, s := range n.shards {
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
	var st Stats
	for _, s := range n.shards {
		st.Shards = append(st.Shards, s.statistics())
	}
	return st
}
