package raftgroup

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
)

// Throttle slows background work down while entries are applied: snapshots, and the removal of what
// they replace. At full speed they use a whole processor and compete with the log for the disk.
type Throttle struct {
	// urgent reports whether background work must run without pauses.
	urgent  func() bool
	applied atomic.Uint64 // entries, of all groups

	mu   sync.Mutex
	seen uint64
	at   time.Time // when applied became seen
}

// NewThrottle returns a throttle for all groups of a node. urgent reports whether background work
// must run without pauses; any goroutine may call it.
func NewThrottle(urgent func() bool) *Throttle { return &Throttle{urgent: urgent} }

// pauseFor returns how long to pause after background work of a duration.
func (p *Throttle) pauseFor(worked time.Duration) time.Duration {
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
func (r *Replica) pauseAfter(worked time.Duration) bool {
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
