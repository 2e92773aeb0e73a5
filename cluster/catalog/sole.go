package catalog

import (
	"io"

	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/node/identity"
)

// soleMachine is the catalog's machine for a recovery. Its snapshots know only one node and the new
// id of the cluster.
type soleMachine struct {
	*machine
	self      identity.Identity
	clusterID string
}

// NewSoleMachine returns the catalog's machine for the recovery of a node as a cluster of its own,
// with a new id.
func NewSoleMachine(self identity.Identity, clusterID string) node.Machine {
	return &soleMachine{machine: newMachine(), self: self, clusterID: clusterID}
}

// Restore implements node.Machine.
func (m *soleMachine) Restore(r io.Reader) (node.Machine, error) {
	restored, err := m.machine.Restore(r)
	if err != nil {
		return nil, err
	}
	return &soleMachine{machine: restored.(*machine), self: m.self, clusterID: m.clusterID}, nil
}

// Snapshot implements node.Machine.
func (m *soleMachine) Snapshot() node.MachineSnapshot {
	sole := machine{state: m.state}
	sole.state.Foundation = foundation{ClusterID: m.clusterID, Shards: m.self.Shards}
	// Nodes that left the old cluster cannot come back to the new one, and this node may be one of
	// them.
	sole.state.Nodes, sole.state.Placements, sole.state.Departed = nil, nil, nil
	for _, n := range m.state.Nodes {
		if n.ServerID == m.self.ServerID {
			n.Draining = false
			sole.state.Nodes = append(sole.state.Nodes, n)
		}
	}
	if sole.state.Settings.MinVoters > 1 {
		sole.state.Settings.MinVoters = 1 // only one voter is left, as the operator was told
	}
	sole.state.Namespaces = nil
	for _, r := range m.state.Namespaces {
		quota := *r
		quota.ShardQuotas = nil // terms start anew with a new group
		sole.state.Namespaces = append(sole.state.Namespaces, &quota)
	}
	for shard := range m.self.Shards {
		//nolint:gosec // bounded by node
		sole.state.Placements = append(sole.state.Placements,
			Placement{Shard: uint32(shard), Servers: []string{m.self.ServerID}})
	}
	return sole.machineSnapshot()
}

func (m *machine) machineSnapshot() node.MachineSnapshot { return snapshot(m.encode()) }
