package storage

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/belfrydb/belfry/node/storage/disk"
)

const (
	snapshotSuffix    = ".snap"
	snapshotsRetained = 2
)

// SnapshotStore keeps a group's snapshots, each one checked file. It shows Raft only the newest:
// Raft's own fallback to an older snapshot would start the group with less than it had.
//
// Methods may be called from any goroutine; a sink belongs to one.
type SnapshotStore struct {
	fsys   disk.FS
	dir    string
	marks  *marks
	guard  *disk.Guard
	now    func() time.Time
	logger *slog.Logger
	gone   *removals

	readers    atomic.Int64      // number of open readers
	publishing disk.ChannelMutex // held from the last check of newest until newest is set

	mu     sync.Mutex
	serial uint64
	newest raft.SnapshotMeta // zero if there is none
	stats  SnapshotStats
}

var _ raft.SnapshotStore = (*SnapshotStore)(nil)

// snapshotName is the parsed form of <index>-<term>-<serial>.
type snapshotName struct {
	id                  string
	index, term, serial uint64
}

func formatSnapshotID(index, term, serial uint64) string {
	return fmt.Sprintf("%016x-%016x-%08x", index, term, serial)
}

func parseSnapshotName(file string) (snapshotName, bool) {
	id, ok := strings.CutSuffix(file, snapshotSuffix)
	parts := strings.Split(id, "-")
	if !ok || len(parts) != 3 {
		return snapshotName{}, false
	}
	n := snapshotName{id: id}
	for i, field := range []*uint64{&n.index, &n.term, &n.serial} {
		v, err := strconv.ParseUint(parts[i], 16, 64)
		if err != nil {
			return snapshotName{}, false
		}
		*field = v
	}
	return n, formatSnapshotID(n.index, n.term, n.serial) == id
}

// listSnapshots returns the snapshots in dir, newest first.
func listSnapshots(fsys disk.FS, dir string) ([]snapshotName, error) {
	files, err := fsys.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("storage: listing %s: %w", dir, err)
	}
	var names []snapshotName
	for _, file := range files {
		if n, ok := parseSnapshotName(file); ok {
			names = append(names, n)
		} else if strings.HasSuffix(file, snapshotSuffix) {
			return nil, &disk.CorruptError{File: filepath.Join(dir, file), Detail: "not a name this store gives to snapshots"}
		}
	}
	slices.SortFunc(names, func(a, b snapshotName) int {
		if a.index != b.index {
			return -compareUint64(a.index, b.index)
		}
		return -compareUint64(a.serial, b.serial)
	})
	return names, nil
}

func compareUint64(a, b uint64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// openSnapshots verifies every block of the newest snapshot and keeps its meta.
func openSnapshots(s *SnapshotStore) error {
	if err := disk.RemoveTemporaries(s.fsys, s.dir); disk.IsMissing(err) {
		return &disk.CorruptError{File: s.dir, Detail: "missing", Err: err}
	} else if err != nil {
		return fmt.Errorf("storage: %w", err)
	}
	names, err := listSnapshots(s.fsys, s.dir)
	if err != nil {
		return err
	}
	if mark := s.marks.get().snapshot; mark > 0 && (len(names) == 0 || names[0].index < mark) {
		return &disk.CorruptError{File: filepath.Join(s.dir, formatSnapshotID(mark, 0, 0)[:17]+"*"+snapshotSuffix),
			Index: mark, Detail: "missing: a snapshot at this index was durable"}
	}
	for _, n := range names {
		s.serial = max(s.serial, n.serial)
	}
	if len(names) == 0 {
		return nil
	}
	r, err := verifySnapshot(s.fsys, s.path(names[0].id))
	if err != nil {
		return err
	}
	if m := r.meta; m.ID != names[0].id || m.Index != names[0].index || m.Term != names[0].term {
		return &disk.CorruptError{File: r.name, Detail: fmt.Sprintf("holds snapshot %s, not the one it is named for", m.ID)}
	}
	s.newest, s.stats.NewestAt = *r.raftMeta(), r.written
	// A crash may have come between the snapshot and its mark.
	if s.newest.Index > s.marks.get().snapshot {
		return s.marks.raiseSnapshot(s.newest.Index)
	}
	return nil
}

func (s *SnapshotStore) path(id string) string { return filepath.Join(s.dir, id+snapshotSuffix) }

// Create implements raft.SnapshotStore. It does not use the transport: only configurations of
// protocol 3 are written. The sink implements DigestSetter. ErrSnapshotOlder refuses an index below
// the newest durable one, and ends a sink that a newer snapshot has overtaken.
func (s *SnapshotStore) Create(version raft.SnapshotVersion, index, term uint64, configuration raft.Configuration,
	configurationIndex uint64, _ raft.Transport,
) (raft.SnapshotSink, error) {
	if version != 1 {
		return nil, fmt.Errorf("storage: snapshot version %d, this store writes 1", version)
	}
	s.mu.Lock()
	s.serial++
	id := formatSnapshotID(index, term, s.serial)
	s.mu.Unlock()
	if err := s.overtaken(id, index); err != nil {
		return nil, err
	}
	s.gone.carryOut(nil) // each failed install before may have left a large file
	sink := &snapshotSink{store: s, name: s.path(id), start: s.now(), meta: snapshotMeta{
		Version: version, ID: id, Index: index, Term: term,
		Configuration: configuration, ConfigurationIndex: configurationIndex,
	}}
	if err := sink.create(); err != nil {
		return nil, err
	}
	return sink, nil
}

// overtaken returns ErrSnapshotOlder if a snapshot that comes after id is durable.
func (s *SnapshotStore) overtaken(id string, index uint64) error {
	if newest, _ := s.Newest(); id < newest.ID { // an id begins with its index
		return fmt.Errorf("%w: index %d, newest is %d", ErrSnapshotOlder, index, newest.Index)
	}
	return nil
}

// List implements raft.SnapshotStore. It returns the newest snapshot, or none. If its header or
// trailer is damaged by now, it returns a *CorruptError.
func (s *SnapshotStore) List() ([]*raft.SnapshotMeta, error) {
	newest, ok := s.Newest()
	if !ok {
		return nil, nil
	}
	r, err := openSnapshot(s.fsys, s.path(newest.ID), nil)
	if err != nil {
		s.guard.Fail(err)
		return nil, err
	}
	return []*raft.SnapshotMeta{r.raftMeta()}, r.Close()
}

// Newest returns the newest durable snapshot's meta, false if there is none. It reads no file.
func (s *SnapshotStore) Newest() (raft.SnapshotMeta, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.newest, s.newest.Index > 0
}

// Open implements raft.SnapshotStore. The reader verifies each block before it returns it. A
// damaged one is a *CorruptError that names file and offset, and fails the group.
func (s *SnapshotStore) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	r, err := s.open(id)
	if err != nil {
		return nil, nil, err
	}
	return r.raftMeta(), r, nil
}

