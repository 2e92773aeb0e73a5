package node

import (
	"context"
	"slices"

	"github.com/hashicorp/raft"

	"github.com/belfrydb/belfry/node/raftgroup"
)

// Membership is a committed configuration of a group.
type Membership struct {
	// Index is its position in the group's log.
	Index uint64 `json:"index"`
	// Voters are the server ids of the voting members, Nonvoters those of members that only follow the
	// log.
	Voters    []string `json:"voters,omitempty"`
	Nonvoters []string `json:"nonvoters,omitempty"`
}

// Has reports whether a server is a member.
func (m Membership) Has(serverID string) bool {
	return slices.Contains(m.Voters, serverID) || slices.Contains(m.Nonvoters, serverID)
}

func membership(index uint64, c raft.Configuration) Membership {
	m := Membership{Index: index}
	for _, server := range c.Servers {
		if server.Suffrage == raft.Voter {
			m.Voters = append(m.Voters, string(server.ID))
		} else {
			m.Nonvoters = append(m.Nonvoters, string(server.ID))
		}
	}
	return m
}

// Members returns the members of a group, which this node must lead, and still lead when the call
// began: every change that was begun before is in the answer or will never be committed. It logs an
// entry.
func (n *Node) Members(ctx context.Context, name string) (Membership, error) {
	read := make(chan Membership, 1)
	err := n.asLeader(ctx, name, "reading the members of", func(g *group, i *instance) error {
		// Only a leader commits an entry in its term, and what comes before it is applied then.
		if err := raftgroup.ProposalError(i.outcome(i.Barrier(submitTimeout))); err != nil {
			return err
		}
		read <- g.replica.committedMembers()
		return nil
	})
	if err != nil {
		return Membership{}, err
	}
	return <-read, nil
}
