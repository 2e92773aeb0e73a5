package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/belfrydb/belfry/node/outcome"
	"github.com/belfrydb/belfry/node/storage"
	"github.com/hashicorp/raft"
)

// snapshotRetry is the pause of a group after a failed snapshot.
const snapshotRetry = 30 * time.Second

// snapshotCounters count the snapshots of one group.
type snapshotCounters struct {
	mu      sync.Mutex
	stats   SnapshotStats
	retryAt time.Time // no further attempt before
}

// snapshotDue reports whether the group has logged enough since its last snapshot.
func (g *group) snapshotDue(now time.Time) bool {
	g.snapshots.mu.Lock()
	rest := g.snapshots.retryAt
	g.snapshots.mu.Unlock()
	return now.After(rest) && g.replica.loggedVolume().bytes > g.replica.snapshotAt.Load()
}

// planSnapshot sets the amount of log after which the next snapshot is due. It is larger for a
// large state: so the snapshot costs at most about as much to write as the log, and a restart
// replays at most about as much as it restores.
func (g *group) planSnapshot() {
	newest, _ := g.instance().stores.Snapshots.Newest()
	g.replica.snapshotAt.Store(max(g.cfg.SnapshotBytes, newest.Size))
	g.replica.snapshotBytes.Store(newest.Size)
}

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
		largest = max(largest, g.replica.snapshotBytes.Load())
	}
	n.space.SetSnapshotBytes(uint64(largest))
}

// snapshotRoom returns how large a snapshot from a peer may be. It keeps free the space that the
// low-water mark reserves for acks: a write that finds the disk full ends the process.
func (n *Node) snapshotRoom() uint64 {
	free, kept := n.space.Stats().FreeBytes, n.cfg.DiskLowBytes/4
	return free - min(free, kept)
}

// takeSnapshot takes a snapshot now and truncates the log before it. tidy should follow. Only one
// goroutine at a time may call it. The error is raft.ErrRaftShutdown if a stop of the group ended
// it. There is no error if a newer snapshot was installed meanwhile.
func (g *group) takeSnapshot() error {
	start, i := time.Now(), g.instance()
	err := g.setTrailing()
	if err == nil {
		err = i.Snapshot().Error()
	}
	if errors.Is(err, raft.ErrNothingNewToSnapshot) {
		return nil
	}
	if cause := g.replica.persistError.Load(); err != nil && cause != nil {
		err = *cause // Raft flattens it
	}
	captured := g.replica.snapshotEnded(err == nil)
	if err != nil && i.stopped() {
		return fmt.Errorf("taking a snapshot of %s: %w", g.cfg.Name, raft.ErrRaftShutdown)
	}
	newest, _ := i.stores.Snapshots.Newest()
	overtaken := err != nil && captured > 0 && newest.Index > captured && i.stores.Err() == nil
	g.snapshots.mu.Lock()
	defer g.snapshots.mu.Unlock()
	if err != nil && !overtaken {
		g.snapshots.stats.Failed++
		g.snapshots.retryAt = time.Now().Add(snapshotRetry)
		g.cfg.SnapshotEnded(err)
		return fmt.Errorf("taking a snapshot of %s: %w", g.cfg.Name, err)
	}
	g.planSnapshot()
	g.cfg.SnapshotEnded(nil)
	if overtaken {
		return nil
	}
	st := &g.snapshots.stats
	st.Duration = time.Since(start)
	st.Taken++
	g.cfg.Logger.Info("snapshot taken", "seconds", st.Duration.Seconds())
	return nil
}

// stopped reports whether the instance has been stopped or is being stopped. The replica alone
// cannot tell, because it continues with the next instance.
func (i *instance) stopped() bool {
	if i.replica.stopped.Load() {
		return true
	}
	select {
	case <-i.ended:
		return true
	default:
		return false
	}
}

// tidy removes the files that the group no longer needs.
func (g *group) tidy() { g.instance().stores.Tidy(g.replica.pauseAfter) }

// setTrailing makes Raft keep about TrailingBytes of log before the next snapshot for followers
// that lag. It converts bytes to entries with the mean size of the entries since the last snapshot.
// A group with one voter keeps none, because it has no followers.
func (g *group) setTrailing() error {
	kept := uint64(0)
	if !g.soleVoter() {
		logged := g.replica.loggedVolume()
		mean := max(1, logged.bytes/max(1, logged.entries))
		kept = uint64(max(trailingEntriesMin, g.cfg.TrailingBytes/mean))
	}
	if err := g.reload(func(rc *raft.ReloadableConfig) { rc.TrailingLogs = kept }); err != nil {
		return fmt.Errorf("setting how much log is kept: %w", err)
	}
	return nil
}

// snapshotStats returns the figures of the group's snapshots.
func (g *group) snapshotStats() SnapshotStats {
	stored := g.instance().stores.Snapshots.Stats()
	g.snapshots.mu.Lock()
	defer g.snapshots.mu.Unlock()
	st := g.snapshots.stats
	st.Index, st.At, st.Bytes = stored.NewestIndex, stored.NewestAt, stored.NewestBytes
	st.LoggedBytes, st.DueBytes = g.replica.loggedVolume().bytes, g.replica.snapshotAt.Load()
	return st
}

// storageStats returns the figures of the group's files.
func (g *group) storageStats() storage.Stats {
	return g.instance().stores.Stats()
}

// runSnapshots takes the due snapshots of all groups one at a time, so that they do not compete for
// the disk.
func (n *Node) runSnapshots(ctx context.Context) {
	retry := time.NewTicker(snapshotRetry)
	defer retry.Stop()
	n.planSpace()
	for {
		for _, g := range n.allGroups() {
			if ctx.Err() == nil && g.snapshotDue(time.Now()) {
				n.snapshotMutex.Lock()
				if err := g.takeSnapshot(); err != nil && ctx.Err() == nil && !errors.Is(err, raft.ErrRaftShutdown) {
					g.note("snapshot", err)
				}
				n.snapshotMutex.Unlock()
			}
			g.tidy() // removes the files that an installed snapshot has replaced
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
	s, done, err := n.begin(shard)
	if err != nil {
		return err
	}
	result := make(chan error, 1)
	started := n.spawn(func() {
		defer done()
		n.snapshotMutex.Lock()
		defer n.snapshotMutex.Unlock()
		result <- s.takeSnapshot()
		s.tidy()
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
