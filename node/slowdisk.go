package node

import (
	"fmt"
	"time"
)

const (
	// slowDiskMean is the mean time of an append, its sync included, from which on a disk counts as
	// slow. A sound disk takes milliseconds. A disk that hangs is the watchdog's, after
	// storage.WatchdogLimit.
	slowDiskMean = 500 * time.Millisecond
	// slowDiskLooks is how many looks in a row must find that. A look in which no append ended says
	// nothing.
	slowDiskLooks = 3
)

// appends are what the logs of a node have appended since their start.
type appends struct {
	count uint64
	took  time.Duration
}

// slowDisk tells a disk whose writes are slow for long from one that is slow for a moment. One
// goroutine uses it.
type slowDisk struct {
	last appends
	slow int // looks in a row
	mean time.Duration
}

// look compares the appends with those of the last look. known is false as long as nothing can be
// said that is new.
func (d *slowDisk) look(now appends) (slow, known bool) {
	last := d.last
	d.last = now
	if now.count <= last.count { // nothing ended, or a group began anew with a new log
		return false, false
	}
	d.mean = (now.took - last.took) / time.Duration(now.count-last.count) //nolint:gosec // far less
	if d.mean < slowDiskMean {
		d.slow = 0
		return false, true
	}
	d.slow++
	return true, d.slow >= slowDiskLooks
}

// observeAppends raises SlowDisk while the appends to the logs of all groups take long.
func (n *Node) observeAppends(d *slowDisk) {
	var now appends
	for _, g := range n.allGroups() {
		stats := g.storageStats()
		now.count += stats.Log.Append.Count
		now.took += stats.Log.Append.Sum
	}
	switch slow, known := d.look(now); {
	case !known:
	case slow:
		n.RaiseCondition(SlowDisk, fmt.Sprintf("a write to its log takes %v on average", d.mean.Round(time.Millisecond)))
	default:
		n.ClearCondition(SlowDisk)
	}
}
