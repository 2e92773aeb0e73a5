package cluster

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"github.com/belfrydb/belfry/node"
)

// gossipFile is the file of gossip in a data directory. It has addresses of the old cluster's
// nodes.
const gossipFile = "gossip-addresses.json"

// Recovery is node.Recovery with an adapted catalog: its one node is this one, which runs all
// shards.
type Recovery struct {
	*node.Recovery
	dir string
}

// OpenRecovery opens the data directory of a stopped node for recovery; see node.OpenRecovery. It
// refuses a directory without a catalog.
func OpenRecovery(dir string, logger *slog.Logger) (*Recovery, error) {
	var self node.Identity
	inner, err := node.OpenRecovery(node.RecoveryConfig{Dir: dir, Logger: logger, Others: func(group, clusterID string) (node.Machine, error) {
		if group != groupName {
			return nil, fmt.Errorf("this program knows no group %q", group)
		}
		return &soleMachine{machine: newMachine(), self: self, clusterID: clusterID}, nil
	}})
	if err != nil {
		return nil, err
	}
	self = inner.Identity()
	has := func(g node.RecoveryGroup) bool { return g.Group == groupName && (g.LastIndex > 0 || g.Done) }
	if !slices.ContainsFunc(inner.Groups(), has) {
		return nil, errors.Join(fmt.Errorf("%s holds nothing of the catalog: this node had only just joined", dir), inner.Close())
	}
	return &Recovery{Recovery: inner, dir: dir}, nil
}

// Run makes the recovery; see node.Recovery.
func (r *Recovery) Run() error {
	if err := os.Remove(filepath.Join(r.dir, gossipFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the addresses of the other nodes: %w", err)
	}
	return r.Recovery.Run()
}

// soleMachine is the catalog's machine for a recovery. Its snapshots know only one node and the new
// id of the cluster.
type soleMachine struct {
	*machine
	self      node.Identity
	clusterID string
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
		sole.state.Placements = append(sole.state.Placements, Placement{Shard: uint32(shard), Servers: []string{m.self.ServerID}}) //nolint:gosec // bounded by node
	}
	return sole.machineSnapshot()
}

func (m *machine) machineSnapshot() node.MachineSnapshot { return snapshot(m.encode()) }
