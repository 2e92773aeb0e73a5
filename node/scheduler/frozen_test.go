package scheduler

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/fsm"
)

// TestAClockThatStandsStill just before a firing is not read all the time.
func TestAClockThatStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newShard(t)
		d.put("q", "one", fsm.ScheduleSpec{})
		stands := d.m.NextFiring() - 1
		var reads atomic.Int64
		d.s.cfg.Now = func() fsm.Time {
			reads.Add(1)
			return stands
		}
		d.lead(time.Second)
		if n := reads.Load(); n > int64(time.Second/waitMin)+10 || d.jobs("q") != 0 {
			t.Errorf("the clock was read %d times in a second, and %d jobs were put", n, d.jobs("q"))
		}
	})
}
