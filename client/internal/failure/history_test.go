package failure

import (
	"testing"
	"time"
)

func TestPauseGrowsAndIsBounded(t *testing.T) {
	r := History{last: &Error{}}
	for attempt, bound := range []time.Duration{50, 100, 200, 400, 800, 1600, 2000, 2000} {
		r.attempts = attempt + 1
		var longest time.Duration
		for range 1000 {
			longest = max(longest, r.Pause())
		}
		if bound *= time.Millisecond; longest > bound || longest < bound*8/10 {
			t.Errorf("after attempt %d the longest pause of many is %v, want nearly %v", attempt+1, longest, bound)
		}
	}
}
