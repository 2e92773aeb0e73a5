package storage_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belfrydb/belfry/node/storage"
	"github.com/belfrydb/belfry/node/storage/disk"
	"github.com/belfrydb/belfry/node/storage/diskfault"
)

// hang returns a hook that blocks the steps of a kind on files whose name contains part, and what
// ends it.
func hang(kind diskfault.Kind, part string) (diskfault.Hook, func()) {
	release := make(chan struct{})
	return func(o diskfault.Op) error {
		if o.Kind == kind && strings.Contains(o.Path, part) {
			<-release
		}
		return nil
	}, func() { close(release) }
}

func TestWatchdogFiresOnAHungDisk(t *testing.T) {
	for _, tc := range []struct {
		name string
		kind diskfault.Kind
		file string
		do   func(*storage.Stores) error
		want string
	}{
		{"append", diskfault.OpSync, ".wal", func(s *storage.Stores) error {
			return s.Log.StoreLog(entry(11, 1))
		}, "append to log"},
		{"vote", diskfault.OpSync, "stable", func(s *storage.Stores) error {
			return vote(s.Stable, 3, "b")
		}, "write " + groupDir + "/stable"},
		{"cut", diskfault.OpSync, "high-water", func(s *storage.Stores) error { return s.Log.DeleteRange(9, 10) }, "cut log"},
		{"snapshot write", diskfault.OpWrite, ".snap", func(s *storage.Stores) error {
			return takeSnapshot(s.Snapshots, 10, 1, nil)
		}, "write "},
		{"snapshot sync", diskfault.OpSync, ".snap", func(s *storage.Stores) error {
			return takeSnapshot(s.Snapshots, 10, 1, nil)
		}, "sync "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDisk()
				fired := make(chan string, 1)
				start := time.Now()
				cfg := testConfig(d, storage.EngineWAL)
				cfg.Watchdog = disk.NewWatchdog(0, func(op string, limit time.Duration) {
					if waited := time.Since(start); waited != disk.WatchdogLimit || limit != disk.WatchdogLimit {
						t.Errorf("fired after %v with limit %v", waited, limit)
					}
					fired <- op
				})
				s, err := storage.Open(groupDir, cfg)
				must(t, err)
				appendEntries(t, s, 1, 10, 1)
				hook, release := hang(tc.kind, tc.file)
				d.SetHook(hook)
				done := make(chan error)
				go func() { done <- tc.do(s) }()
				// The writer is stuck in the disk; the watchdog's own goroutine must get here.
				if op := <-fired; !strings.HasPrefix(op, tc.want) {
					t.Errorf("fired for %q, want %q", op, tc.want)
				}
				d.SetHook(nil)
				release()
				must(t, <-done)
				closeStores(t, s)
			})
		})
	}
}

func TestWatchdogIsQuietOnASlowDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk()
		var fired []string
		cfg := testConfig(d, storage.EngineWAL)
		cfg.Watchdog = disk.NewWatchdog(2*time.Second, func(op string, _ time.Duration) { fired = append(fired, op) })
		s, err := storage.Open(groupDir, cfg)
		must(t, err)
		d.SetHook(func(o diskfault.Op) error {
			if o.Kind == diskfault.OpSync && strings.HasSuffix(o.Path, ".wal") {
				<-time.After(1900 * time.Millisecond)
			}
			return nil
		})
		for i := uint64(1); i <= 20; i++ {
			must(t, s.Log.StoreLog(entry(i, 0)))
		}
		d.SetHook(nil)
		closeStores(t, s)
		if len(fired) > 0 {
			t.Errorf("fired for %q", fired)
		}
		if got := s.Stats().Log.Append; got.Max < 1900*time.Millisecond || got.Count != 20 {
			t.Errorf("latencies %+v", got)
		}
	})
}

func TestNilWatchdogWatchesNothing(t *testing.T) {
	var w *disk.Watchdog
	w.Begin("write")()
}

func TestLatencyBuckets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk()
		s := openOn(t, d)
		delays := []time.Duration{10 * time.Microsecond, 33 * time.Microsecond, 5 * time.Millisecond, 40 * time.Second}
		i := 0
		d.SetHook(func(o diskfault.Op) error {
			if o.Kind == diskfault.OpSync && strings.HasSuffix(o.Path, ".wal") {
				<-time.After(delays[i])
				i++
			}
			return nil
		})
		for i := range delays {
			must(t, s.Log.StoreLog(entry(uint64(i)+1, 0)))
		}
		d.SetHook(nil)
		got := s.Stats().Log.Append
		closeStores(t, s)
		var want [storage.LatencyBuckets]uint64
		want[0], want[1], want[8], want[storage.LatencyBuckets-1] = 1, 1, 1, 1
		if diff := cmp.Diff(want, got.Buckets); diff != "" {
			t.Errorf("buckets (-want +got):\n%s", diff)
		}
		if bound := storage.LatencyBound(8); bound <= 5*time.Millisecond || storage.LatencyBound(7) > 5*time.Millisecond {
			t.Errorf("bucket 8 ends at %v", bound)
		}
	})
}
