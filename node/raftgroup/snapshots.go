package raftgroup

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/belfrydb/belfry/node/storage"
)

// SnapshotRetry is the pause of a group after a failed snapshot.
const SnapshotRetry = 30 * time.Second

// snapshotCounters count the snapshots of one group.
type snapshotCounters struct {
	mu      sync.Mutex
	stats   SnapshotStats
	retryAt time.Time // no further attempt before
}

// SnapshotStats describe the snapshots of one group.
type SnapshotStats struct {
	// Index is the index of the newest snapshot on the disk, taken here or received from another
	// node. At is the time when it was written. For a snapshot found at the start, At is the time
	// of its file. It is zero if there is no snapshot.
	Index uint64
	At    time.Time
	// Bytes is its size.
	Bytes int64
	// Duration is how long the last snapshot took that was taken here since the start. Taken and
	// Failed count those attempts.
	Duration      time.Duration
	Taken, Failed uint64
	// LoggedBytes is the amount logged since. The next snapshot is due when it reaches DueBytes.
	LoggedBytes, DueBytes int64
}

// SnapshotDue reports whether the group has logged enough since its last snapshot.
func (g *Group) SnapshotDue(now time.Time) bool {
	g.snapshots.mu.Lock()
	rest := g.snapshots.retryAt
	g.snapshots.mu.Unlock()
	return now.After(rest) && g.replica.loggedVolume().bytes > g.replica.snapshotAt.Load()
}

// planSnapshot sets the amount of log after which the next snapshot is due. It is larger for a
// large state: so the snapshot costs at most about as much to write as the log, and a restart
// replays at most about as much as it restores.
func (g *Group) planSnapshot() {
	newest, _ := g.instance().stores.Snapshots.Newest()
	g.replica.snapshotAt.Store(max(g.cfg.SnapshotBytes, newest.Size))
	g.replica.snapshotBytes.Store(newest.Size)
}

// TakeSnapshot takes a snapshot now and truncates the log before it. Tidy should follow. Only one
// goroutine at a time may call it. The error is raft.ErrRaftShutdown if a stop of the group ended
// it. There is no error if a newer snapshot was installed meanwhile.
func (g *Group) TakeSnapshot() error {
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
		g.snapshots.retryAt = time.Now().Add(SnapshotRetry)
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

// Tidy removes the files that the group no longer needs.
func (g *Group) Tidy() { g.instance().stores.Tidy(g.replica.pauseAfter) }

// setTrailing makes Raft keep about TrailingBytes of log before the next snapshot for followers
// that lag. It converts bytes to entries with the mean size of the entries since the last snapshot.
// A group with one voter keeps none, because it has no followers.
func (g *Group) setTrailing() error {
	kept := uint64(0)
	if !g.SoleVoter() {
		logged := g.replica.loggedVolume()
		mean := max(1, logged.bytes/max(1, logged.entries))
		kept = uint64(max(trailingEntriesMin, g.cfg.TrailingBytes/mean))
	}
	if err := g.reload(func(rc *raft.ReloadableConfig) { rc.TrailingLogs = kept }); err != nil {
		return fmt.Errorf("setting how much log is kept: %w", err)
	}
	return nil
}

// SnapshotStats returns the figures of the group's snapshots.
func (g *Group) SnapshotStats() SnapshotStats {
	stored := g.instance().stores.Snapshots.Stats()
	g.snapshots.mu.Lock()
	defer g.snapshots.mu.Unlock()
	st := g.snapshots.stats
	st.Index, st.At, st.Bytes = stored.NewestIndex, stored.NewestAt, stored.NewestBytes
	st.LoggedBytes, st.DueBytes = g.replica.loggedVolume().bytes, g.replica.snapshotAt.Load()
	return st
}

// StorageStats returns the figures of the group's files.
func (g *Group) StorageStats() storage.Stats {
	return g.instance().stores.Stats()
}

// SnapshotBytes returns the size of the newest snapshot; 0 if there is none.
func (g *Group) SnapshotBytes() int64 { return g.replica.snapshotBytes.Load() }

// SnapshotOverdue reports whether the log has grown to one and a half times what is logged between
// snapshots, besides what the running snapshot covers.
func (g *Group) SnapshotOverdue() bool { return g.replica.overdue() }
