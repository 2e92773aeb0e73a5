package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/belfrydb/belfry/node/storage"
	"github.com/hashicorp/raft"
)

// snapshotRetry is how long a group rests whose snapshot failed.
const snapshotRetry = 30 * time.Second

// snapshotCounters describe the snapshots of one group.
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

// planSnapshot sets after how much log the next snapshot is due: more for a big state, so that writing it
// costs at most about as much again as the log, and a restart replays at most about what it restores.
func (g *group) planSnapshot() {
	newest, _ := g.instance().stores.Snapshots.Newest()
	g.replica.snapshotAt.Store(max(g.node.cfg.SnapshotBytes, newest.Size))
	g.replica.snapshotBytes.Store(newest.Size)
}

// planSpace tells the watch over the disk how large the largest snapshot is. Snapshots are taken one at a time.
func (n *Node) planSpace() {
	n.planning.Lock() // or an older sum could come last
	defer n.planning.Unlock()
	var largest int64
	for _, g := range n.allGroups() {
		largest = max(largest, g.replica.snapshotBytes.Load())
	}
	n.space.SetSnapshotBytes(uint64(largest))
}

// snapshotRoom returns how large a snapshot from a peer may be. It leaves what the low-water mark leaves for acks: a write that
// finds the disk full ends the process.
func (n *Node) snapshotRoom() uint64 {
	free, kept := n.space.Stats().FreeBytes, n.cfg.DiskLowBytes/4
	return free - min(free, kept)
}

// takeSnapshot takes a snapshot now and cuts the log behind it. tidy should follow. One goroutine at a time may call it. The error is raft.ErrRaftShutdown if a stop of
// the group ended it. There is none if a newer snapshot was installed meanwhile.
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
		return fmt.Errorf("taking a snapshot of %s: %w", g.name, raft.ErrRaftShutdown)
	}
	newest, _ := i.stores.Snapshots.Newest()
	overtaken := err != nil && captured > 0 && newest.Index > captured && i.stores.Err() == nil
	g.snapshots.mu.Lock()
	defer g.snapshots.mu.Unlock()
	if err != nil && !overtaken {
		g.node.releaseIfFull(err)
		g.snapshots.stats.Failed++
		g.snapshots.retryAt = time.Now().Add(snapshotRetry)
		return fmt.Errorf("taking a snapshot of %s: %w", g.name, err)
	}
	g.planSnapshot()
	g.node.planSpace()
	if overtaken {
		return nil
	}
	st := &g.snapshots.stats
	st.Duration = time.Since(start)
	st.Taken++
	g.logger.Info("snapshot taken", "seconds", st.Duration.Seconds())
	return nil
}

// stopped reports whether the instance is being stopped or was. The replica alone cannot tell: it goes on with the next instance.
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

// tidy removes the files that the group needs no more.
func (g *group) tidy() { g.instance().stores.Tidy(g.pauseAfter) }

// setTrailing has Raft keep about TrailingBytes of log behind the next snapshot for followers that lag, by the size that entries
// had since the last one. A group with one voter has nobody to keep it for.
func (g *group) setTrailing() error {
	kept := uint64(0)
	if !g.soleVoter() {
		logged := g.replica.loggedVolume()
		mean := max(1, logged.bytes/max(1, logged.entries))
		kept = uint64(max(trailingEntriesMin, g.node.cfg.TrailingBytes/mean))
	}
	if err := g.reload(func(rc *raft.ReloadableConfig) { rc.TrailingLogs = kept }); err != nil {
		return fmt.Errorf("setting how much log is kept: %w", err)
	}
	return nil
}

// snapshotStats returns what is known of the group's snapshots.
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

// runSnapshots takes the snapshots of all groups that are due, one after the other, so that they do not share the disk.
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
			g.tidy() // what an installed snapshot has replaced
		}
		select {
		case <-n.snapshotWake:
		case <-retry.C:
		case <-ctx.Done():
			return
		}
	}
}

// Snapshot takes a snapshot of one shard now and waits until it is stored. If ctx ends first, it is stored all the same.
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
		return ErrShuttingDown
	}
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
