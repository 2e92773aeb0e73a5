package node

import (
	"math/rand/v2"
	"time"

	"github.com/hashicorp/raft"
)

const (
	// electNow is added to the heartbeat timeout at the start; taking it away again makes a follower look at once
	// whether to stand for election. A sole voter so skips the wait for a leader that cannot exist, and keeps its
	// ordinary timeouts, which Raft could not lengthen when a second voter comes.
	electNow = time.Millisecond
	// standWithin is how soon after its start a replica with other voters looks so, each at a moment of its own: where all stand at once their votes split.
	standWithin = heartbeatTimeout / 4
)

// stand has a replica that has heard of no leader since its start stand for election. Where others hear a leader they refuse the pre-vote, and nothing has changed.
func (g *group) stand() error {
	return g.reload(func(rc *raft.ReloadableConfig) {
		if rc.HeartbeatTimeout == heartbeatTimeout+electNow { // else it has led already, or stood
			rc.HeartbeatTimeout = heartbeatTimeout
		}
	})
}

// standSoon is stand after a moment.
func (g *group) standSoon() {
	pause := time.NewTimer(rand.N(standWithin))
	defer pause.Stop()
	select {
	case <-pause.C:
		if err := g.stand(); err != nil {
			g.note("standing for election", err)
		}
	case <-g.done:
	}
}
