package conditions

import (
	"fmt"
	"time"
)

const (
	// slowDiskMean is the mean time of an append, its sync included, from which on a disk counts as
	// slow. A sound disk takes milliseconds. A disk that hangs is the watchdog's, after
	// disk.WatchdogLimit.
	slowDiskMean = 500 * time.Millisecond
	// slowDiskLooks is how many looks in a row must find that. A look in which no append ended says
	// nothing.
	slowDiskLooks = 3
)

// Appends are what the logs of a node have appended since their start.
type Appends struct {
	Count uint64
	// Took is the sum of their times, syncs included.
	Took time.Duration
}

// AppendTimes tells a disk whose writes are slow for long from one that is slow for a moment. One
// goroutine uses it.
type AppendTimes struct {
	last Appends
	slow int // looks in a row
	mean time.Duration
}

// look compares the appends with those of the last look. known is false as long as nothing can be
// said that is new.
func (d *AppendTimes) look(now Appends) (slow, known bool) {
	last := d.last
	d.last = now
	if now.Count <= last.Count { // nothing ended, or a group began anew with a new log
		return false, false
	}
	d.mean = (now.Took - last.Took) / time.Duration(now.Count-last.Count) //nolint:gosec // far less
	if d.mean < slowDiskMean {
		d.slow = 0
		return false, true
	}
	d.slow++
	return true, d.slow >= slowDiskLooks
}

// Observe compares the appends with those of the last call. It raises SlowDisk in the set to while
// appends take long.
func (d *AppendTimes) Observe(to *Set, now Appends) {
	switch slow, known := d.look(now); {
	case !known:
	case slow:
		to.Raise(SlowDisk, fmt.Sprintf("a write to its log takes %v on average", d.mean.Round(time.Millisecond)))
	default:
		to.Clear(SlowDisk)
	}
}
