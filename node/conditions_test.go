package node

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestConditionsEndLate: a condition ends only when its cause has been gone for a while, so that
// leaderships do not go back and forth.
func TestConditionsEndLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConditions(slog.New(slog.DiscardHandler))
		c.clear(SlowDisk)
		if all := c.present(); len(all) > 0 {
			t.Errorf("what was never raised is there: %+v", all)
		}
		begun := time.Now()
		c.raise(Unreachable, "first")
		c.raise(DiskPressure, "full")
		time.Sleep(time.Second)
		c.raise(Unreachable, "second")
		all := c.present()
		if len(all) != 2 || all[0].Kind != DiskPressure || all[1].Kind != Unreachable {
			t.Fatalf("raised are %+v", all)
		}
		if got := all[1]; got.Message != "second" || !got.Since.Equal(begun) {
			t.Errorf("raised again it is %+v", got)
		}
		for range 5 { // it comes and goes
			c.clear(Unreachable)
			time.Sleep(conditionHold - time.Second)
			c.clear(Unreachable) // the first counts
			c.raise(Unreachable, "third")
		}
		if all := c.present(); len(all) != 2 {
			t.Errorf("one that comes and goes has ended: %+v", all)
		}
		c.clear(Unreachable)
		time.Sleep(conditionHold - time.Nanosecond)
		if all := c.present(); len(all) != 2 {
			t.Errorf("it ended too soon: %+v", all)
		}
		c.clear(Unreachable)
		time.Sleep(time.Nanosecond)
		if all := c.present(); len(all) != 1 || all[0].Kind != DiskPressure {
			t.Errorf("afterwards there are %+v", all)
		}
	})
}

// TestDiskPressure: the condition comes before puts are refused, and says what is.
func TestDiskPressure(t *testing.T) {
	n, f := openOnDisk(t, t.TempDir())
	for _, step := range []struct {
		free uint64
		says string
	}{{1000, ""}, {289, ""}, {287, "below it puts are refused"}, {255, "puts are refused"}, {63, "puts are refused"},
		{31, "all but acks, cancels and purges is refused"},
		{15, "all that changes something is refused, and its replicas take no entries"}} {
		n.conditions.mu.Lock()
		clear(n.conditions.byKind)
		n.conditions.mu.Unlock()
		f.set(t, n, 1000)
		f.set(t, n, step.free)
		n.observeSpace()
		all := n.Status().Conditions
		switch {
		case step.says == "" && len(all) > 0:
			t.Errorf("%d MiB free: %+v", step.free, all)
		case step.says != "" && (len(all) != 1 || all[0].Kind != DiskPressure ||
			!strings.HasSuffix(all[0].Message, ": "+step.says)):
			t.Errorf("%d MiB free: %+v, want one that ends with %q", step.free, all, step.says)
		}
	}
}
