package storage_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/node/storage/disk"
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

func (v *volume) config() disk.SpaceConfig {
	return disk.SpaceConfig{
		Dir: "/data", ReserveBytes: 2 * mib, LowWaterBytes: 80 * mib, FS: v.Disk,
		Free: func(string) (uint64, error) { return v.free.Load(), v.err },
	}
}

func (v *volume) reserved() bool { return len(v.Contents("/data/RESERVE")) == 2*mib }

func TestSpace(t *testing.T) {
	v := newVolume(1000 * mib)
	s, err := disk.OpenSpace(v.config())
	must(t, err)
	for _, step := range []struct {
		free, snapshot                             uint64
		pressure, low, scarce, exhausted, reserved bool
	}{
		{free: 1000 * mib, reserved: true},
		{free: 90 * mib, reserved: true},
		{free: 90*mib - 1, pressure: true, reserved: true},
		{free: 80 * mib, pressure: true, reserved: true},
		{free: 80*mib - 1, pressure: true, low: true, reserved: true},
		{free: 85 * mib, pressure: true, low: true, reserved: true}, // not yet enough more
		{free: 90 * mib, pressure: true, reserved: true},
		{free: 100*mib - 1, pressure: true, reserved: true},
		{free: 100 * mib, reserved: true},
		{free: 20 * mib, pressure: true, low: true, reserved: true},
		{free: 20*mib - 1, pressure: true, low: true}, // given up
		{free: 10 * mib, pressure: true, low: true},
		{free: 10*mib - 1, pressure: true, low: true, scarce: true},
		{free: 5 * mib, pressure: true, low: true, scarce: true},
		{free: 5*mib - 1, pressure: true, low: true, scarce: true, exhausted: true},
		{free: 10*mib - 1, pressure: true, low: true, scarce: true, exhausted: true},
		{free: 10 * mib, pressure: true, low: true, scarce: true},
		{free: 20 * mib, pressure: true, low: true},
		{free: 90 * mib, pressure: true}, // no room for it yet
		{free: 92 * mib, pressure: true, reserved: true},
		{free: 92 * mib, snapshot: 12 * mib, pressure: true, reserved: true},
		{free: 92*mib - 1, snapshot: 12 * mib, pressure: true, low: true, reserved: true},
		{free: 102*mib - 1, snapshot: 12 * mib, pressure: true, low: true, reserved: true},
		{free: 102 * mib, snapshot: 12 * mib, pressure: true, reserved: true},
		// a snapshot needs no room among the last
		{free: 20 * mib, snapshot: 12 * mib, pressure: true, low: true, reserved: true},
	} {
		v.free.Store(step.free)
		s.SetSnapshotBytes(step.snapshot)
		must(t, s.Check())
		if s.Low() != step.low || s.Scarce() != step.scarce || s.Exhausted() != step.exhausted ||
			v.reserved() != step.reserved {
			t.Errorf("%+v: low %v, scarce %v, reserve held %v", step, s.Low(), s.Scarce(), v.reserved())
		}
		want := disk.SpaceStats{
			FreeBytes: step.free, LowWaterBytes: 80*mib + step.snapshot, Pressure: step.pressure, Low: step.low,
			Scarce: step.scarce, Exhausted: step.exhausted,
		}
		if step.reserved {
			want.ReserveBytes = 2 * mib
		}
		if got := s.Stats(); got != want {
			t.Errorf("%+v: stats %+v", step, got)
		}
	}
}

