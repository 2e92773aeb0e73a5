package raftgroup

import (
	"math/rand/v2"
	"time"

	"github.com/hashicorp/raft"
)

const (
	// electNow is added to the heartbeat timeout at the start. Removing it makes a follower check at
	// once whether to stand for election. So a sole voter skips the wait for a leader that cannot
	// exist, and keeps its ordinary timeouts: Raft could not lengthen shorter ones when a second voter
	// joins.
	electNow = time.Millisecond
	// standWithin bounds how soon after its start a replica with other voters does the same. The
	// moment is random: if all replicas stood at once, their votes would split.
	standWithin = heartbeatTimeout / 4
)

// stand makes a replica that has heard of no leader since its start stand for election. Voters that
// hear a leader refuse the pre-vote, and nothing changes.
func (g *Group) stand() error {
	return g.reload(func(rc *raft.ReloadableConfig) {
		if rc.HeartbeatTimeout == heartbeatTimeout+electNow { // else it has led or stood before
			rc.HeartbeatTimeout = heartbeatTimeout
		}
	})
}

// standSoon calls stand within standWithin.
func (g *Group) standSoon() {
	pause := time.NewTimer(rand.N(standWithin))
	defer pause.Stop()
	select {
	case <-pause.C:
		if err := g.stand(); err != nil {
			g.Note("standing for election", err)
		}
	case <-g.done:
	}
}
