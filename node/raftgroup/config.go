package raftgroup

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/belfrydb/belfry/node/histogram"
	"github.com/belfrydb/belfry/node/peer"
	"github.com/belfrydb/belfry/node/storage"
	"github.com/belfrydb/belfry/node/storage/disk"
)

// Config is what a group gets from its node.
type Config struct {
	Name string
	// Dir holds the files of the group. Their mark has ClusterID, Self and Name. Self is the server id
	// of this node.
	Dir, ClusterID, Self string
	// Engine, FS and SegmentBytes configure the log store. Watchdog watches writes. DiskFailed ends
	// the process because of a write that failed.
	Engine       storage.Engine
	FS           disk.FS
	SegmentBytes int
	Watchdog     *disk.Watchdog
	DiskFailed   func(error)
	// SnapshotBytes is the least amount of log between two snapshots, TrailingBytes about how much of
	// the log before a snapshot is kept.
	SnapshotBytes, TrailingBytes int64
	// Throttle counts the entries of all groups, and spreads the writing of snapshots.
	Throttle *Throttle
	// Grown is called when a snapshot may be due, or files may be removed. SnapshotEnded is called
	// after each snapshot, with its error.
	Grown         func()
	SnapshotEnded func(err error)

	Logger *slog.Logger
	// Transport returns the connections to the other members, for one start of Raft.
	Transport func() *peer.Transport
	// FirstVoters are the server ids of the first voters, if this node founds the group; else nil.
	// Known reports that the group is known to be here, or to have been here: its files must exist,
	// and it is not founded again.
	FirstVoters []string
	Known       func() bool
	// SetAside reports whether the replica is in quarantine. Fatal ends the process because the group
	// cannot go on.
	SetAside func() bool
	Fatal    func(error)

	Machine Machine
	// Renewal makes the machine anew; nil if a machine can only be made with the process.
	Renewal *Renewal
	// After runs after each applied entry and each restored snapshot, Applied only after each applied
	// entry. Both run under the lock of the machine, and may be nil.
	After   func(Machine)
	Applied func(log *raft.Log, m Machine)
	// ApplySeconds receives how long each entry takes.
	ApplySeconds *histogram.Histogram

	// Lead runs in its own goroutine each time this node is elected, after every earlier entry is
	// applied. ctx ends with the leadership. The next call waits until this one has returned.
	Lead func(ctx context.Context, l *Leadership)
}

// Renewal makes the machine of a group anew, before a snapshot is restored or Raft begins again
// with the first entry.
type Renewal struct {
	// Fresh returns a machine in its first state.
	Fresh func() Machine
	// Restores counts the snapshots that are being restored in place of a state. Restored runs under
	// the lock of the machine after a snapshot was restored.
	Restores *atomic.Int32
	Restored func(Machine)
	// Stateless runs when a running group cannot restore a snapshot and has no state. It runs on a
	// goroutine of Raft or of the group.
	Stateless func(why error)
}
