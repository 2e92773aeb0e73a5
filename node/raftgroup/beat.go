package raftgroup

import "github.com/hashicorp/raft"

// beatTimeout is the heartbeat timeout of a leader. Raft sends a heartbeat after a tenth to a fifth
// of it, so that followers get at least two, and mostly three, within their own timeout. With the
// followers' timeout, heartbeats would be most of the work of an idle node.
const beatTimeout = 2 * heartbeatTimeout

// reload changes the configuration of Raft as it runs.
func (g *Group) reload(change func(rc *raft.ReloadableConfig)) error {
	g.reloading.Lock()
	defer g.reloading.Unlock()
	r := g.instance()
	rc := r.ReloadableConfig()
	change(&rc)
	return r.ReloadConfig(rc)
}

// beat sets Raft's timeouts to those of a leader or of a follower.
func (g *Group) beat(leads bool) {
	heartbeat, election := heartbeatTimeout, electionTimeout
	if leads {
		heartbeat, election = beatTimeout, beatTimeout
	}
	if err := g.reload(func(rc *raft.ReloadableConfig) {
		rc.HeartbeatTimeout, rc.ElectionTimeout = heartbeat, election
	}); err != nil {
		g.Note("setting how often followers hear of their leader", err)
	}
}
