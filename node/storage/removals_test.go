package storage_test

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/node/storage"
	"github.com/belfrydb/belfry/node/storage/disk"
	"github.com/belfrydb/belfry/node/storage/diskfault"
)

// segments returns how many files of segments the group has.
func segments(t *testing.T, fsys disk.FS, dir string) (count int) {
	t.Helper()
	names, err := fsys.ReadDir(filepath.Join(dir, "log"))
	must(t, err)
	for _, name := range names {
		if strings.HasSuffix(name, ".wal") {
			count++
		}
	}
	return count
}

// Raft waits for a cut of the log, and so do appends: no file is removed in it. Tidy removes one at
// a time for as long as it may, and the next start does the rest.
func TestCutLeavesFilesToTidy(t *testing.T) {
	d := newDisk()
	s := openOn(t, d)
	appendEntries(t, s, 1, 600, 1)
	mustSnapshot(t, s, 500, 1, nil)
	d.SetHook(func(o diskfault.Op) error {
		if o.Kind == diskfault.OpRemove && strings.HasSuffix(o.Path, ".wal") {
			t.Errorf("%s is removed while others wait", o.Path)
		}
		return nil
	})
	before := segments(t, d, groupDir)
	must(t, s.Log.DeleteRange(1, 500))
	d.SetHook(nil)
	if got := segments(t, d, groupDir); got != before || before < 4 {
		t.Fatalf("of %d segments %d are there", before, got)
	}
	steps := 0
	s.Tidy(func(time.Duration) bool { steps++; return steps < 2 })
	if got := segments(t, d, groupDir); got != before-2 || steps != 2 {
		t.Errorf("after two steps %d of %d segments are there, and the rests were %d", got, before, steps)
	}
	closeStores(t, s)
	s = openOn(t, d)
	defer closeStores(t, s)
	if err := checkEntries(s, 501, 600); err != nil {
		t.Error(err)
	}
	if got := segments(t, d, groupDir); got > before-3 {
		t.Errorf("after the next start %d of %d segments are there", got, before)
	}
}

// Removing a large file at once would hold up the syncs of the log.
func TestLargeFilesAreCutInSteps(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "shard-1")
	s, err := storage.Open(dir, testConfig(disk.OSFS{}, storage.EngineWAL))
	must(t, err)
	defer closeStores(t, s)
	setTerm(t, s, 2)
	for _, index := range []uint64{10, 20, 30} {
		mustSnapshot(t, s, index, 2, bigData(9<<20))
	}
	steps := 0
	s.Tidy(func(time.Duration) bool { steps++; return true })
	if steps != 3 {
		t.Errorf("a file of nine MiB went in %d steps, want 3: 4, 4 and the rest", steps)
	}
	left, err := os.ReadDir(filepath.Join(dir, "snapshots"))
	if must(t, err); len(left) != 2 {
		t.Errorf("kept %v, want two", left)
	}
}

// A follower may take long over a snapshot that two others have replaced since.
func TestSnapshotThatIsReadIsNotCut(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "shard-1")
	s, err := storage.Open(dir, testConfig(disk.OSFS{}, storage.EngineWAL))
	must(t, err)
	defer closeStores(t, s)
	setTerm(t, s, 2)
	data := bigData(9 << 20)
	mustSnapshot(t, s, 10, 2, data)
	newest, _ := s.Snapshots.Newest()
	_, r, err := s.Snapshots.Open(newest.ID)
	must(t, err)
	for _, index := range []uint64{20, 30} {
		mustSnapshot(t, s, index, 2, nil)
	}
	s.Tidy(nil)
	got, err := io.ReadAll(r)
	if must(t, err); !bytes.Equal(got, data) {
		t.Errorf("%d bytes were read that are not the snapshot's %d", len(got), len(data))
	}
	must(t, r.Close())
}

// A reader that has read to the end when a snapshot is removed does not hold up the removal.
func TestSnapshotThatWasReadIsCut(t *testing.T) {
	s, err := storage.Open(filepath.Join(t.TempDir(), "shard-1"), testConfig(disk.OSFS{}, storage.EngineWAL))
	must(t, err)
	defer closeStores(t, s)
	setTerm(t, s, 2)
	mustSnapshot(t, s, 10, 2, bigData(9<<20))
	newest, _ := s.Snapshots.Newest()
	_, r, err := s.Snapshots.Open(newest.ID)
	must(t, err)
	for _, index := range []uint64{20, 30} {
		mustSnapshot(t, s, index, 2, nil)
	}
	must(t, r.Close())
	steps := 0
	s.Tidy(func(time.Duration) bool { steps++; return true })
	if steps != 3 {
		t.Errorf("nine MiB went in %d steps, want 3", steps)
	}
}

// uncut is a file system that opens no snapshot in order to cut it, or cuts none.
type uncut struct {
	disk.OSFS
	unopened bool
}

func (u *uncut) OpenFile(name string, flag int) (disk.File, error) {
	if flag != os.O_RDWR || !strings.HasSuffix(name, ".snap.tmp") {
		return u.OSFS.OpenFile(name, flag)
	}
	if u.unopened {
		return nil, syscall.EMFILE
	}
	f, err := u.OSFS.OpenFile(name, flag)
	return fullFile{f}, err
}

// fullFile is one that cannot be cut because that needs room.
type fullFile struct{ disk.File }

func (fullFile) Truncate(int64) error { return syscall.ENOSPC }

func TestFileThatCannotBeCutIsRemoved(t *testing.T) {
	for _, unopened := range []bool{false, true} {
		dir, fsys := filepath.Join(t.TempDir(), "shard-1"), &uncut{}
		s, err := storage.Open(dir, testConfig(fsys, storage.EngineWAL))
		must(t, err)
		setTerm(t, s, 2)
		for _, index := range []uint64{10, 20, 30} {
			mustSnapshot(t, s, index, 2, bigData(5<<20))
		}
		fsys.unopened = unopened
		s.Tidy(nil)
		left, err := os.ReadDir(filepath.Join(dir, "snapshots"))
		if must(t, err); len(left) != 2 {
			t.Errorf("not opened %v: kept %v, want two", unopened, left)
		}
		closeStores(t, s)
	}
}

// The next start of the group lists what is there and removes it.
func TestCloseWaitsForTheStepOfTidy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk()
		s := openOn(t, d)
		setTerm(t, s, 2)
		for _, index := range []uint64{10, 20, 30} {
			mustSnapshot(t, s, index, 2, nil)
		}
		goOn := make(chan struct{})
		d.SetHook(func(o diskfault.Op) error {
			if o.Kind == diskfault.OpRemove {
				<-goOn
			}
			return nil
		})
		ended := make(chan struct{}, 2)
		go func() { s.Tidy(nil); ended <- struct{}{} }()
		synctest.Wait()
		go func() { closeStores(t, s); ended <- struct{}{} }()
		synctest.Wait()
		if len(ended) > 0 {
			t.Error("the group is closed while a file of it is removed")
		}
		close(goOn)
		<-ended
		<-ended
		d.SetHook(nil)
		closeStores(t, openOn(t, d))
	})
}
