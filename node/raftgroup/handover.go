package raftgroup

import (
	"context"
	"time"

	"github.com/hashicorp/raft"
)

// HandOver transfers the leadership to the live voter with the longest confirmed log. If that
// fails, it tries the next voter, but none of unfit, which are server ids. It stops when this node
// no longer leads, when ctx ends, or when no voter is left, as when all nodes stop at once.
func (g *Group) HandOver(ctx context.Context, unfit ...string) {
	failed := map[raft.ServerID]bool{}
	for _, server := range unfit {
		failed[raft.ServerID(server)] = true
	}
	start := time.Now()
	for ctx.Err() == nil {
		i := g.instance()
		if i.State() != raft.Leader {
			return
		}
		next, ok := g.successor(i, failed)
		if !ok {
			if !g.SoleVoter() {
				g.cfg.Logger.Info("the leadership cannot be handed over", "reason", "no other voter answers that could lead")
			}
			return
		}
		transfer := make(chan error, 1)
		if !g.Spawn(func() { transfer <- i.outcome(i.LeadershipTransferToServer(next, raft.ServerAddress(next))) }) {
			return
		}
		select {
		case err := <-transfer:
			if err == nil {
				g.cfg.Logger.Info("the leadership was handed over", "to", string(next), "seconds", time.Since(start).Seconds())
				return
			}
			failed[next] = true
			g.cfg.Logger.Info("handing the leadership over failed", "to", string(next), "error", err)
		case <-ctx.Done():
		}
	}
}

// successor returns the voter that should lead next. Raft's own choice ignores which voters are
// alive.
func (g *Group) successor(i *instance, failed map[raft.ServerID]bool) (id raft.ServerID, ok bool) {
	var candidates []raft.ServerID
	voters, _ := g.latestMembers()
	for _, voter := range voters {
		if id := raft.ServerID(voter); voter != g.cfg.Self && !failed[id] {
			candidates = append(candidates, id)
		}
	}
	return i.transport.Furthest(candidates, i.CurrentTerm())
}

// TransferLeader hands the leadership, which this node must have, to another voter: if serverID is
// empty, to the one with the most of the log of those that answer. It fails with ErrSilent if the
// other has not answered in the last half second.
func (g *Group) TransferLeader(serverID string) error {
	i, to := g.instance(), raft.ServerID(serverID)
	if to == "" {
		to, _ = g.successor(i, nil)
	}
	if err := g.Answered([]string{string(to)}, 1); err != nil {
		return err
	}
	return ProposalError(i.outcome(i.LeadershipTransferToServer(to, raft.ServerAddress(to))))
}
