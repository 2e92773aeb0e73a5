package storage_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/node/storage"
	"github.com/belfrydb/belfry/node/storage/disk"
	"github.com/belfrydb/belfry/node/storage/diskfault"
)

const marksName = groupDir + "/high-water"

// The mark is synced at the opening, then with appends at most as often as configured, and always
// before a cut.
func TestMarkSyncPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // no time passes but by now
		d := newDisk()
		now := time.Unix(1000, 0)
		cfg := testConfig(d, storage.EngineWAL)
		cfg.Now = func() time.Time { return now }
		cfg.MarkSyncEvery = time.Second
		s, err := storage.Open(groupDir, cfg)
		must(t, err)
		defer closeStores(t, s)
		syncs := 0
		d.SetHook(func(o diskfault.Op) error {
			if o.Kind == diskfault.OpSync && o.Path == marksName {
				syncs++
			}
			return nil
		})
		for i, step := range []struct {
			do    func() error
			after time.Duration
			want  int
		}{
			{func() error { return s.Log.StoreLog(entry(1, 0)) }, 0, 0},
			{func() error { return s.Log.StoreLog(entry(2, 0)) }, 999 * time.Millisecond, 0},
			{func() error { return s.Log.StoreLog(entry(3, 0)) }, time.Millisecond, 1},
			{func() error { return s.Log.DeleteRange(3, 3) }, 0, 2},
			{func() error { return takeSnapshot(s.Snapshots, 2, 0, nil) }, 0, 3},
			{func() error { return s.Log.DeleteRange(1, 1) }, 0, 3}, // a compaction does not lower the mark
		} {
			now = now.Add(step.after)
			must(t, step.do())
			if syncs != step.want {
				t.Errorf("step %d: %d syncs of the mark, want %d", i, syncs, step.want)
			}
		}
	})
}

// The mark of the last append is synced when its time has come though no other append follows: rot
// in that batch and a power cut after it would look like a write that was torn and never
// acknowledged.
func TestMarkIsSyncedWithoutAnotherAppend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk()
		cfg := testConfig(d, storage.EngineWAL)
		cfg.MarkSyncEvery = time.Second
		s, err := storage.Open(groupDir, cfg)
		must(t, err)
		setTerm(t, s, 1)
		must(t, s.Log.StoreLogs(entries(1, 5, 1)))
		must(t, s.Log.StoreLogs(entries(6, 8, 1)))
		<-time.After(cfg.MarkSyncEvery)
		synctest.Wait()
		cut := d.Fork(diskfault.LoseAll, diskfault.LoseNames)
		closeStores(t, s)
		const name = groupDir + "/log/00000000000000000001-0000000000000001.wal"
		cut.Flip(name, int64(bytes.Index(cut.Contents(name), body(7))), 3)
		_, err = storage.Open(groupDir, testConfig(cut, storage.EngineWAL))
		if corrupt := corruptIn(t, err, ".wal"); corrupt.Index != 6 {
			t.Error(err)
		}
	})
}

// A sync of the mark that fails beside the appends fails the group as one of an append does.
func TestLateMarkSyncFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk()
		cfg := testConfig(d, storage.EngineWAL)
		cfg.MarkSyncEvery = time.Second
		var fatal []error
		cfg.OnFatal = func(err error) { fatal = append(fatal, err) }
		s, err := storage.Open(groupDir, cfg)
		must(t, err)
		must(t, s.Log.StoreLog(entry(1, 0)))
		must(t, s.Log.StoreLog(entry(2, 0)))
		d.SetHook(func(o diskfault.Op) error {
			if o.Kind == diskfault.OpSync && o.Path == marksName {
				return diskfault.Broken(o)
			}
			return nil
		})
		<-time.After(cfg.MarkSyncEvery)
		synctest.Wait()
		d.SetHook(nil)
		if err := s.Log.StoreLog(entry(3, 0)); !errors.Is(err, disk.ErrFailed) || len(fatal) != 1 {
			t.Errorf("the next append gives %v; told %v", err, fatal)
		}
		_ = s.Close() // it has failed
	})
}

// Either slot may rot without a refusal or a mark that is too high; both together may not.
func TestMarkSlots(t *testing.T) {
	d := newDisk()
	s := openOn(t, d)
	setTerm(t, s, 1)
	must(t, s.Log.StoreLogs(entries(1, 20, 1)))
	must(t, s.Log.DeleteRange(11, 20)) // both slots were above what is left
	closeStores(t, s)
	for _, offset := range []int64{20, 4096 + 20} {
		c := d.Clone()
		c.Flip(marksName, offset, 3)
		s := openOn(t, c)
		must(t, checkEntries(s, 1, 10))
		closeStores(t, s)
	}
	d.Flip(marksName, 20, 3)
	d.Flip(marksName, 4096+20, 3)
	_, err := storage.Open(groupDir, testConfig(d, storage.EngineWAL))
	wantCorrupt(t, err, "high-water")
}

// A log that lost its end is damaged, however clean the end looks.
func TestMarkFindsALostEnd(t *testing.T) {
	d := newDisk()
	s := openOn(t, d)
	appendEntries(t, s, 1, 10, 1)
	closeStores(t, s)
	short := d.Clone()
	s = openOn(t, d)
	appendEntries(t, s, 11, 20, 1)
	closeStores(t, s)
	for _, name := range d.Files() {
		if strings.HasSuffix(name, ".wal") {
			d.SetContents(name, short.Contents(name))
		}
	}
	_, err := storage.Open(groupDir, testConfig(d, storage.EngineWAL))
	if corrupt := corruptIn(t, err, ".wal"); corrupt.Index != 11 {
		t.Error(err)
	}
}
