package storage

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/belfrydb/belfry/node/storage/disk"
)

// LogStore is a group's checked log. Every read verifies the entry's sum. Entries are always
// consecutive. IsMonotonic is true, so Raft clears the whole log when it installs a snapshot, and
// leaves no stale entries below or beside it.
//
// Methods may be called from any goroutine. The slices in an entry that was read belong to the
// caller. Entries that are stored are not kept or changed. A failed write fails the group. A read
// of a damaged entry returns a *CorruptError and fails the group too.
type LogStore struct {
	engine  engine
	marks   *marks
	guard   *disk.Guard
	now     func() time.Time
	onClear func(last uint64) // gets the last index of a log that is about to be emptied

	mu   disk.ChannelMutex // held by each write
	held atomic.Pointer[span]

	entries, bytes atomic.Uint64
	latency        latency
}

// span is the range of indexes held; empty when last is 0. cuts counts the deletions so far.
type span struct{ first, last, cuts uint64 }

func (s span) has(index uint64) bool { return s.last > 0 && s.first <= index && index <= s.last }

var (
	_ raft.LogStore          = (*LogStore)(nil)
	_ raft.MonotonicLogStore = (*LogStore)(nil)
)

// IsMonotonic implements raft.MonotonicLogStore.
func (s *LogStore) IsMonotonic() bool { return true }

// FirstIndex implements raft.LogStore.
func (s *LogStore) FirstIndex() (uint64, error) { return s.held.Load().first, nil }

// LastIndex implements raft.LogStore.
func (s *LogStore) LastIndex() (uint64, error) { return s.held.Load().last, nil }

// BytesAppended returns the bytes of data and extensions stored since Open.
func (s *LogStore) BytesAppended() uint64 { return s.bytes.Load() }

// GetLog implements raft.LogStore. It returns raft.ErrLogNotFound itself, not wrapped, outside the
// log's range.
func (s *LogStore) GetLog(index uint64, l *raft.Log) error {
	held := s.held.Load()
	if !held.has(index) {
		return raft.ErrLogNotFound
	}
	err := s.engine.getLog(index, l)
	if err == nil && l.Index == index {
		return nil
	}
	// A concurrent deletion explains a missing entry, even one that was stored again since. Without
	// a deletion, it is a hole. The range narrows before entries vanish, so the count of cuts
	// tells.
	if s.held.Load().cuts != held.cuts {
		return s.GetLog(index, l)
	}
	if closed := s.guard.Failure(); errors.Is(closed, disk.ErrClosed) {
		return closed
	}
	corrupt := &disk.CorruptError{File: s.engine.fileOf(index), Index: index, Detail: "cannot be read back", Err: err}
	if err == nil {
		corrupt.Detail = fmt.Sprintf("entry %d found in its place", l.Index)
	}
	s.guard.Fail(corrupt)
	return corrupt
}

// StoreLog implements raft.LogStore.
func (s *LogStore) StoreLog(l *raft.Log) error { return s.StoreLogs([]*raft.Log{l}) }

// StoreLogs implements raft.LogStore. The entries are durable when it returns nil. An error that
// wraps ErrGap is a refusal and changes nothing. After any other error the outcome is unknown, and
// the group has failed.
func (s *LogStore) StoreLogs(logs []*raft.Log) error {
	if len(logs) == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	next := *s.held.Load()
	if next.last == 0 {
		next.first, next.last = logs[0].Index, logs[0].Index-1
	}
	size := 0
	for _, l := range logs {
		if l.Index == 0 || l.Index != next.last+1 {
			return fmt.Errorf("%w: entry %d after %d", ErrGap, l.Index, next.last)
		}
		next.last++
		size += len(l.Data) + len(l.Extensions)
	}
	start := s.now()
	err := s.guard.Do("append to log", func() error {
		if err := s.engine.storeLogs(logs); err != nil {
			return err
		}
		return s.marks.raiseLog(next.last)
	})
	if err != nil {
		return err
	}
	s.held.Store(&next)
	s.latency.record(s.now().Sub(start))
	s.entries.Add(uint64(len(logs)))
	s.bytes.Add(uint64(size))
	return nil
}

// DeleteRange implements raft.LogStore for a prefix, a suffix or all of the log; any other range is
// an error. Stores.Tidy removes the files.
func (s *LogStore) DeleteRange(first, last uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := *s.held.Load()
	if first > last || held.last == 0 || last < held.first || first > held.last {
		return nil
	}
	next := held
	next.cuts++
	switch {
	case first <= held.first && last >= held.last:
		next.first, next.last = 0, 0
	case first <= held.first:
		next.first = last + 1
	case last >= held.last:
		next.last = first - 1
	default:
		return fmt.Errorf("storage: deleting %d to %d would leave a hole in log %d to %d", first, last, held.first, held.last)
	}
	if next.last == 0 && s.onClear != nil {
		s.onClear(held.last)
	}
	// Readers must see the narrower range before entries vanish, or a compaction would look like
	// damage to them.
	s.held.Store(&next)
	return s.guard.Do("cut log", func() error {
		// The mark first: a crash between the two must not leave a mark above the log's end.
		if err := s.marks.lowerLog(next.last); err != nil {
			return err
		}
		return s.engine.deleteRange(max(first, held.first), min(last, held.last))
	})
}

func (s *LogStore) stats() LogStats {
	held := s.held.Load()
	return LogStats{
		FirstIndex: held.first, LastIndex: held.last,
		EntriesAppended: s.entries.Load(), BytesAppended: s.bytes.Load(),
		Append: s.latency.load(),
	}
}
