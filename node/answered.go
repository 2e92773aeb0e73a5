package node

import (
	"fmt"

	"github.com/hashicorp/raft"
)

// Answered returns nil if each of the servers has answered this node as the leader of a group within the last half second, and ErrSilent if one has
// not: what the node knows without asking. A leader has answered itself.
func (n *Node) Answered(group string, servers []string) error {
	for _, g := range n.allGroups() {
		if g.name != group {
			continue
		}
		i := g.instance()
		for _, server := range servers {
			if _, alive := i.transport.furthest([]raft.ServerID{raft.ServerID(server)}, i.CurrentTerm()); !alive && server != n.id.serverID() {
				return fmt.Errorf("%s: %w: %s", group, ErrSilent, server)
			}
		}
		return nil
	}
	return fmt.Errorf("%s: %w", group, ErrNotHere)
}
