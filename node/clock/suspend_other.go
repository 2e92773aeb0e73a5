//go:build !linux

package clock

import "time"

// suspendedTime returns false: the time is unknown here, and only the wall clock shows it. See
// Node.
func suspendedTime() (time.Duration, bool) { return 0, false }
