package node

import (
	"context"
	"fmt"
	"slices"

	"github.com/hashicorp/raft"

	"github.com/belfrydb/belfry/node/founding"
	"github.com/belfrydb/belfry/node/outcome"
	"github.com/belfrydb/belfry/node/raftgroup"
)

// AddNonvoter has a group, which this node must lead, send its log to a server that does not vote
// yet. The server's node must run the group. Adding a member that is there changes nothing. For
// after see RemoveServer.
func (n *Node) AddNonvoter(ctx context.Context, group, serverID string, after uint64) error {
	return n.changeMembers(ctx, group, after, func(_ Membership, r *raft.Raft) (raft.Future, error) {
		return r.AddNonvoter(raft.ServerID(serverID), raft.ServerAddress(serverID), after, submitTimeout), nil
	})
}

// AddVoter makes a non-voter of a group, which this node must lead, a voter. It takes part in every
// commit at once, so the caller must have seen it catch up, and must change one member at a time. A
// server that is no member is refused with ErrOvertaken. For after see RemoveServer.
func (n *Node) AddVoter(ctx context.Context, group, serverID string, after uint64) error {
	return n.changeMembers(ctx, group, after, func(m Membership, r *raft.Raft) (raft.Future, error) {
		if !m.Has(serverID) {
			return nil, fmt.Errorf("%w: %s is no member that could become a voter", outcome.ErrOvertaken, serverID)
		}
		return r.AddVoter(raft.ServerID(serverID), raft.ServerAddress(serverID), after, submitTimeout), nil
	})
}

// DemoteVoter takes a server its vote in a group, which this node must lead; it follows on. The
// leader cannot be demoted: it hands over first. For after see RemoveServer.
func (n *Node) DemoteVoter(ctx context.Context, group, serverID string, after uint64) error {
	if serverID == n.id.serverID() {
		return fmt.Errorf("%w: %s would take its own vote in %s", outcome.ErrCanceled, serverID, group)
	}
	return n.changeMembers(ctx, group, after, func(_ Membership, r *raft.Raft) (raft.Future, error) {
		return r.DemoteVoter(raft.ServerID(serverID), after, submitTimeout), nil
	})
}

// RemoveServer removes a server from a group, which this node must lead. after is the
// Membership.Index of the configuration that the caller judged by: if there is a newer one, nothing
// changes and the error is ErrOvertaken, or, if the newer one is not committed yet,
// ErrUnknownOutcome. 0 stands for any configuration; two callers with 0 may together take away a
// majority.
func (n *Node) RemoveServer(ctx context.Context, group, serverID string, after uint64) error {
	return n.changeMembers(ctx, group, after, func(_ Membership, r *raft.Raft) (raft.Future, error) {
		return r.RemoveServer(raft.ServerID(serverID), after, submitTimeout), nil
	})
}

// TransferLeader hands the leadership of a group, which this node must lead, to another voter: if
// serverID is empty to the one with the most of the log of those that answer. It fails with
// ErrSilent if the other has not answered in the last half second: the group would be without a
// leader while it is waited for, and Raft might go on waiting for ever.
func (n *Node) TransferLeader(ctx context.Context, name, serverID string) error {
	return n.asLeader(ctx, name, "handing over the leadership of", func(g *group, i *instance) error {
		to := raft.ServerID(serverID)
		if to == "" {
			to, _ = g.heir(i, nil)
		}
		if err := n.Answered(name, []string{string(to)}, 1); err != nil {
			return err
		}
		return raftgroup.ProposalError(i.outcome(i.LeadershipTransferToServer(to, raft.ServerAddress(to))))
	})
}

// changeMembers carries out one change. If ctx ends first, it may be carried out all the same.
func (n *Node) changeMembers(ctx context.Context, name string, after uint64,
	change func(Membership, *raft.Raft) (raft.Future, error)) error {
	return n.asLeader(ctx, name, "changing the members of", func(g *group, i *instance) error {
		m := g.replica.committedMembers()
		if after != 0 && m.Index != after {
			return fmt.Errorf("%w: they were changed at %d, after %d", outcome.ErrOvertaken, m.Index, after)
		}
		future, err := change(m, i.Raft)
		if err != nil {
			return err
		}
		return raftgroup.ProposalError(i.outcome(future))
	})
}

// asLeader runs f on a group, which this node must lead. f may go on when ctx has ended.
func (n *Node) asLeader(ctx context.Context, name, doing string, f func(*group, *instance) error) error {
	n.active.Add(1)
	defer n.end()
	if n.draining.Load() {
		return outcome.ErrShuttingDown
	}
	all := n.allGroups()
	at := slices.IndexFunc(all, func(g *group) bool { return g.name() == name })
	if at < 0 {
		missing := outcome.ErrUnknownShard
		for i := range n.shards {
			if founding.ShardGroup(uint32(i)) == name {
				missing = outcome.ErrNotHere
			}
		}
		return fmt.Errorf("%s %s: %w", doing, name, missing)
	}
	g := all[at]
	if _, err := g.leader(); err != nil {
		return err
	}
	ended, i := make(chan error, 1), g.instance()
	if !n.spawn(func() { ended <- f(g, i) }) {
		return outcome.ErrShuttingDown
	}
	select {
	case err := <-ended:
		if err != nil {
			return fmt.Errorf("%s %s: %w", doing, name, err)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s %s: %w: %w", doing, name, outcome.ErrUnknownOutcome, context.Cause(ctx))
	}
}
