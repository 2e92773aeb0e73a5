package node

import (
	"testing"
	"time"

	"github.com/belfrydb/belfry/node/conditions"
)

// TestDiskPressure: the condition comes before puts are refused, and says what is.
func TestDiskPressure(t *testing.T) {
	n, f := openOnDisk(t, t.TempDir())
	for _, step := range []struct {
		free uint64
		says string
	}{{1000, ""}, {289, ""}, {287, "below it puts are refused"}, {255, "puts are refused"}, {63, "puts are refused"},
		{31, "all but acks, cancels and purges is refused"},
		{15, "all that changes something is refused, and its replicas take no entries"}} {
		f.set(t, n, 1000)
		f.set(t, n, step.free)
		fresh := conditions.NewSet(n.cfg.Logger)
		fresh.ObserveSpace(n.space.Stats())
		all := fresh.Present()
		if step.says == "" {
			if len(all) > 0 {
				t.Errorf("%d MiB free: %+v", step.free, all)
			}
			continue
		}
		want := n.space.Stats().Shortage() + ": " + step.says
		n.observeSpace()
		for _, all := range [][]Condition{all, n.Status().Conditions} {
			if len(all) != 1 || all[0].Kind != DiskPressure || all[0].Message != want {
				t.Errorf("%d MiB free: %+v, want one that says %q", step.free, all, want)
			}
		}
	}
}

// TestSlowDiskIsACondition: a node whose log is slow says so.
func TestSlowDiskIsACondition(t *testing.T) {
	n := openNode(t, testConfig(t, t.TempDir()))
	do(t, n, 0, put("orders", "x", 0))
	var times conditions.AppendTimes
	for range 3 {
		// Each append since then has taken long.
		times.Observe(n.conditions, conditions.Appends{Took: -time.Hour})
		if all := n.Conditions(); len(all) > 0 {
			t.Errorf("its conditions are %+v before three looks in a row were slow", all)
		}
		n.observeAppends(&times)
	}
	if all := n.Conditions(); len(all) != 1 || all[0].Kind != SlowDisk {
		t.Fatalf("its conditions are %+v, want SLOW_DISK", all)
	}
}
