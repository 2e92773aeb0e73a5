package clock

import (
	"time"

	"golang.org/x/sys/unix"
)

// suspendedTime returns how long the machine was suspended since its boot, to within a millisecond.
// CLOCK_BOOTTIME runs while the machine is suspended; CLOCK_MONOTONIC, which Go's timers and
// time.Since use, does not. It returns false if the clocks cannot be read.
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