func (s *SnapshotStore) open(id string) (*snapshotReader, error) {
	s.readers.Add(1) // before the file is open: see discard
	r, err := openSnapshot(s.fsys, s.path(id), s.guard.Fail)
	if err == nil {
		r.onClose = sync.OnceFunc(func() { s.readers.Add(-1) })
		return r, nil
	}
	s.readers.Add(-1)
	// An older one may just have been removed, because a newer one was written.
	if newest, _ := s.Newest(); newest.ID == id || !disk.IsMissing(err) {
		s.guard.Fail(err)
	}
	return nil, err
}

// Digest returns the digest in a snapshot's trailer, false if its writer gave none. Damage fails
// the group, as in Open.
func (s *SnapshotStore) Digest(id string) (digest uint64, ok bool, err error) {
	r, err := s.open(id)
	if err != nil {
		return 0, false, err
	}
	return r.trailer.digest, r.trailer.hasDigest, r.Close()
}

// written notes a durable snapshot and removes those no longer retained.
func (s *SnapshotStore) written(sink *snapshotSink) error {
	// The mark becomes durable before Raft may compact the log, so that losing the snapshot is always
	// noticed.
	err := s.guard.Do("mark snapshot", func() error { return s.marks.raiseSnapshot(sink.meta.Index) })
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.newest = raft.SnapshotMeta{
		Version: sink.meta.Version, ID: sink.meta.ID, Index: sink.meta.Index, Term: sink.meta.Term,
		Configuration: sink.meta.Configuration, ConfigurationIndex: sink.meta.ConfigurationIndex,
		Size: int64(sink.trailer.bytes),
	}
	s.stats.Written++
	s.stats.NewestAt = s.now()
	s.stats.LastWrite = s.stats.NewestAt.Sub(sink.start)
	s.mu.Unlock()
	if err := s.reap(); err != nil {
		// The new one is durable all the same; the next snapshot tries again.
		s.logger.Warn("removing old snapshots", "dir", s.dir, "error", err)
	}
	return nil
}

func (s *SnapshotStore) abandoned() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Failed++
}

func (s *SnapshotStore) reap() error {
	names, err := listSnapshots(s.fsys, s.dir)
	if err != nil {
		return err
	}
	if len(names) <= snapshotsRetained {
		return nil
	}
	for _, n := range names[snapshotsRetained:] {
		err = errors.Join(err, s.discard(s.path(n.id)))
	}
	return errors.Join(err, s.fsys.SyncDir(s.dir))
}

// discard removes a snapshot. A reader that has opened it may go on reading: while any reader is
// open, the file is not cut in steps. Once the file has its temporary name, no reader can open it,
// and every earlier reader has been counted.
func (s *SnapshotStore) discard(name string) error {
	tmp := name + disk.TemporarySuffix
	if err := s.fsys.Rename(name, tmp); err != nil {
		return err
	}
	return s.gone.delete(removal{name: tmp, read: func() bool { return s.readers.Load() > 0 }})
}

// Stats returns the store's figures. It reads no file.
func (s *SnapshotStore) Stats() SnapshotStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := s.stats
	stats.NewestIndex, stats.NewestBytes = s.newest.Index, s.newest.Size
	return stats
}
