package catalog

import (
	"fmt"
	"slices"
)

// departedMax bounds the departures that the catalog remembers; the oldest is dropped first. A node
// that comes back after so many later departures is an unknown node. It joins as one more node,
// without replicas. Its old replicas are still members of no group.
const departedMax = 1024

// Departure is a server id that left the cluster for good.
type Departure struct {
	ServerID string `json:"serverId"`
	// Replacement is the server that replaced it under the same name; empty if it was removed.
	Replacement string `json:"heir,omitempty"`
}

// DepartedError says that a server has left its cluster for good: it was removed, or a new node of
// its name has replaced it. The cluster does not need the data on its disk.
type DepartedError struct {
	ServerID, ClusterID string
	// Replacement is the server that replaced it; empty if it was removed.
	Replacement string
}

// Error says which of the two it is.
func (e *DepartedError) Error() string {
	if e.Replacement != "" {
		return fmt.Sprintf("%s is no node of cluster %s any more: %s, a new node of the same name, has taken its place",
			e.ServerID, e.ClusterID, e.Replacement)
	}
	return fmt.Sprintf("%s was removed from cluster %s", e.ServerID, e.ClusterID)
}

// departed returns how a server left.
func (m *machine) departed(serverID string) (Departure, bool) {
	i := slices.IndexFunc(m.state.Departed, func(d Departure) bool { return d.ServerID == serverID })
	if i < 0 {
		return Departure{}, false
	}
	return m.state.Departed[i], true
}

// removeNode forgets a node and remembers that it left.
func (m *machine) removeNode(d Departure) outcome {
	i, found := m.findNode(d.ServerID)
	if !found {
		return outcome{verdict: overtaken}
	}
	m.state.Nodes = slices.Delete(m.state.Nodes, i, i+1)
	m.showAccess()
	m.state.Departed = append(m.state.Departed, d)
	m.state.Departed = slices.Delete(m.state.Departed, 0, max(0, len(m.state.Departed)-departedMax))
	return outcome{}
}

// Departed returns why a server has left the cluster, as far as this node knows; nil if it never
// left.
func (c *Catalog) Departed(serverID string) (left *DepartedError) {
	c.view(func(m *machine) {
		if d, ok := m.departed(serverID); ok {
			left = &DepartedError{ServerID: serverID, ClusterID: c.found.ClusterID, Replacement: d.Replacement}
		}
	})
	return left
}
