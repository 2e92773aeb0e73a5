package storage_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/node/storage"
	"github.com/belfrydb/belfry/node/storage/diskfault"
)

const mib = 1 << 20

// volume is a disk whose free space the test sets.
type volume struct {
	*diskfault.Disk
	free atomic.Uint64
	err  error
}

func newVolume(free uint64) *volume {
	v := &volume{Disk: newDisk()}
	v.free.Store(free)
	return v
}

func (v *volume) config() storage.SpaceConfig {
	return storage.SpaceConfig{
		Dir: "/data", ReserveBytes: 2 * mib, LowWaterBytes: 80 * mib, FS: v.Disk,
		Free: func(string) (uint64, error) { return v.free.Load(), v.err },
	}
}

func (v *volume) reserved() bool { return len(v.Contents("/data/RESERVE")) == 2*mib }

func TestSpace(t *testing.T) {
	v := newVolume(1000 * mib)
	s, err := storage.OpenSpace(v.config())
	must(t, err)
	for _, step := range []struct {
		free          uint64
		low, reserved bool
	}{
		{1000 * mib, false, true},
		{80 * mib, false, true},
		{80*mib - 1, true, true},
		{85 * mib, true, true}, // not yet enough more
		{90 * mib, false, true},
		{20 * mib, true, true},
		{20*mib - 1, true, false}, // given up
		{22 * mib, true, false},
		{90 * mib, false, false}, // no room for it yet
		{92 * mib, false, true},
	} {
		v.free.Store(step.free)
		must(t, s.Check())
		if s.Low() != step.low || v.reserved() != step.reserved {
			t.Errorf("%d free: low %v, reserve held %v, want %v, %v", step.free, s.Low(), v.reserved(), step.low, step.reserved)
		}
		if got := s.Stats(); got.FreeBytes != step.free || got.Low != step.low || (got.ReserveBytes > 0) != step.reserved {
			t.Errorf("%d free: stats %+v", step.free, got)
		}
	}
}

func TestSpaceRelease(t *testing.T) {
	v := newVolume(1000 * mib)
	s, err := storage.OpenSpace(v.config())
	must(t, err)
	must(t, s.Release())
	must(t, s.Release())
	if v.reserved() || !s.Low() {
		t.Errorf("after release: held %v, low %v", v.reserved(), s.Low())
	}
	// The reserve of an earlier process is found again.
	must(t, s.Check())
	v.free.Store(30 * mib)
	s, err = storage.OpenSpace(v.config())
	must(t, err)
	if s.Stats().ReserveBytes == 0 || !s.Low() {
		t.Errorf("after reopening: %+v", s.Stats())
	}
}

func TestSpaceFailures(t *testing.T) {
	v := &volume{Disk: newDisk(), err: errors.New("statfs")}
	if _, err := storage.OpenSpace(v.config()); !errors.Is(err, v.err) {
		t.Errorf("probe fails: %v", err)
	}
	if _, err := storage.OpenSpace(storage.SpaceConfig{}); err == nil {
		t.Error("no directory was accepted")
	}
	v = newVolume(1000 * mib)
	v.SetHook(func(o diskfault.Op) error {
		if o.Kind == diskfault.OpAllocate {
			return diskfault.Full(o)
		}
		return nil
	})
	if _, err := storage.OpenSpace(v.config()); err == nil || v.Contents("/data/RESERVE") != nil {
		t.Errorf("no room for the reserve: %v, file left %v", err, v.Contents("/data/RESERVE") != nil)
	}
}

func TestSpaceRunProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVolume(1000 * mib)
		s, err := storage.OpenSpace(v.config())
		must(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.Run(ctx) }()
		synctest.Wait()
		v.free.Store(1)
		<-time.After(1500 * time.Millisecond)
		if !s.Low() {
			t.Error("Run did not notice")
		}
		cancel()
		must(t, <-done)
	})
}

func TestSpaceOnTheRealDisk(t *testing.T) {
	s, err := storage.OpenSpace(storage.SpaceConfig{Dir: t.TempDir(), ReserveBytes: mib, LowWaterBytes: 1})
	must(t, err)
	if got := s.Stats(); got.FreeBytes == 0 || got.ReserveBytes != mib || s.Low() {
		t.Errorf("stats %+v", got)
	}
	must(t, s.Release())
}

// A full disk ends the group's writes with the cause in the error; the log is whole after a restart with space.
func TestFullDiskInAppend(t *testing.T) {
	d := newDisk()
	s := openOn(t, d)
	appendEntries(t, s, 1, 10, 1)
	d.SetHook(func(o diskfault.Op) error {
		if o.Kind == diskfault.OpWrite && strings.HasSuffix(o.Path, ".wal") {
			return diskfault.Full(o)
		}
		return nil
	})
	if err := s.Log.StoreLog(entry(11, 1)); err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("append to a full disk: %v", err)
	}
	d.SetHook(nil)
	closeStores(t, s)
	s = openOn(t, d)
	defer closeStores(t, s)
	must(t, checkEntries(s, 1, 10))
}
