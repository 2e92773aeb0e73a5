package clock

import (
	"time"

	"golang.org/x/sys/unix"
)

// suspendedTime returns for how long the machine was suspended since it was booted, to within a millisecond: CLOCK_BOOTTIME runs then, and
// CLOCK_MONOTONIC, which Go's timers and time.Since use, does not. It reports false if it cannot be told.
func suspendedTime() (time.Duration, bool) {
	const exact = time.Millisecond
	for range 3 {
		var before, boot, after unix.Timespec
		if unix.ClockGettime(unix.CLOCK_MONOTONIC, &before) != nil || unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot) != nil ||
			unix.ClockGettime(unix.CLOCK_MONOTONIC, &after) != nil {
			return 0, false
		}
		if time.Duration(after.Nano()-before.Nano()) <= exact {
			return time.Duration(boot.Nano() - before.Nano()), true
		}
	}
	return 0, false
}
