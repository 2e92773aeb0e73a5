package node

import (
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

const (
	// pauseFactor: after background work, pause for this multiple of its duration.
	pauseFactor = 3
	// pauseMax bounds a pause, and with it how long the stop of a node waits.
	pauseMax = 100 * time.Millisecond
	// idleAfter is how long no entry must have been applied for background work to run without pauses.
	idleAfter = time.Second
	// pieceBytes is how much of a snapshot is written between two pauses.
	pieceBytes = 256 << 10
	// urgentSpaceFactor: background work pauses only if the free space is at least this multiple of
	// the low-water mark, below which puts are refused.
	urgentSpaceFactor = 2
)

// throttle slows background work down while entries are applied: snapshots, and the removal of what
// they replace. At full speed they use a whole processor and compete with the log for the disk.
type throttle struct {
	// urgent reports whether background work must run without pauses.
	urgent  func() bool
	applied atomic.Uint64 // entries, of all groups

	mu   sync.Mutex
	seen uint64
	at   time.Time // when applied became seen
}

// pauseFor returns how long to pause after background work of a duration.
func (p *throttle) pauseFor(worked time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if applied := p.applied.Load(); applied != p.seen {
		p.seen, p.at = applied, now
	}
	if now.Sub(p.at) > idleAfter || p.urgent() {
		return 0
	}
	return min(pauseFactor*worked, pauseMax)
}

// pauseAfter pauses after background work of a duration and returns true. If the group is being
// stopped, it returns false at once.
func (r *replica) pauseAfter(worked time.Duration) bool {
	if r.stopped.Load() {
		return false
	}
	if pause := r.cfg.Throttle.pauseFor(worked); pause > 0 {
		time.Sleep(pause)
	}
	return true
}

// throttledWriter pauses after each piece that it writes.
type throttledWriter struct {
	io.Writer
	pause     func(worked time.Duration) bool
	resumedAt time.Time // the end of the last pause
	bytes     int       // written since resumedAt
}

// Write implements io.Writer. The error is raft.ErrRaftShutdown if the group is being stopped.
func (w *throttledWriter) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	if w.bytes += n; err != nil || w.bytes < pieceBytes {
		return n, err
	}
	if !w.pause(time.Since(w.resumedAt)) {
		return n, raft.ErrRaftShutdown
	}
	w.resumedAt, w.bytes = time.Now(), 0
	return n, nil
}

// snapshotsUrgent reports whether snapshots must run without pauses: the disk is filling, and only
// snapshots free space before puts are refused; or a group's log has grown to one and a half times
// what it logs between snapshots, besides what the running snapshot covers.
func (n *Node) snapshotsUrgent() bool {
	if space := n.space.Stats(); space.Low || space.FreeBytes < urgentSpaceFactor*space.LowWaterBytes {
		return true
	}
	for _, g := range n.allGroups() {
		if g.replica.overdue() {
			return true
		}
	}
	return false
}
