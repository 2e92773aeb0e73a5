package catalog

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/belfrydb/belfry/node"
)

var (
	// ErrNameTaken is the answer to a node that asks to join under the name of a live node.
	ErrNameTaken = errors.New("the name is taken by another node")
	// ErrUnknownNode says that the catalog has no node with the server id.
	ErrUnknownNode = errors.New("no such node")
	// ErrNodeNeeded says that a node cannot be spared.
	ErrNodeNeeded = errors.New("the node is needed")
)

// NameOf returns the name in a server id.
func NameOf(serverID string) string {
	name, _, _ := strings.Cut(serverID, ".")
	return name
}

// ShardGroup returns the name of a shard's Raft group.
func ShardGroup(shard uint32) string { return fmt.Sprintf("shard-%d", shard) }

// Nodes returns the recorded nodes, by server id, from memory.
func (c *Catalog) Nodes() (nodes []Node) {
	c.view(func(m *machine) { nodes = append(nodes, m.state.Nodes...) })
	return nodes
}

// Holds reports whether this replica of the catalog has a node exactly as given, ignoring Draining.
func (c *Catalog) Holds(node Node) (holds bool) {
	c.view(func(m *machine) {
		for _, n := range m.state.Nodes {
			n.Draining = node.Draining
			holds = holds || n == node
		}
	})
	return holds
}

// MayCall reports whether a server is recorded. A node without any records cannot tell, and
// returns true: its shards may be needed before it has the catalog.
func (c *Catalog) MayCall(serverID string) (known bool) {
	select {
	case <-c.ready:
	default:
		return false
	}
	c.view(func(m *machine) {
		_, found := m.findNode(serverID)
		known = found || len(m.state.Nodes) == 0
	})
	return known
}

// Admit records a node that asks to join, or that asks again because its description has changed.
// silent are the nodes of its name that are known not to answer. Two joining nodes of one name may
// ask two nodes at the same time; the catalog accepts the first.
func (c *Catalog) Admit(ctx context.Context, n Node, silent ...string) error {
	if n.Name == "" || n.ServerID == "" {
		return fmt.Errorf("%w: a node without name or server id cannot join: %+v", node.ErrCanceled, n)
	}
	out, err := c.propose(ctx, command{Join: &n, Silent: silent})
	if err != nil {
		return err
	}
	switch out.verdict {
	case taken:
		return fmt.Errorf("%w: another node of the name %s was admitted meanwhile", ErrNameTaken, n.Name)
	case gone:
		return &DepartedError{ServerID: n.ServerID, ClusterID: c.found.ClusterID, Replacement: c.replacementOf(n.ServerID)}
	case unread:
		c.view(func(m *machine) { err = m.admits(&n) })
	case done, exists, overtaken, misused, impossible, needed:
	}
	return err
}

// replacementOf returns the server that replaces one that left; empty if there is none.
func (c *Catalog) replacementOf(serverID string) string {
	if left := c.Departed(serverID); left != nil {
		return left.Replacement
	}
	return ""
}

// Drain makes placement empty a node. The node's replicas and leaderships move away as far as other
// nodes can take them. If fewer than keep other nodes that do not drain
// would be left, nothing changes and the error is ErrNodeNeeded. This counts drains that were
// requested at the same time. It may be repeated, as may Undrain.
func (c *Catalog) Drain(ctx context.Context, serverID string, keep int) error {
	return c.setDraining(ctx, drain{ServerID: serverID, Draining: true, Keep: keep})
}

// Undrain permits a node to have replicas and leaderships again.
func (c *Catalog) Undrain(ctx context.Context, serverID string) error {
	return c.setDraining(ctx, drain{ServerID: serverID})
}

func (c *Catalog) setDraining(ctx context.Context, d drain) error {
	out, err := c.propose(ctx, command{Drain: &d})
	if err != nil {
		return fmt.Errorf("draining %s: %w", d.ServerID, err)
	}
	switch out.verdict {
	case overtaken:
		return fmt.Errorf("draining %s: %w", d.ServerID, ErrUnknownNode)
	case needed:
		return fmt.Errorf("draining %s: %w: fewer than %d would be left that do not drain", d.ServerID, ErrNodeNeeded, d.Keep)
	default:
		return nil
	}
}

// RemoveNode forgets a node for good, and remembers that it left. It reports whether the node was
// recorded.
func (c *Catalog) RemoveNode(ctx context.Context, d Departure) (known bool, err error) {
	out, err := c.propose(ctx, command{Leave: &d})
	return out.verdict != overtaken, err
}

// Placements returns the servers that are recorded to run each shard, by shard, from memory.
func (c *Catalog) Placements() (all []Placement) {
	c.view(func(m *machine) {
		for _, p := range m.state.Placements {
			all = append(all, p.clone())
		}
	})
	return all
}

// Place records the servers that should run a shard.
func (c *Catalog) Place(ctx context.Context, p Placement) error {
	_, err := c.propose(ctx, command{Place: &p})
	return err
}
