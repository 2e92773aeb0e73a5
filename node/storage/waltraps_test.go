package storage_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
	"github.com/hashicorp/raft-wal/metadb"
	"github.com/hashicorp/raft-wal/types"

	"github.com/belfrydb/belfry/node/storage"
	"github.com/belfrydb/belfry/node/storage/disk"
	"github.com/belfrydb/belfry/node/storage/diskfault"
)

// These show what raft-wal itself does not survive, and why the wal engine checks and repairs
// before it opens it.

var errNoCommit = errors.New("the machine stopped before the segment list was written")

// stoppingMeta is the library's segment list on a machine that stops when told to.
type stoppingMeta struct {
	metadb.BoltMetaDB
	stopped bool
}

// CommitState implements types.MetaStore.
func (m *stoppingMeta) CommitState(s types.PersistentState) error {
	if m.stopped {
		return errNoCommit
	}
	return m.BoltMetaDB.CommitState(s)
}

func openBareWAL(t *testing.T, dir string, meta types.MetaStore) *wal.WAL {
	t.Helper()
	w, err := wal.Open(dir, wal.WithMetaStore(meta), wal.WithSegmentSize(4<<10), wal.WithLogger(hclog.NewNullLogger()))
	must(t, err)
	return w
}

// A crash after the append that fills a segment and before its rotation leaves a log that opens and
// then refuses every append.
func TestTrapCrashBeforeRotation(t *testing.T) {
	dir, meta := t.TempDir(), &stoppingMeta{}
	w := openBareWAL(t, dir, meta)
	meta.stopped = true
	must(t, w.StoreLogs(entries(1, 60, 1))) // more than a segment
	must(t, w.Close())
	w = openBareWAL(t, dir, &metadb.BoltMetaDB{})
	if err := w.StoreLog(entry(61, 1)); !errors.Is(err, wal.ErrSealed) {
		t.Errorf("bare raft-wal: %v; if it takes the append now, sealTail is no longer needed", err)
	}
	must(t, w.Close())

	d := newDisk()
	s, err := storage.Open(groupDir, smallSegments(d))
	must(t, err)
	d.SetHook(func(o diskfault.Op) error {
		if strings.Contains(o.Path, "segments") {
			return diskfault.Broken(o)
		}
		return nil
	})
	// Stored and durable; the rotation behind it fails, perhaps before this returns.
	if err := s.Log.StoreLogs(entries(1, 60, 0)); err != nil && !errors.Is(err, disk.ErrFailed) {
		t.Fatal(err)
	}
	d.Crash(diskfault.KeepAll, diskfault.KeepNames)
	_ = s.Close() // its files are gone
	s, err = storage.Open(groupDir, smallSegments(d))
	must(t, err)
	defer closeStores(t, s)
	must(t, s.Log.StoreLogs(entries(61, 130, 0)))
	must(t, checkEntries(s, 1, 130))
}

// A flipped bit in a frame in the middle of the last segment makes the library drop all durable
// entries behind it.
func TestTrapRotInLastSegment(t *testing.T) {
	dir := t.TempDir()
	w := openBareWAL(t, dir, &metadb.BoltMetaDB{})
	for i := uint64(1); i <= 20; i++ {
		must(t, w.StoreLog(entry(i, 1)))
	}
	must(t, w.Close())
	files, err := filepath.Glob(filepath.Join(dir, "*.wal"))
	must(t, err)
	b, err := os.ReadFile(files[0])
	must(t, err)
	flipFrame(t, b, body(8))
	must(t, os.WriteFile(files[0], b, 0o600))
	w = openBareWAL(t, dir, &metadb.BoltMetaDB{})
	if last, err := w.LastIndex(); err != nil || last >= 20 {
		t.Errorf("bare raft-wal ends at %d, %v; the flip was meant to cut it", last, err)
	}
	must(t, w.Close())

	for _, marks := range []string{"true", "old"} {
		t.Run("marks "+marks, func(t *testing.T) {
			d := newDisk()
			s := openOn(t, d)
			oldMarks := d.Contents(groupDir + "/high-water")
			for i := uint64(1); i <= 20; i++ {
				must(t, s.Log.StoreLog(entry(i, 0)))
			}
			closeStores(t, s)
			if marks == "old" {
				d.SetContents(groupDir+"/high-water", oldMarks)
			}
			name := groupDir + "/log/00000000000000000001-0000000000000001.wal"
			b := d.Contents(name)
			flipFrame(t, b, body(8))
			d.SetContents(name, b)
			_, err := storage.Open(groupDir, testConfig(d, storage.EngineWAL))
			if corrupt := corruptIn(t, err, ".wal"); corrupt.Index != 8 || corrupt.Offset == 0 {
				t.Errorf("want entry 8 and an offset: %v", err)
			}
			if !bytes.Equal(d.Contents(name), b) {
				t.Error("the damaged file was changed")
			}
		})
	}
}

// flipFrame flips a bit in the type of the frame that holds data, whose start is the last 8-byte
// boundary with frame type 1 before it.
func flipFrame(t *testing.T, b, data []byte) {
	t.Helper()
	for at := bytes.Index(b, data) &^ 7; at >= 0; at -= 8 {
		if b[at] == 1 && b[at+1] == 0 && b[at+2] == 0 && b[at+3] == 0 && b[at+4] > 30 && b[at+5] == 0 {
			b[at] ^= 0x40
			return
		}
	}
	t.Fatal("no frame found")
}

// Without its list of segments the library starts an empty log and deletes all segment files.
func TestTrapLostSegmentList(t *testing.T) {
	dir := t.TempDir()
	w := openBareWAL(t, dir, &metadb.BoltMetaDB{})
	for i := uint64(1); i <= 100; i += 20 {
		must(t, w.StoreLogs(entries(i, i+19, 1)))
	}
	must(t, w.DeleteRange(1, 60))
	must(t, w.Close())
	must(t, os.Remove(filepath.Join(dir, metadb.FileName)))
	before, err := filepath.Glob(filepath.Join(dir, "*.wal"))
	must(t, err)
	w = openBareWAL(t, dir, &metadb.BoltMetaDB{})
	if err := w.GetLog(100, &raft.Log{}); !errors.Is(err, raft.ErrLogNotFound) {
		t.Errorf("bare raft-wal: %v", err)
	}
	must(t, w.Close())
	for _, name := range before {
		if _, err := os.Stat(name); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("bare raft-wal kept %s: %v", name, err)
		}
	}
	// Ours: TestDeletedFiles and TestFlippedBits, file "segments".
}
