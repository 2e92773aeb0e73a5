package node

import (
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

const (
	// restTimes is for how many times as long as it took to rest after a piece of work that nobody waits for.
	restTimes = 3
	// restMax bounds a rest, and with it what the stop of a node waits for.
	restMax = 100 * time.Millisecond
	// calmAfter is how long nothing must have been applied for the work to go on without rests.
	calmAfter = time.Second
	// pieceBytes is how much of a snapshot is written without a rest.
	pieceBytes = 256 << 10
	// hurryTimes is for how many times the low-water mark of free space, below which puts are refused, there must be room for rests to be taken.
	hurryTimes = 2
)

// pace has work that nobody waits for, snapshots and what they leave to be removed, rest most of the time while something is applied: at full speed it takes
// a processor, and the disk from the log.
type pace struct {
	// hurry reports whether the work is to go on without rests.
	hurry   func() bool
	applied atomic.Uint64 // entries, of all groups

	mu   sync.Mutex
	seen uint64
	at   time.Time // when applied became seen
}

// restFor returns for how long to rest after work that took so long.
func (p *pace) restFor(worked time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if applied := p.applied.Load(); applied != p.seen {
		p.seen, p.at = applied, now
	}
	if now.Sub(p.at) > calmAfter || p.hurry() {
		return 0
	}
	return min(restTimes*worked, restMax)
}

// restAfter rests after work that took so long and returns true; false at once if the group is being stopped.
func (g *group) restAfter(worked time.Duration) bool {
	if g.replica.stopped.Load() {
		return false
	}
	if rest := g.node.pace.restFor(worked); rest > 0 {
		time.Sleep(rest)
	}
	return true
}

// pacedWriter writes in pieces with rests between.
type pacedWriter struct {
	io.Writer
	rest  func(worked time.Duration) bool
	since time.Time // the end of the last rest
	bytes int       // written since
}

// Write implements io.Writer. The error is raft.ErrRaftShutdown if the group is being stopped.
func (w *pacedWriter) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	if w.bytes += n; err != nil || w.bytes < pieceBytes {
		return n, err
	}
	if !w.rest(time.Since(w.since)) {
		return n, raft.ErrRaftShutdown
	}
	w.since, w.bytes = time.Now(), 0
	return n, nil
}

// hurries reports whether snapshots must not rest: the disk is filling, and only they free some of it before puts are refused, or a group has logged half as much
// again as is logged between its snapshots, besides what the one under way covers.
func (n *Node) hurries() bool {
	if space := n.space.Stats(); space.Low || space.FreeBytes < hurryTimes*space.LowWaterBytes {
		return true
	}
	for _, g := range n.allGroups() {
		if g.replica.overdue() {
			return true
		}
	}
	return false
}
