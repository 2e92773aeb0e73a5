package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/belfrydb/belfry/cluster/catalog"
	"github.com/belfrydb/belfry/cluster/placement"
)

// MemberStatus is a node as this node sees it.
type MemberStatus struct {
	catalog.Node
	// Report is the node's own report; nil if it does not answer.
	Report *placement.Report
	// SilentSince is when a silent node last answered, as far as the leader of the catalog knows.
	// It is zero if the node answers, or if there is no leader.
	SilentSince time.Time
	// Behind are the groups in which the node votes but does not receive the leader's entries, as
	// far as the leader of the catalog knows.
	Behind []placement.Behind
}

// Members asks all nodes of the cluster for their state, and returns them in the order of their
// server ids. It also returns the moves of placement. ctx bounds the wait, which never exceeds two
// seconds.
func (c *Cluster) Members(ctx context.Context) ([]MemberStatus, []placement.Move) {
	reports := placement.AskAll(ctx, c.Nodes(), c.members)
	status := placement.StatusOf(reports)
	var all []MemberStatus
	for _, n := range c.Nodes() {
		m := MemberStatus{Node: n, Report: reports[n.ServerID]}
		for _, silence := range status.Silent {
			if silence.ServerID == n.ServerID && m.Report == nil {
				m.SilentSince = silence.Since
			}
		}
		for _, b := range status.Behind {
			if b.ServerID == n.ServerID {
				m.Behind = append(m.Behind, b)
			}
		}
		all = append(all, m)
	}
	return all, status.Moves
}

// VotersWanted returns how many voters each shard should have, from memory: the replication
// factor, whether or not there are as many nodes for them. For a node that is alone it is one,
// since there is no other node for copies.
func (c *Cluster) VotersWanted() int {
	if len(c.Nodes()) <= 1 {
		return 1
	}
	return c.Settings().Factor
}

// Remove forgets a node. Its replicas are replaced like those of a lost node. If it comes back
// under its server id, it is told that it was removed, and ends.
func (c *Cluster) Remove(ctx context.Context, serverID string) error {
	if by := c.members.seenAliveBy(ctx, serverID); by != "" {
		return fmt.Errorf("removing %s: %w %s", serverID, ErrNodeAnswers, catalog.NameOf(by))
	}
	known, err := c.RemoveNode(ctx, catalog.Departure{ServerID: serverID})
	if err != nil {
		return fmt.Errorf("removing %s: %w", serverID, err)
	}
	if !known {
		return fmt.Errorf("removing %s: %w", serverID, catalog.ErrUnknownNode)
	}
	return nil
}

// Transfer is a change of a shard's leader.
type Transfer struct {
	Shard uint32
	// From is the server id of the leader, and To that of the voter that should lead.
	From, To string
}

// TransferLeader makes the leader of a shard transfer its leadership, and returns when it does not
// lead any more. It fails with node.ErrNotLeader if t.From does not lead. After
// node.ErrUnknownOutcome the transfer may still happen.
func (c *Cluster) TransferLeader(ctx context.Context, t Transfer) error {
	ctx, cancel := context.WithTimeout(ctx, placement.ChangeWait)
	defer cancel()
	if err := c.members.Change(ctx, t.From, placement.Change{
		Group: catalog.ShardGroup(t.Shard), Action: placement.Transfer, ServerID: t.To,
	}); err != nil {
		return fmt.Errorf("handing shard %d over from %s to %s: %w", t.Shard, t.From, t.To, err)
	}
	return nil
}

// ErrNodeAnswers says that a node is alive: it answers some node.
var ErrNodeAnswers = errors.New("the node still answers")
