package storage

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/hashicorp/raft-wal/types"

	"github.com/belfrydb/belfry/node/storage/disk"
)

var errNoStable = errors.New("storage: the segment list keeps no stable values")

// walMeta is the list of segments, as a checked record. The library's own keeps it as JSON in bbolt
// without a sum, and deletes at open every segment file that the list does not name: a flipped bit
// there would cost the log.
type walMeta struct {
	fsys  disk.FS
	name  string
	guard *disk.Guard

	mu    sync.Mutex
	state types.PersistentState
}

func (m *walMeta) load() error {
	payload, err := disk.ReadRecord(m.fsys, m.name, walMetaMagic)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return &disk.CorruptError{File: m.name, Detail: "missing; it lists the log's segments", Err: err}
		}
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state = types.PersistentState{}
	if err := json.Unmarshal(payload, &m.state); err != nil {
		return &disk.CorruptError{File: m.name, Detail: "not a list of segments", Err: err}
	}
	return nil
}

// Load implements types.MetaStore.
func (m *walMeta) Load(string) (types.PersistentState, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state, nil
}

// CommitState implements types.MetaStore. A failure fails the group: during a rotation the library
// only logs it.
func (m *walMeta) CommitState(state types.PersistentState) error {
	for i := range state.Segments {
		state.Segments[i].Codec = entryCodecID
	}
	payload, err := json.Marshal(state)
	if err != nil {
		return fmt.Errorf("encoding segment list: %w", err)
	}
	if err := disk.WriteRecord(m.fsys, m.name, walMetaMagic, payload); err != nil {
		m.guard.Fail(fmt.Errorf("storage: %w", err))
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state = state
	return nil
}

// GetStable implements types.MetaStore; term and vote are in a StableStore.
func (m *walMeta) GetStable([]byte) ([]byte, error) { return nil, errNoStable }

// SetStable implements types.MetaStore; term and vote are in a StableStore.
func (m *walMeta) SetStable(_, _ []byte) error { return errNoStable }

// Close implements types.MetaStore.
func (m *walMeta) Close() error { return nil }

func (m *walMeta) find(index uint64) (types.SegmentInfo, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := len(m.state.Segments) - 1; i >= 0; i-- {
		if m.state.Segments[i].BaseIndex <= index {
			return m.state.Segments[i], true
		}
	}
	return types.SegmentInfo{}, false
}

// sealTail records that the last segment is complete and names the next one: it finishes a rotation
// that a crash cut off. The library does not finish it, and then every later append to the log
// fails.
func (m *walMeta) sealTail(s segmentScan, now time.Time, sizeLimit int) error {
	state, err := m.Load("")
	if err != nil {
		return err
	}
	segments := append([]types.SegmentInfo(nil), state.Segments...)
	tail := &segments[len(segments)-1]
	tail.SealTime = now
	tail.MaxIndex = s.next - 1
	tail.IndexStart = uint64(s.indexStart)
	segments = append(segments, types.SegmentInfo{
		ID: state.NextSegmentID, BaseIndex: s.next, MinIndex: s.next,
		SizeLimit: uint32(sizeLimit), CreateTime: now, Codec: entryCodecID,
	})
	return m.CommitState(types.PersistentState{NextSegmentID: state.NextSegmentID + 1, Segments: segments})
}
