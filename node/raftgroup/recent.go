package raftgroup

import (
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// recentBytesMax bounds the entries of a group that are kept in memory: those in flight, and a few
// for a follower that is slightly behind.
const recentBytesMax = 2 << 20

// EntryOverheadBytes is about the size that a log store adds to the data of an entry.
const EntryOverheadBytes = 64

// monotonicLog is the log that Raft needs for a group.
type monotonicLog interface {
	raft.LogStore
	raft.MonotonicLogStore
}

// RecentLog keeps the newest entries in memory, because Raft reads each entry again: for every
// follower, for the term before the next entry, and to apply it. A caller that stores an entry must
// not change its data afterwards. The store reads and checks older entries.
//
// A leader's commands are written beside their replication: see StoreLogs.
type RecentLog struct {
	monotonicLog
	// beside reports whether StoreLogs may return before the entries are durable; nil means never.
	beside atomic.Pointer[func() bool]

	mu      sync.RWMutex
	entries []raft.Log // consecutive; copies, since Raft's are parts of futures that hold the answers to them
	bytes   int
	// unwritten are the last entries, those that are not known to be durable. While there are any and
	// failed is nil, one goroutine writes them. It closes round after each write.
	unwritten      []*raft.Log
	unwrittenBytes int
	round          chan struct{}
	failed         error // why a write beside replication failed
}

// NewRecentLog returns a log that keeps the newest entries of log in memory.
func NewRecentLog(log monotonicLog) *RecentLog { return &RecentLog{monotonicLog: log} }

// WriteBeside lets StoreLogs return before the entries are durable, while leads returns true. leads
// must return false unless this node leads the group and the entries are its own.
func (c *RecentLog) WriteBeside(leads func() bool) { c.beside.Store(&leads) }

// GetLog implements raft.LogStore. Callers share the data of a recent entry and must not change it.
func (c *RecentLog) GetLog(index uint64, l *raft.Log) error {
	if c.recent(index, l) {
		return nil
	}
	return c.monotonicLog.GetLog(index, l)
}

// recent copies the entry at index to l if it is in memory.
func (c *RecentLog) recent(index uint64, l *raft.Log) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if n := len(c.entries); n == 0 || index < c.entries[0].Index || index > c.entries[n-1].Index {
		return false
	}
	*l = c.entries[index-c.entries[0].Index]
	return true
}

// LastIndex implements raft.LogStore.
func (c *RecentLog) LastIndex() (uint64, error) {
	if err := c.Drain(); err != nil {
		return 0, err
	}
	return c.monotonicLog.LastIndex()
}

// StoreLog implements raft.LogStore.
func (c *RecentLog) StoreLog(l *raft.Log) error { return c.StoreLogs([]*raft.Log{l}) }

// StoreLogs implements raft.LogStore. It returns once the entries are durable, unless all of them
// are commands that this node proposes as the leader (WriteBeside). Those may be replicated before
// they are durable here, but not applied, and followers must not learn that they are committed:
// Await and Unwritten are for this.
func (c *RecentLog) StoreLogs(logs []*raft.Log) error {
	if leads := c.beside.Load(); leads != nil && commands(logs) && (*leads)() {
		return c.storeBeside(logs)
	}
	if err := c.Drain(); err != nil {
		return err
	}
	if err := c.monotonicLog.StoreLogs(logs); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keep(logs)
	return nil
}

// keep adds entries to those in memory. mu is held.
func (c *RecentLog) keep(logs []*raft.Log) {
	for _, l := range logs {
		if n := len(c.entries); n > 0 && l.Index != c.entries[n-1].Index+1 {
			c.forget(n)
		}
		c.entries = append(c.entries, *l)
		c.bytes += entryBytes(l)
	}
	old, first := 0, c.firstUnwritten()
	for left := c.bytes; left > recentBytesMax && c.entries[old].Index < first; old++ {
		left -= entryBytes(&c.entries[old])
	}
	c.forget(old)
}

// DeleteRange implements raft.LogStore.
func (c *RecentLog) DeleteRange(first, last uint64) error {
	if err := c.Drain(); err != nil {
		return err
	}
	c.mu.Lock()
	if n := len(c.entries); n > 0 && first <= c.entries[n-1].Index && last >= c.entries[0].Index {
		if last < c.entries[n-1].Index { // a prefix, which a leader may remove while it stores entries
			n = int(last - c.entries[0].Index + 1) //nolint:gosec // at most the number of entries
		}
		c.forget(n)
	}
	c.mu.Unlock()
	return c.monotonicLog.DeleteRange(first, last)
}

// forget drops the oldest n entries. mu is held.
func (c *RecentLog) forget(n int) {
	for i := range n {
		c.bytes -= entryBytes(&c.entries[i])
	}
	clear(c.entries[:n])
	if c.entries = c.entries[n:]; len(c.entries) == 0 {
		c.entries = nil
	}
}

// entryBytes returns about the memory that an entry takes.
func entryBytes(l *raft.Log) int { return len(l.Data) + len(l.Extensions) + EntryOverheadBytes }
