package node

import (
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/machine"
	"github.com/belfrydb/belfry/fsm/snapshot"
	"github.com/belfrydb/belfry/node/founding"
	"github.com/belfrydb/belfry/node/propose"
	"github.com/belfrydb/belfry/node/recovery"
)

// shardMachine adapts machine.Machine to Machine.
type shardMachine struct {
	cfg fsm.Config
	m   *machine.Machine
}

func newShardMachine(cfg fsm.Config) shardMachine { return shardMachine{cfg: cfg, m: machine.New(cfg)} }

// Apply implements Machine. The value is an *applied.
func (s shardMachine) Apply(index uint64, entry []byte) (any, error) {
	results, err := s.m.Apply(index, entry)
	if err != nil {
		return nil, err
	}
	return &propose.Applied{Index: index, Results: results, Endings: slices.Clone(s.m.Endings()), Clock: s.m.Clock()}, nil
}

// Snapshot implements Machine.
func (s shardMachine) Snapshot() MachineSnapshot {
	return shardSnapshot{Snapshot: s.m.Snapshot(), m: s.m}
}

// Restore implements Machine.
func (s shardMachine) Restore(r io.Reader) (Machine, error) {
	m, err := machine.Restore(s.cfg, r)
	if err != nil {
		return nil, err
	}
	return shardMachine{cfg: s.cfg, m: m}, nil
}

// Digest implements Machine.
func (s shardMachine) Digest() uint64 { return s.m.Digest() }

// shardSnapshot is a snapshot together with the machine that it must be given back to.
type shardSnapshot struct {
	*snapshot.Snapshot
	m *machine.Machine
}

// Release implements MachineSnapshot.
func (s shardSnapshot) Release() { s.m.Release(s.Snapshot) }

// RecoveryConfig names the data directory to recover. All fields but Logger are required.
type RecoveryConfig struct {
	Dir string
	// Machine configures the machines of the shards, as Config.Machine does.
	Machine fsm.Config
	// Others returns the machine of a group besides the shards, in its first state. The state must
	// suit a cluster with the given id of which this server is the only node.
	Others func(group, clusterID string) (Machine, error)
	Logger *slog.Logger
}

// OpenRecovery is [recovery.Open] with the machines of shards.
func OpenRecovery(cfg RecoveryConfig) (*recovery.Recovery, error) {
	return recovery.Open(recovery.Config{
		Dir: cfg.Dir, Logger: cfg.Logger, Machine: func(group, clusterID string) (Machine, error) {
			if strings.HasPrefix(group, founding.ShardPrefix) {
				return newShardMachine(cfg.Machine), nil
			}
			return cfg.Others(group, clusterID)
		},
	})
}
