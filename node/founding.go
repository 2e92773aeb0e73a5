package node

import (
	"slices"

	"github.com/belfrydb/belfry/node/founding"
)

// Founding describes the start of a cluster that several nodes found together.
type Founding = founding.Plan

// firstVoters returns the first voters of a group that this node founds, alone or with others. It
// returns nil if this node does not found the group.
func (id *identity) firstVoters(group string) []string {
	switch {
	case id.Founder:
		return []string{id.serverID()}
	case id.Founding == nil:
		return nil
	}
	voters := id.Founding.Voters(group)
	if !slices.Contains(voters, id.serverID()) {
		return nil
	}
	return voters
}

// Founding returns the founding of this node's cluster; nil if one node founded it.
func (n *Node) Founding() *Founding { return n.id.Founding }
