package node

import (
	"fmt"
	"strings"

	"github.com/belfrydb/belfry/node/outcome"
	"github.com/hashicorp/raft"
)

// Answered returns nil if at least need of the servers have answered this node as the leader of a
// group within the last half second. Else it returns ErrSilent with the servers that have not. It
// asks no server. The leader itself counts.
func (n *Node) Answered(group string, servers []string, need int) error {
	for _, g := range n.allGroups() {
		if g.name() != group {
			continue
		}
		i := g.instance()
		var silent []string
		for _, server := range servers {
			if _, alive := i.transport.Furthest([]raft.ServerID{raft.ServerID(server)}, i.CurrentTerm()); !alive &&
				server != n.id.serverID() {
				silent = append(silent, server)
			}
		}
		if alive := len(servers) - len(silent); alive < need {
			return fmt.Errorf("%s: %w: %s; %d of %d answer, and %d must", group, outcome.ErrSilent, strings.Join(silent, ", "),
				alive, len(servers), need)
		}
		return nil
	}
	return fmt.Errorf("%s: %w", group, outcome.ErrNotHere)
}
