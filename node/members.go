package node

import (
	"context"
	"fmt"

	"github.com/belfrydb/belfry/node/founding"
	"github.com/belfrydb/belfry/node/outcome"
	"github.com/belfrydb/belfry/node/raftgroup"
)

// Membership is a committed configuration of a group.
type Membership = raftgroup.Membership

// Members returns the members of a group, which this node must lead, and still lead when the call
// began: every change that was begun before is in the answer or will never be committed. It logs an
// entry.
func (n *Node) Members(ctx context.Context, name string) (Membership, error) {
	read := make(chan Membership, 1)
	err := n.asLeader(ctx, name, "reading the members of", func(g *raftgroup.Group) error {
		members, err := g.ReadMembers()
		if err == nil {
			read <- members
		}
		return err
	})
	if err != nil {
		return Membership{}, err
	}
	return <-read, nil
}

// AddNonvoter has a group, which this node must lead, send its log to a server that does not vote
// yet. The server's node must run the group. Adding a member that is there changes nothing. For
// after see RemoveServer.
func (n *Node) AddNonvoter(ctx context.Context, group, serverID string, after uint64) error {
	return n.asLeader(ctx, group, changingMembers, func(g *raftgroup.Group) error {
		return g.AddNonvoter(serverID, after)
	})
}

// AddVoter makes a non-voter of a group, which this node must lead, a voter. It takes part in every
// commit at once, so the caller must have seen it catch up, and must change one member at a time. A
// server that is no member is refused with ErrOvertaken. For after see RemoveServer.
func (n *Node) AddVoter(ctx context.Context, group, serverID string, after uint64) error {
	return n.asLeader(ctx, group, changingMembers, func(g *raftgroup.Group) error {
		return g.AddVoter(serverID, after)
	})
}

// DemoteVoter takes a server its vote in a group, which this node must lead; it follows on. The
// leader cannot be demoted: it hands over first. For after see RemoveServer.
func (n *Node) DemoteVoter(ctx context.Context, group, serverID string, after uint64) error {
	if serverID == n.id.ServerID() {
		return fmt.Errorf("%w: %s would take its own vote in %s", outcome.ErrCanceled, serverID, group)
	}
	return n.asLeader(ctx, group, changingMembers, func(g *raftgroup.Group) error {
		return g.DemoteVoter(serverID, after)
	})
}

// RemoveServer removes a server from a group, which this node must lead. after is the
// Membership.Index of the configuration that the caller judged by: if there is a newer one, nothing
// changes and the error is ErrOvertaken, or, if the newer one is not committed yet,
// ErrUnknownOutcome. 0 stands for any configuration; two callers with 0 may together take away a
// majority.
func (n *Node) RemoveServer(ctx context.Context, group, serverID string, after uint64) error {
	return n.asLeader(ctx, group, changingMembers, func(g *raftgroup.Group) error {
		return g.RemoveServer(serverID, after)
	})
}

// TransferLeader hands the leadership of a group, which this node must lead, to another voter: if
// serverID is empty to the one with the most of the log of those that answer. It fails with
// ErrSilent if the other has not answered in the last half second: the group would be without a
// leader while it is waited for, and Raft might go on waiting for ever.
func (n *Node) TransferLeader(ctx context.Context, name, serverID string) error {
	return n.asLeader(ctx, name, "handing over the leadership of", func(g *raftgroup.Group) error {
		return g.TransferLeader(serverID)
	})
}

// Answered returns nil if at least need of the servers have answered this node as the leader of a
// group within the last half second. Else it returns ErrSilent with the servers that have not. It
// asks no server. The leader itself counts.
func (n *Node) Answered(group string, servers []string, need int) error {
	g := n.groupNamed(group)
	if g == nil {
		return fmt.Errorf("%s: %w", group, outcome.ErrNotHere)
	}
	return g.Answered(servers, need)
}

// groupNamed returns the group of a name that is here, else nil.
func (n *Node) groupNamed(name string) *raftgroup.Group {
	for _, g := range n.allGroups() {
		if g.Name() == name {
			return g
		}
	}
	return nil
}

// changingMembers is what asLeader does when it changes the members of a group.
const changingMembers = "changing the members of"

// asLeader runs f on a group, which this node must lead. f may go on when ctx has ended; a change
// may then be carried out all the same.
func (n *Node) asLeader(ctx context.Context, name, doing string, f func(*raftgroup.Group) error) error {
	n.active.Add(1)
	defer n.endCall()
	if n.draining.Load() {
		return outcome.ErrShuttingDown
	}
	g := n.groupNamed(name)
	if g == nil {
		missing := outcome.ErrUnknownShard
		for i := range n.shards {
			if founding.ShardGroup(uint32(i)) == name {
				missing = outcome.ErrNotHere
			}
		}
		return fmt.Errorf("%s %s: %w", doing, name, missing)
	}
	if _, err := g.Leadership(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	if !n.spawn(func() { ended <- f(g) }) {
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
