package node

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/raft"

	"github.com/belfrydb/belfry/node/outcome"
	"github.com/belfrydb/belfry/node/raftgroup"
)

// urgentSpaceFactor: background work pauses only if the free space is at least this multiple of the
// low-water mark, below which puts are refused.
const urgentSpaceFactor = 2

// snapshotEnded makes room if a snapshot found the disk full, and otherwise keeps room for the next
// one.
func (n *Node) snapshotEnded(err error) {
	if err != nil {
		n.releaseIfFull(err)
		return
	}
	n.planSpace()
}

// planSpace reports the size of the largest snapshot to the disk space check. Snapshots are taken
// one at a time.
func (n *Node) planSpace() {
	n.planning.Lock() // else an older maximum could be stored last
	defer n.planning.Unlock()
	var largest int64
	for _, g := range n.allGroups() {
		largest = max(largest, g.SnapshotBytes())
	}
	n.space.SetSnapshotBytes(uint64(largest))
}

// snapshotRoom returns how large a snapshot from a peer may be. It keeps free the space that the
// low-water mark reserves for acks: a write that finds the disk full ends the process.
func (n *Node) snapshotRoom() uint64 {
	free, kept := n.space.Stats().FreeBytes, n.cfg.DiskLowBytes/4
	return free - min(free, kept)
}

// runSnapshots takes the due snapshots of all groups one at a time, so that they do not compete for
// the disk.
func (n *Node) runSnapshots(ctx context.Context) {
	retry := time.NewTicker(raftgroup.SnapshotRetry)
	defer retry.Stop()
	n.planSpace()
	for {
		for _, g := range n.allGroups() {
			if ctx.Err() == nil && g.SnapshotDue(time.Now()) {
				n.snapshotMutex.Lock()
				if err := g.TakeSnapshot(); err != nil && ctx.Err() == nil && !errors.Is(err, raft.ErrRaftShutdown) {
					g.Note("snapshot", err)
				}
				n.snapshotMutex.Unlock()
			}
			g.Tidy() // removes the files that an installed snapshot has replaced
		}
		select {
		case <-n.snapshotWake:
		case <-retry.C:
		case <-ctx.Done():
			return
		}
	}
}

// Snapshot takes a snapshot of one shard now and waits until it is stored. If ctx ends first, the
// snapshot is still stored.
func (n *Node) Snapshot(ctx context.Context, shard uint32) error {
	s, done, err := n.beginCall(shard)
	if err != nil {
		return err
	}
	result := make(chan error, 1)
	started := n.spawn(func() {
		defer done()
		n.snapshotMutex.Lock()
		defer n.snapshotMutex.Unlock()
		result <- s.TakeSnapshot()
		s.Tidy()
	})
	if !started {
		done()
		return outcome.ErrShuttingDown
	}
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// snapshotsUrgent reports whether snapshots must run without pauses: the disk is filling, and only
// snapshots free space before puts are refused; or a group's log has grown to one and a half times
// what it logs between snapshots, besides what the running snapshot covers.
func (n *Node) snapshotsUrgent() bool {
	if space := n.space.Stats(); space.Low || space.FreeBytes < urgentSpaceFactor*space.LowWaterBytes {
		return true
	}
	for _, g := range n.allGroups() {
		if g.SnapshotOverdue() {
			return true
		}
	}
	return false
}
