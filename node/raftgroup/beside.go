package raftgroup

import (
	"errors"
	"math"
	"runtime"
	"slices"

	"github.com/hashicorp/raft"
)

// commands reports whether all entries are commands. Other entries change who counts as a majority,
// or begin a term, and Raft acts on them without the machine.
func commands(logs []*raft.Log) bool {
	return !slices.ContainsFunc(logs, func(l *raft.Log) bool { return l.Type != raft.LogCommand })
}

// storeBeside has the entries written by another goroutine. If that one is far behind, storeBeside
// waits for it.
func (c *RecentLog) storeBeside(logs []*raft.Log) error {
	c.mu.Lock()
	if err := c.failed; err != nil {
		c.mu.Unlock()
		return err
	}
	if len(c.unwritten) == 0 {
		c.round = make(chan struct{})
		go c.write()
	}
	c.unwritten = append(c.unwritten, logs...)
	for _, l := range logs {
		c.unwrittenBytes += entryBytes(l)
	}
	c.keep(logs)
	behind := c.unwrittenBytes > recentBytesMax
	c.mu.Unlock()
	if behind {
		return c.Drain()
	}
	return nil
}

// errNotWritten stands for the error of a write that ended with its goroutine.
var errNotWritten = errors.New("the write did not return")

// write makes the unwritten entries durable, until there are none.
func (c *RecentLog) write() {
	for more := true; more; {
		more = c.writeBatch()
	}
}

// writeBatch writes what is unwritten now, and reports whether there is more.
func (c *RecentLog) writeBatch() (more bool) {
	c.mu.RLock()
	batch := c.unwritten
	c.mu.RUnlock()
	err := errNotWritten
	defer func() { more = c.written(batch, err) }() // also if the storage ends the goroutine
	err = c.monotonicLog.StoreLogs(batch)
	return false
}

// written records the end of a write, and reports whether there are more entries to write.
func (c *RecentLog) written(batch []*raft.Log, err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.round)
	if err != nil {
		c.failed = err // the entries stay unwritten: they must not be applied
		return false
	}
	for _, l := range batch {
		c.unwrittenBytes -= entryBytes(l)
	}
	clear(batch)
	if c.unwritten = c.unwritten[len(batch):]; len(c.unwritten) == 0 {
		c.unwritten = nil
		return false
	}
	c.round = make(chan struct{})
	return true
}

// Unwritten returns the index of the first entry that is not known to be durable; math.MaxUint64 if
// all are.
func (c *RecentLog) Unwritten() uint64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.firstUnwritten()
}

// firstUnwritten is Unwritten. mu is held.
func (c *RecentLog) firstUnwritten() uint64 {
	if len(c.unwritten) == 0 {
		return math.MaxUint64
	}
	return c.unwritten[0].Index
}

// Await waits until the entry at index is durable. An error means that it may never be.
func (c *RecentLog) Await(index uint64) error {
	for {
		c.mu.RLock()
		first, round, err := c.firstUnwritten(), c.round, c.failed
		c.mu.RUnlock()
		if index < first {
			return nil
		}
		if err != nil {
			return err
		}
		<-round
	}
}

// Drain waits until all entries that were stored before the call are durable. An error means that
// they may never be.
func (c *RecentLog) Drain() error {
	c.mu.RLock()
	last := uint64(0)
	if n := len(c.unwritten); n > 0 {
		last = c.unwritten[n-1].Index
	}
	c.mu.RUnlock()
	return c.Await(last)
}

// termStore makes the log durable before anything of Raft's terms and votes. So a node that leaves a
// term has no unwritten entries when it votes, stands for election or follows the next leader.
//
// If the log cannot be made durable, the storage has failed, and ends the process or sets the replica
// aside. An error would make Raft panic before that, so Raft's goroutine ends instead.
type termStore struct {
	raft.StableStore

	log *RecentLog
}

// Set implements raft.StableStore.
func (s termStore) Set(key, value []byte) error {
	s.drain()
	return s.StableStore.Set(key, value)
}

// SetUint64 implements raft.StableStore.
func (s termStore) SetUint64(key []byte, value uint64) error {
	s.drain()
	return s.StableStore.SetUint64(key, value)
}

// drain returns when the log is durable.
func (s termStore) drain() {
	if s.log.Drain() != nil {
		runtime.Goexit()
	}
}
