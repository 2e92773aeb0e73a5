package node

import (
	"testing"
	"time"
)

// TestSlowDisk: only appends that are slow for several looks in a row count, and looks without
// appends say nothing.
func TestSlowDisk(t *testing.T) {
	type look struct {
		count       uint64
		each        time.Duration
		slow, known bool
	}
	fast, slow := time.Millisecond, slowDiskMean
	for name, looks := range map[string][]look{
		"fast": {{100, fast, false, true}, {100, fast, false, true}},
		"slow for long": {{1, slow, true, false}, {2, slow, true, false}, {1, slow, true, true}, {1, slow, true, true},
			{9, fast, false, true}},
		"slow, and idle": {{1, slow, true, false}, {0, 0, false, false}, {1, 4 * slow, true, false}, {0, 0, false, false},
			{1, slow, true, true}},
		"slow at times": {{1, slow, true, false}, {1, slow, true, false}, {50, fast, false, true}, {1, slow, true, false},
			{1, slow, true, false}},
		"one of many": {{1000, fast + slow/1000, false, true}},
	} {
		t.Run(name, func(t *testing.T) {
			var d slowDisk
			var now appends
			for i, l := range looks {
				now.count += l.count
				now.took += time.Duration(l.count) * l.each //nolint:gosec // small
				if slow, known := d.look(now); slow != l.slow || known != l.known {
					t.Errorf("look %d: slow %t, known %t; want %t, %t", i, slow, known, l.slow, l.known)
				}
			}
		})
	}
	t.Run("a log that began anew", func(t *testing.T) {
		d := slowDisk{last: appends{100, time.Second}}
		if _, known := d.look(appends{3, time.Hour}); known {
			t.Error("fewer appends than before are compared with them")
		}
	})
}

// TestSlowDiskIsACondition: a node whose log is slow says so, and no more when it has been fast
// again.
func TestSlowDiskIsACondition(t *testing.T) {
	n := openNode(t, testConfig(t, t.TempDir()))
	do(t, n, 0, put("orders", "x", 0))
	slow := slowDisk{slow: slowDiskLooks}
	slow.last.took = -time.Hour // each append since has taken long
	n.observeAppends(&slow)
	if all := n.Conditions(); len(all) != 1 || all[0].Kind != SlowDisk {
		t.Fatalf("its conditions are %+v, want SLOW_DISK", all)
	}
	do(t, n, 0, put("orders", "y", 0))
	slow.last.took += time.Hour // each append since has taken no time
	n.observeAppends(&slow)
	n.conditions.mu.Lock()
	defer n.conditions.mu.Unlock()
	if n.conditions.byKind[SlowDisk].clearedAt.IsZero() {
		t.Error("its log is fast again, and the condition goes on")
	}
}
