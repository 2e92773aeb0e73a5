package conditions

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// TestConditionsEndLate: a condition ends only when its cause has been gone for a while, so that
// leaderships do not go back and forth.
func TestConditionsEndLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewSet(slog.New(slog.DiscardHandler))
		c.Clear(SlowDisk)
		if all := c.Present(); len(all) > 0 {
			t.Errorf("what was never raised is there: %+v", all)
		}
		begun := time.Now()
		c.Raise(Unreachable, "first")
		c.Raise(DiskPressure, "full")
		time.Sleep(time.Second)
		c.Raise(Unreachable, "second")
		all := c.Present()
		if len(all) != 2 || all[0].Kind != DiskPressure || all[1].Kind != Unreachable {
			t.Fatalf("raised are %+v", all)
		}
		if got := all[1]; got.Message != "second" || !got.Since.Equal(begun) {
			t.Errorf("raised again it is %+v", got)
		}
		for range 5 { // it comes and goes
			c.Clear(Unreachable)
			time.Sleep(hold - time.Second)
			c.Clear(Unreachable) // the first counts
			c.Raise(Unreachable, "third")
		}
		if all := c.Present(); len(all) != 2 {
			t.Errorf("one that comes and goes has ended: %+v", all)
		}
		c.Clear(Unreachable)
		time.Sleep(hold - time.Nanosecond)
		if all := c.Present(); len(all) != 2 {
			t.Errorf("it ended too soon: %+v", all)
		}
		c.Clear(Unreachable)
		time.Sleep(time.Nanosecond)
		if all := c.Present(); len(all) != 1 || all[0].Kind != DiskPressure {
			t.Errorf("afterwards there are %+v", all)
		}
	})
}
