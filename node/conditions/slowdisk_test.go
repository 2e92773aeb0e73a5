package conditions

import (
	"log/slog"
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
			var d AppendTimes
			var now Appends
			for i, l := range looks {
				now.Count += l.count
				now.Took += time.Duration(l.count) * l.each //nolint:gosec // small
				if slow, known := d.look(now); slow != l.slow || known != l.known {
					t.Errorf("look %d: slow %t, known %t; want %t, %t", i, slow, known, l.slow, l.known)
				}
			}
		})
	}
	t.Run("a log that began anew", func(t *testing.T) {
		d := AppendTimes{last: Appends{100, time.Second}}
		if _, known := d.look(Appends{3, time.Hour}); known {
			t.Error("fewer appends than before are compared with them")
		}
	})
}

// TestSlowDiskBeginsAndEnds: SlowDisk is raised while appends are slow, and cleared when they are
// fast again.
func TestSlowDiskBeginsAndEnds(t *testing.T) {
	set := NewSet(slog.New(slog.DiscardHandler))
	var times AppendTimes
	var now Appends
	for range slowDiskLooks {
		if all := set.Present(); len(all) > 0 {
			t.Fatalf("there are %+v too soon", all)
		}
		now.Count, now.Took = now.Count+1, now.Took+slowDiskMean
		times.Observe(set, now)
	}
	if all := set.Present(); len(all) != 1 || all[0].Kind != SlowDisk {
		t.Fatalf("there are %+v, want SLOW_DISK", all)
	}
	now.Count++
	times.Observe(set, now)
	if set.byKind[SlowDisk].clearedAt.IsZero() {
		t.Error("appends are fast again, and the condition goes on")
	}
}
