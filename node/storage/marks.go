package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/belfrydb/belfry/node/storage/disk"
)

// The high-water file holds two slots, 4 KiB apart. Of the valid ones, the one with the higher
// sequence counts:
//
//	0       4     12    20         28               36
//	| magic | seq | log | snapshot | zeros to 508   | CRC32C |
//
// The log and the snapshots were durable at least up to these indexes. A log that ends before its
// mark was damaged, not torn. Raising the mark is a plain write after the sync of the append: if a
// power cut loses it, the mark is only lower than it could be. Lowering it is synced first, so a
// mark is never too high.
const (
	marksMagic      = 0x4d594c42
	markSlotBytes   = 512
	markSlotStride  = 4096
	marksFileBytes  = markSlotStride + markSlotBytes
	markPayloadEnd  = 28
	markSyncDefault = time.Second
)

type mark struct {
	log      uint64 // last log index known durable, 0 for none
	snapshot uint64 // newest durable snapshot's index, 0 for none
}

type marks struct {
	name      string
	file      disk.File
	syncEvery time.Duration
	now       func() time.Time

	guard *disk.Guard // told of a failed sync outside the appends

	mu       disk.ChannelMutex // guards the following
	seq      uint64
	current  mark
	lastSync time.Time
	unsynced bool // a slot was written since lastSync
	closed   bool
	late     *time.Timer // syncs marks that no further append syncs; nil if it is not set
}

func encodeSlot(seq uint64, m mark) []byte {
	b := make([]byte, markSlotBytes)
	binary.LittleEndian.PutUint32(b, marksMagic)
	binary.LittleEndian.PutUint64(b[4:], seq)
	binary.LittleEndian.PutUint64(b[12:], m.log)
	binary.LittleEndian.PutUint64(b[20:], m.snapshot)
	binary.LittleEndian.PutUint32(b[markSlotBytes-4:], disk.SumBytes(0, b[:markSlotBytes-4]))
	return b
}

func decodeSlot(b []byte) (uint64, mark, bool) {
	sum := binary.LittleEndian.Uint32(b[markSlotBytes-4:])
	if binary.LittleEndian.Uint32(b) != marksMagic || disk.SumBytes(0, b[:markSlotBytes-4]) != sum {
		return 0, mark{}, false
	}
	return binary.LittleEndian.Uint64(b[4:]), mark{
		log:      binary.LittleEndian.Uint64(b[12:]),
		snapshot: binary.LittleEndian.Uint64(b[20:]),
	}, true
}

func createMarks(fsys disk.FS, name string) error {
	b := make([]byte, marksFileBytes)
	copy(b, encodeSlot(1, mark{}))
	copy(b[markSlotStride:], encodeSlot(2, mark{}))
	return disk.ReplaceFile(fsys, name, b)
}

func openMarks(fsys disk.FS, name string, syncEvery time.Duration, now func() time.Time) (*marks, error) {
	b, err := disk.ReadFile(fsys, name)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, &disk.CorruptError{File: name, Detail: "missing", Err: err}
		}
		return nil, &disk.CorruptError{File: name, Detail: "cannot be read", Err: err}
	}
	if len(b) != marksFileBytes {
		return nil, &disk.CorruptError{File: name, Detail: fmt.Sprintf("%d bytes, expected %d", len(b), marksFileBytes)}
	}
	m := &marks{mu: disk.NewChannelMutex(), name: name, syncEvery: syncEvery, now: now}
	// A power cut in the middle of a write leaves one bad slot. The other holds a true, older mark.
	for _, slot := range [][]byte{b[:markSlotBytes], b[markSlotStride:]} {
		if seq, cur, ok := decodeSlot(slot); ok && seq > m.seq {
			m.seq, m.current = seq, cur
		}
	}
	if m.seq == 0 {
		return nil, &disk.CorruptError{File: name, Detail: "neither of its two slots has a valid checksum"}
	}
	if m.file, err = fsys.OpenFile(name, os.O_RDWR); err != nil {
		return nil, fmt.Errorf("opening %s: %w", name, err)
	}
	return m, nil
}

func (m *marks) get() mark {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.current
}

// raiseLog notes that the log is durable up to index. Call it only after the append's sync
// returned.
func (m *marks) raiseLog(index uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.current.log = index
	if err := m.writeSlot(); err != nil {
		return err
	}
	rest := m.syncEvery - m.now().Sub(m.lastSync)
	if rest <= 0 {
		return m.sync()
	}
	m.scheduleSync(rest)
	return nil
}

// scheduleSync schedules the sync of the last mark, for the case that no append follows. mu is
// held.
func (m *marks) scheduleSync(rest time.Duration) {
	if m.late == nil {
		m.late = time.AfterFunc(rest, func() {
			// After a failed write, or a close, the guard refuses the sync.
			_ = m.guard.Do("sync high-water marks", m.syncLate)
		})
	}
}

func (m *marks) syncLate() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.late = nil
	if m.closed || !m.unsynced {
		return nil
	}
	// an append has synced meanwhile, and others came after it
	if rest := m.syncEvery - m.now().Sub(m.lastSync); rest > 0 {
		m.scheduleSync(rest)
		return nil
	}
	return m.sync()
}

// lowerLog durably lowers the log's mark. Call it before the log is cut.
func (m *marks) lowerLog(index uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.current.log <= index {
		return nil
	}
	m.current.log = index
	// Both slots: the other one still holds a higher mark, which would count if this one were
	// damaged.
	return m.writeBoth()
}

// makeDurable makes the mark that was found durable: a process that was killed may have lowered it
// only in the kernel's cache.
func (m *marks) makeDurable() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.writeBoth()
}

func (m *marks) writeBoth() error { return errors.Join(m.writeSlot(), m.writeSlot(), m.sync()) }

// raiseSnapshot durably raises the mark of the snapshots. Call it after the snapshot is durable and
// before the log is compacted.
func (m *marks) raiseSnapshot(index uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.current.snapshot = max(m.current.snapshot, index)
	return errors.Join(m.writeSlot(), m.sync())
}

func (m *marks) writeSlot() error {
	m.seq++
	// Always overwrite the older slot: slot 0 holds odd sequences.
	off := int64((m.seq+1)%2) * markSlotStride
	if _, err := m.file.WriteAt(encodeSlot(m.seq, m.current), off); err != nil {
		return fmt.Errorf("writing %s: %w", m.name, err)
	}
	m.unsynced = true
	return nil
}

func (m *marks) sync() error {
	if err := m.file.SyncData(); err != nil {
		return fmt.Errorf("syncing %s: %w", m.name, err)
	}
	m.unsynced, m.lastSync = false, m.now()
	return nil
}

func (m *marks) close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	if m.late != nil {
		m.late.Stop()
	}
	return errors.Join(m.sync(), m.file.Close())
}
