//go:build !linux

package clock

import "time"

// suspendedTime reports that it cannot be told for how long the machine was suspended: the wall clock shows it, see nodeClock.
func suspendedTime() (time.Duration, bool) { return 0, false }
