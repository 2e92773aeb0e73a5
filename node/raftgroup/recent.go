package raftgroup

import (
	"sync"

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
type RecentLog struct {
	monotonicLog

	mu      sync.RWMutex
	entries []raft.Log // consecutive; copies, since Raft's are parts of futures that hold the answers to them
	bytes   int
}

// NewRecentLog returns a log that keeps the newest entries of log in memory.
func NewRecentLog(log monotonicLog) *RecentLog { return &RecentLog{monotonicLog: log} }

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

// StoreLog implements raft.LogStore.
func (c *RecentLog) StoreLog(l *raft.Log) error { return c.StoreLogs([]*raft.Log{l}) }

// StoreLogs implements raft.LogStore. It keeps only durable entries.
func (c *RecentLog) StoreLogs(logs []*raft.Log) error {
	if err := c.monotonicLog.StoreLogs(logs); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range logs {
		if n := len(c.entries); n > 0 && l.Index != c.entries[n-1].Index+1 {
			c.forget()
		}
		c.entries = append(c.entries, *l)
		c.bytes += entryBytes(l)
	}
	for c.bytes > recentBytesMax {
		c.bytes -= entryBytes(&c.entries[0])
		c.entries[0] = raft.Log{}
		c.entries = c.entries[1:]
	}
	return nil
}

// DeleteRange implements raft.LogStore.
func (c *RecentLog) DeleteRange(first, last uint64) error {
	c.mu.Lock()
	if n := len(c.entries); n > 0 && first <= c.entries[n-1].Index && last >= c.entries[0].Index {
		c.forget()
	}
	c.mu.Unlock()
	return c.monotonicLog.DeleteRange(first, last)
}

// forget drops all kept entries. mu is held.
func (c *RecentLog) forget() { c.entries, c.bytes = nil, 0 }

// entryBytes returns about the memory that an entry takes.
func entryBytes(l *raft.Log) int { return len(l.Data) + len(l.Extensions) + EntryOverheadBytes }
