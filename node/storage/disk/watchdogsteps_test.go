package disk

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestWatchdogCountsTimeThatTheProcessHas: a timer that went off late, because the process stood
// still, counts as one part of the limit and not as all the time that it is late.
func TestWatchdogCountsTimeThatTheProcessHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fires atomic.Int64
		w := NewWatchdog(time.Minute, func(string, time.Duration) { fires.Add(1) })
		v := w.watchStep("append")
		if watchSteps < 10 {
			t.Errorf("what the process misses counts as 1/%d of the limit, want a tenth at most", watchSteps)
		}
		for range watchSteps - 1 {
			v.step()
		}
		synctest.Wait()
		if fired := fires.Load(); fired != 0 {
			t.Fatalf("it fired %d times within %d parts of the limit", fired, watchSteps-1)
		}
		time.Sleep(time.Minute / watchSteps)
		synctest.Wait()
		if fired := fires.Load(); fired != 1 {
			t.Errorf("it fired %d times in all, want once", fired)
		}
		v.stopWatch()
		v.step() // the timer had gone off when the operation ended
		synctest.Wait()
		if fires.Load() != 1 {
			t.Error("it fired after the end")
		}
	})
}