// Inodes have a mark of their own where their number is fixed, and the scarcer resource counts.
func TestSpaceOfInodes(t *testing.T) {
	v := newVolume(1000 * mib)
	cfg := v.config()
	var all, free uint64
	cfg.Inodes = func(string) (uint64, uint64, error) { return all, free, v.err }
	s, err := disk.OpenSpace(cfg)
	must(t, err)
	if s.Low() || s.Stats().LowWaterFiles != 0 {
		t.Errorf("without a limit: %+v", s.Stats())
	}
	all = 1 << 20
	for _, step := range []struct {
		free                             uint64
		pressure, low, scarce, exhausted bool
	}{
		{free: 1152}, {
			free: 1151, pressure: true,
		}, {free: 1023, pressure: true, low: true}, {free: 128, pressure: true, low: true},
		{
			free: 127, pressure: true, low: true, scarce: true,
		}, {free: 63, pressure: true, low: true, scarce: true, exhausted: true},
		{
			free: 127, pressure: true, low: true, scarce: true, exhausted: true,
		}, {free: 128, pressure: true, low: true, scarce: true},
		{
			free: 256, pressure: true, low: true,
		}, {free: 1151, pressure: true, low: true}, {free: 1152, pressure: true}, {free: 1280},
	} {
		free = step.free
		must(t, s.Check())
		want := disk.SpaceStats{
			FreeBytes: 1000 * mib, ReserveBytes: 2 * mib, LowWaterBytes: 80 * mib, FreeFiles: free, LowWaterFiles: 1024,
			Pressure: step.pressure, Low: step.low, Scarce: step.scarce, Exhausted: step.exhausted,
		}
		if got := s.Stats(); got != want {
			t.Errorf("%+v: stats %+v", step, got)
		}
	}
	free = 40
	must(t, s.Check())
	if got := s.Stats().Shortage(); got != "40 inodes of its disk are free, the mark is 1024" {
		t.Errorf("it says %q", got)
	}
	v.free.Store(1 * mib)
	free = 1023
	must(t, s.Check())
	if got := s.Stats().Shortage(); got != "1 MiB of its disk are free, the mark is 80 MiB" {
		t.Errorf("short of both, it says %q", got)
	}
	free = 1 << 19
	must(t, s.Check())
	if got := s.Stats(); got.Shortage() != "1 MiB of its disk are free, the mark is 80 MiB" || !got.Exhausted {
		t.Errorf("it says %q of %+v", got.Shortage(), got)
	}
	v.err = errors.New("no answer")
	if err := s.Check(); !errors.Is(err, v.err) {
		t.Errorf("a probe that fails: %v", err)
	}
}

func TestSpaceRelease(t *testing.T) {
	v := newVolume(1000 * mib)
	s, err := disk.OpenSpace(v.config())
	must(t, err)
	must(t, s.Release())
	must(t, s.Release())
	if v.reserved() || !s.Low() || !s.Scarce() {
		t.Errorf("after release: held %v, low %v, scarce %v", v.reserved(), s.Low(), s.Scarce())
	}
	// The reserve of an earlier process is found again.
	must(t, s.Check())
	v.free.Store(30 * mib)
	s, err = disk.OpenSpace(v.config())
	must(t, err)
	if s.Stats().ReserveBytes == 0 || !s.Low() {
		t.Errorf("after reopening: %+v", s.Stats())
	}
}

func TestSpaceFailures(t *testing.T) {
	v := &volume{Disk: newDisk(), err: errors.New("statfs")}
	if _, err := disk.OpenSpace(v.config()); !errors.Is(err, v.err) {
		t.Errorf("probe fails: %v", err)
	}
	if _, err := disk.OpenSpace(disk.SpaceConfig{}); err == nil {
		t.Error("no directory was accepted")
	}
}

// A quota may refuse the reserve although there is room. The node starts without it, and tries
// again now and then.
func TestSpaceWithoutReserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVolume(1000 * mib)
		attempts := 0
		v.SetHook(func(o diskfault.Op) error {
			if o.Kind == diskfault.OpAllocate {
				attempts++
				return diskfault.Full(o)
			}
			return nil
		})
		s, err := disk.OpenSpace(v.config())
		if err != nil || v.Contents("/data/RESERVE") != nil || s.Low() || s.Stats().ReserveBytes != 0 {
			t.Errorf("no room for the reserve: %v, file left %v, %+v", err, v.Contents("/data/RESERVE") != nil, s.Stats())
		}
		must(t, s.Check())
		if attempts != 1 {
			t.Errorf("%d attempts at once", attempts)
		}
		v.SetHook(nil)
		<-time.After(time.Minute)
		must(t, s.Check())
		if !v.reserved() {
			t.Error("the reserve was not tried again")
		}
	})
}

func TestDiskFullIsRecognized(t *testing.T) {
	for err, want := range map[error]bool{
		fmt.Errorf("writing: %w", syscall.ENOSPC): true, syscall.EDQUOT: true, syscall.EIO: false,
		diskfault.Full(diskfault.Op{}): true, nil: false,
	} {
		if disk.Full(err) != want {
			t.Errorf("%v: %v, want %v", err, !want, want)
		}
	}
}

func TestSpaceRunProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVolume(1000 * mib)
		s, err := disk.OpenSpace(v.config())
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
	s, err := disk.OpenSpace(disk.SpaceConfig{Dir: t.TempDir(), ReserveBytes: mib, LowWaterBytes: 1})
	must(t, err)
	if got := s.Stats(); got.FreeBytes == 0 || got.ReserveBytes != mib || s.Low() {
		t.Errorf("stats %+v", got)
	}
	must(t, s.Release())
}

// A full disk ends the group's writes with the cause in the error; the log is whole after a restart
// with space.
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
