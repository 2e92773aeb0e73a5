package node

import (
	"context"
	"fmt"

	"github.com/hashicorp/raft"
)

// AddNonvoter has a group, which this node must lead, send its log to a server that does not vote yet. The server's node
// must run the group. Adding a member that is there changes nothing.
func (n *Node) AddNonvoter(ctx context.Context, group, serverID string) error {
	return n.changeMembers(ctx, group, func(r *raft.Raft) raft.Future {
		return r.AddNonvoter(raft.ServerID(serverID), raft.ServerAddress(serverID), 0, submitTimeout)
	})
}

// AddVoter makes a server a voter of a group, which this node must lead. It takes part in every commit at once, so the caller must have seen it
// catch up as a non-voter, and must change one member at a time.
func (n *Node) AddVoter(ctx context.Context, group, serverID string) error {
	return n.changeMembers(ctx, group, func(r *raft.Raft) raft.Future {
		return r.AddVoter(raft.ServerID(serverID), raft.ServerAddress(serverID), 0, submitTimeout)
	})
}

// RemoveServer removes a server from a group, which this node must lead.
func (n *Node) RemoveServer(ctx context.Context, group, serverID string) error {
	return n.changeMembers(ctx, group, func(r *raft.Raft) raft.Future {
		return r.RemoveServer(raft.ServerID(serverID), 0, submitTimeout)
	})
}

// TransferLeader hands the leadership of a group, which this node must lead, to another voter.
func (n *Node) TransferLeader(ctx context.Context, group string) error {
	return n.changeMembers(ctx, group, func(r *raft.Raft) raft.Future { return r.LeadershipTransfer() })
}

// changeMembers carries out one change. If ctx ends first, it may be carried out all the same.
func (n *Node) changeMembers(ctx context.Context, name string, change func(*raft.Raft) raft.Future) error {
	n.active.Add(1)
	defer n.end()
	if n.draining.Load() {
		return ErrShuttingDown
	}
	for _, g := range n.allGroups() {
		if g.name != name {
			continue
		}
		if _, err := g.leader(); err != nil {
			return err
		}
		ended := make(chan error, 1)
		r := g.instance()
		if !n.spawn(func() { ended <- r.outcome(change(r.Raft)) }) {
			return ErrShuttingDown
		}
		select {
		case err := <-ended:
			if err = proposalError(err); err != nil {
				return fmt.Errorf("changing the members of %s: %w", name, err)
			}
			return nil
		case <-ctx.Done():
			return fmt.Errorf("changing the members of %s: %w: %w", name, ErrUnknownOutcome, context.Cause(ctx))
		}
	}
	return fmt.Errorf("changing the members of %s: %w", name, ErrUnknownShard)
}
