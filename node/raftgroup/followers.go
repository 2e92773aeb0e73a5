package raftgroup

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"github.com/belfrydb/belfry/node/outcome"
)

// FollowerStats are the leader's knowledge of a follower.
type FollowerStats struct {
	Server string
	// Lag is the number of the leader's entries that the follower has not confirmed in this
	// leadership.
	Lag uint64
	// Heard is the time of the follower's last answer in this leadership; zero if it has not
	// answered.
	Heard time.Time
}

// Followers returns the progress of the other voters and nonvoters of a group that this node leads.
func (g *Group) Followers() (all []FollowerStats) {
	i, members := g.instance(), g.replica.CommittedMembers()
	last, term := i.LastIndex(), i.CurrentTerm()
	for _, server := range slices.Concat(members.Voters, members.Nonvoters) {
		if server == g.cfg.Self {
			continue
		}
		f := i.transport.Follower(server)
		st := FollowerStats{Server: server, Lag: last}
		if f.Term == term {
			st.Lag, st.Heard = last-min(last, f.Index), f.At
		}
		all = append(all, st)
	}
	slices.SortFunc(all, func(a, b FollowerStats) int { return strings.Compare(a.Server, b.Server) })
	return all
}

// Answered returns nil if at least need of the servers have answered this node as the leader of the
// group within the last half second. Else it returns ErrSilent with the servers that have not. It
// asks no server. The leader itself counts.
func (g *Group) Answered(servers []string, need int) error {
	i := g.instance()
	var silent []string
	for _, server := range servers {
		if _, alive := i.transport.Furthest([]raft.ServerID{raft.ServerID(server)}, i.CurrentTerm()); !alive &&
			server != g.cfg.Self {
			silent = append(silent, server)
		}
	}
	if alive := len(servers) - len(silent); alive < need {
		return fmt.Errorf("%s: %w: %s; %d of %d answer, and %d must", g.cfg.Name, outcome.ErrSilent,
			strings.Join(silent, ", "), alive, len(servers), need)
	}
	return nil
}
