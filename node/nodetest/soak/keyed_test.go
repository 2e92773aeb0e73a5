package soak

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/belfrydb/belfry/fsm"
)

// TestNewSchedule: callers say by which time they found the first firing. Some of their clocks are wrong,
// so that a leader finds another one.
func TestNewSchedule(t *testing.T) {
	c := &client{random: rand.New(rand.NewPCG(1, 2))}
	now := fsm.Time(time.Hour + time.Millisecond)
	right, ahead := 0, 0
	for range 100 {
		put := c.newSchedule("s", now)
		switch by := put.NextAfter.Sub(now); {
		case by == 0:
			right++
		case by > fsm.CallerAheadMax:
			ahead++
		default:
			t.Errorf("the clock of a caller is ahead by %v", by)
		}
		if next, _ := nominal(&put.Spec, put.NextAfter); put.Next != next {
			t.Errorf("the first firing after %d is %d, want %d", put.NextAfter, put.Next, next)
		}
	}
	if right < 50 || ahead < 10 {
		t.Errorf("%d callers have a right clock, %d one that is ahead", right, ahead)
	}
}
