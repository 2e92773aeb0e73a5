package node

import "github.com/belfrydb/belfry/node/clock"

// Status returns what the node knows about itself and its groups.
func (n *Node) Status() Status {
	space := n.space.Stats()
	st := Status{
		ClusterID: n.id.ClusterID, MinVoters: n.MinVoters(), ShardCount: len(n.shards), Name: n.id.Name,
		ServerID:    n.id.ServerID(),
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
		st.Groups = append(st.Groups, GroupStatus{RaftStatus: g.group.Status()})
	}
	return st
}

// Clocks returns how far the clocks of other nodes were ahead of this one's within the last minute.
func (n *Node) Clocks() []clock.PeerOffset { return n.clocks.Lately() }

// Stats returns the measurements since the start.
func (n *Node) Stats() Stats {
	st := Stats{Clocks: n.Clocks(), PeersChanged: n.mux.ChangedConns()}
	for _, s := range n.here() {
		st.Shards = append(st.Shards, s.statistics())
	}
	return st
}
