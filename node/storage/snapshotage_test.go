package storage_test

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/node/storage"
	"github.com/belfrydb/belfry/node/storage/disk"
)

// How old the newest snapshot is does not depend on which store wrote it: the one that is open, or
// one before it.
func TestSnapshotAgeOutlivesTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk()
		s := openOn(t, d)
		setTerm(t, s, 2)
		if at := s.Snapshots.Stats().NewestAt; !at.IsZero() {
			t.Errorf("without a snapshot one was written at %v", at)
		}
		for _, index := range []uint64{10, 20} {
			time.Sleep(time.Hour)
			want := time.Now()
			mustSnapshot(t, s, index, 2, snapshotData(index))
			time.Sleep(time.Hour)
			for range 2 { // in the running store and after opening it again
				if got := s.Snapshots.Stats(); !got.NewestAt.Equal(want) || got.NewestIndex != index {
					t.Errorf("the newest snapshot has index %d and was written at %v, want %d and %v", got.NewestIndex, got.NewestAt,
						index, want)
				}
				closeStores(t, s)
				s = openOn(t, d)
			}
		}
		closeStores(t, s)
	})
}

// On a real disk it is the time of the file, which a copy that keeps times has as well.
func TestSnapshotAgeIsTheFiles(t *testing.T) {
	dir := t.TempDir()
	cfg := testConfig(disk.OSFS{}, storage.EngineWAL)
	s, err := storage.Open(dir, cfg)
	must(t, err)
	setTerm(t, s, 2)
	mustSnapshot(t, s, 10, 2, snapshotData(10))
	closeStores(t, s)
	files, err := filepath.Glob(filepath.Join(dir, "snapshots", "*.snap"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	want := time.Unix(1_700_000_000, 0)
	must(t, os.Chtimes(files[0], time.Time{}, want))
	s, err = storage.Open(dir, cfg)
	must(t, err)
	defer closeStores(t, s)
	if got := s.Snapshots.Stats().NewestAt; !got.Equal(want) {
		t.Errorf("it was written at %v, want %v", got, want)
	}
}
