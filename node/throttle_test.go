package node

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/belfrydb/belfry/node/storage/diskfault"
)

// What must not wait, or would let the log grow without end, is written without pauses.
func TestUrgentSnapshots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := uint64(1 << 40)
		cfg := testConfig(t, "/data")
		cfg.FS = diskfault.New()
		cfg.SnapshotBytes = 60_000
		cfg.diskFree = func(string) (uint64, error) { return free, nil }
		n := openNode(t, cfg)
		synctest.Wait() // else what the start has logged may have a snapshot taken meanwhile, and the low-water mark raised
		expect := func(what string, want bool) {
			t.Helper()
			if got := n.snapshotsUrgent(); got != want {
				t.Errorf("%s: snapshotsUrgent is %v", what, got)
			}
		}
		for _, left := range []struct {
			what   string
			free   uint64
			urgent bool
		}{
			{"there is room", 2 * n.cfg.DiskLowBytes, false},
			{"the disk is filling", 2*n.cfg.DiskLowBytes - 1, true},
			{"puts are refused", 0, true},
		} {
			if free = left.free; n.space.Check() != nil {
				t.Fatal("the space cannot be looked at")
			}
			expect(left.what, left.urgent)
		}
		if free = 1 << 40; n.space.Check() != nil {
			t.Fatal("the space cannot be looked at")
		}
		n.snapshotMutex.Lock() // as while another group's snapshot is taken
		puts := func(bytes int) {
			for range bytes / 1000 {
				do(t, n, 1, put("orders", strings.Repeat("x", 1000), 0))
			}
		}
		puts(55_000)
		expect("a snapshot is due and waits for its turn", false)
		puts(40_000)
		expect("half as much again is logged", true)
		n.snapshotMutex.Unlock()
		synctest.Wait()
		expect("it was taken", false)
		closeNode(t, n)
	})
}
