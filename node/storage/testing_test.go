package storage_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/belfrydb/belfry/node/storage"
	"github.com/belfrydb/belfry/node/storage/disk"
	"github.com/belfrydb/belfry/node/storage/diskfault"
)

const (
	groupDir  = "/data/shard-1"
	groupName = "cluster-7/shard-1"
)

// stack is one way to put a group on a disk.
type stack struct {
	name   string
	engine storage.Engine
	fs     func() disk.FS
	dir    func(*testing.T) string
}

func stacks() []stack {
	onDisk := func(t *testing.T) string { return path.Join(t.TempDir(), "shard-1") }
	return []stack{
		{"wal in memory", storage.EngineWAL, func() disk.FS {
			return newDisk()
		}, func(*testing.T) string { return groupDir }},
		{"wal", storage.EngineWAL, func() disk.FS { return disk.OSFS{} }, onDisk},
		{"bolt", storage.EngineBolt, func() disk.FS { return disk.OSFS{} }, onDisk},
	}
}

func newDisk() *diskfault.Disk {
	d := diskfault.New()
	if err := d.MkdirAll("/data"); err != nil {
		panic(err)
	}
	return d
}

func testConfig(fsys disk.FS, engine storage.Engine) storage.Config {
	return storage.Config{Group: groupName, Engine: engine, FS: fsys, SegmentBytes: 16 << 10}
}

// openOn opens the group on a disk in memory. The caller closes it.
func openOn(t *testing.T, d *diskfault.Disk) *storage.Stores {
	t.Helper()
	s, err := storage.Open(groupDir, testConfig(d, storage.EngineWAL))
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return s
}

func closeStores(t *testing.T, s *storage.Stores) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
}

func body(index uint64) []byte {
	return bytes.Repeat([]byte{byte(index), byte(index >> 8)}, 30+int(index%17))
}

func entry(index, term uint64) *raft.Log {
	return &raft.Log{Index: index, Term: term, Type: raft.LogCommand, Data: body(index)}
}

func entries(first, last, term uint64) []*raft.Log {
	var logs []*raft.Log
	for i := first; i <= last; i++ {
		logs = append(logs, entry(i, term))
	}
	return logs
}

// appendEntries stores first to last in batches of five, after the term that Raft would have
// stored.
func appendEntries(t *testing.T, s *storage.Stores, first, last, term uint64) {
	t.Helper()
	setTerm(t, s, term)
	for i := first; i <= last; i += 5 {
		if err := s.Log.StoreLogs(entries(i, min(i+4, last), term)); err != nil {
			t.Fatalf("storing %d: %v", i, err)
		}
	}
}

func setTerm(t *testing.T, s *storage.Stores, term uint64) {
	t.Helper()
	if err := s.Stable.SetUint64([]byte("CurrentTerm"), term); err != nil {
		t.Fatalf("setting term: %v", err)
	}
}

// checkEntries reads every entry and compares it with what entry gives.
func checkEntries(s *storage.Stores, first, last uint64) error {
	gotFirst, _ := s.Log.FirstIndex()
	gotLast, _ := s.Log.LastIndex()
	if gotFirst != first || gotLast != last {
		return fmt.Errorf("log holds %d to %d, want %d to %d", gotFirst, gotLast, first, last)
	}
	for i := first; last > 0 && i <= last; i++ {
		var l raft.Log
		if err := s.Log.GetLog(i, &l); err != nil {
			return err
		}
		if l.Index != i || !bytes.Equal(l.Data, body(i)) || len(l.Extensions) != 0 {
			return fmt.Errorf("entry %d came back as %+v", i, l)
		}
	}
	return nil
}

func configuration() raft.Configuration {
	return raft.Configuration{Servers: []raft.Server{{Suffrage: raft.Voter, ID: "a", Address: "a"}}}
}

// takeSnapshot writes data at (index, term).
func takeSnapshot(s raft.SnapshotStore, index, term uint64, data []byte) error {
	_, trans := raft.NewInmemTransport("a") // the library's own store encodes addresses with it
	sink, err := s.Create(1, index, term, configuration(), 1, trans)
	if err != nil {
		return err
	}
	if _, err := io.Copy(sink, bytes.NewReader(data)); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return sink.Close()
}

func mustSnapshot(t *testing.T, s *storage.Stores, index, term uint64, data []byte) {
	t.Helper()
	if err := takeSnapshot(s.Snapshots, index, term, data); err != nil {
		t.Fatalf("snapshot at %d: %v", index, err)
	}
}

// readSnapshot returns the newest snapshot's index and data.
func readSnapshot(s raft.SnapshotStore) (uint64, []byte, error) {
	list, err := s.List()
	if err != nil || len(list) == 0 {
		return 0, nil, err
	}
	meta, r, err := s.Open(list[0].ID)
	if err != nil {
		return 0, nil, err
	}
	data, err := io.ReadAll(r)
	if err == nil && int64(len(data)) != meta.Size {
		err = fmt.Errorf("meta says %d bytes, read %d", meta.Size, len(data))
	}
	return meta.Index, data, errors.Join(err, r.Close())
}

// wantCorrupt fails the test unless err is a *CorruptError about a file whose path contains file.
func wantCorrupt(t *testing.T, err error, file string) {
	t.Helper()
	_ = corruptIn(t, err, file)
}

// corruptIn is wantCorrupt for tests that look at the error.
func corruptIn(t *testing.T, err error, file string) *disk.CorruptError {
	t.Helper()
	var corrupt *disk.CorruptError
	if !errors.As(err, &corrupt) {
		t.Fatalf("got %v, want damage reported in %s", err, file)
	}
	if !strings.Contains(corrupt.File, file) {
		t.Fatalf("damage reported in %s, want %s: %v", corrupt.File, file, err)
	}
	return corrupt
}
