package wire

import (
	"time"

	"github.com/belfrydb/belfry/fsm"
)

// DedupWindow returns how long ended ids should be remembered. The caller handles DedupForever.
func DedupWindow(s *fsm.Settings) time.Duration {
	if s.DedupWindowSet {
		return s.DedupWindow
	}
	return fsm.DefaultDedupWindow
}

// DedupHeld returns how long ended ids are really remembered: as long as the setting says, unless
// older ids were dropped.
func DedupHeld(s *fsm.Settings, since, now fsm.Time) time.Duration {
	age := max(0, now.Sub(since))
	if s.DedupForever {
		return age
	}
	return min(DedupWindow(s), age)
}

// Earlier returns the earlier of two times; 0 is no time.
func Earlier(a, b fsm.Time) fsm.Time {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
