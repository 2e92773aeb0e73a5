package clock

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belfrydb/belfry/fsm"
)

// DefaultBound is how far the clocks of nodes may be apart by default.
const DefaultBound = 500 * time.Millisecond

// Source is the source of time. Its methods may be called from any goroutine.
type Source interface {
	// Wall returns the wall clock as nanoseconds since the Unix epoch. It may step.
	Wall() fsm.Time
	// Monotonic returns the time since some fixed moment of this process. It never steps back. It
	// should go on while the machine is suspended; where it does not, the wall clock shows what it has
	// missed.
	Monotonic() time.Duration
}

// System returns the clock of the operating system.
func System() Source {
	c := &systemClock{start: time.Now()}
	c.before, _ = suspendedTime()
	return c
}

// systemClock reads the two clocks that package time holds together in one value, and adds to the
// monotonic one what it misses.
type systemClock struct {
	start  time.Time
	before time.Duration // that the machine had been suspended at the start
	missed atomic.Int64  // the time suspended since, as far as it is counted
	// checked is the time since start when the suspended time was read last, and distance how far the
	// wall clock was ahead of that time.
	checked, distance atomic.Int64
}

// Wall implements Source.
func (*systemClock) Wall() fsm.Time { return fsm.Time(time.Now().UnixNano()) }

// Monotonic implements Source.
func (c *systemClock) Monotonic() time.Duration {
	now := time.Now()
	since := now.Sub(c.start)
	if distance := now.UnixNano() - int64(since); c.mayHaveMissed(since, distance) {
		if total, ok := suspendedTime(); ok {
			c.resumed(total - c.before)
		}
		c.distance.Store(distance) // after it is counted, for other readers
		c.checked.Store(int64(since))
	}
	return since + time.Duration(c.missed.Load())
}

// suspendedCheck is how often the suspended time is read at least.
const suspendedCheck = 100 * time.Millisecond

// mayHaveMissed reports whether the machine may have been suspended since the suspended time was
// read last. A suspension moves the wall clock ahead of the monotonic one, so to read the two is
// enough: they cost a fraction of the system calls that read the suspended time. If the wall clock
// is set back by as much at the same moment, the suspension is found after suspendedCheck.
func (c *systemClock) mayHaveMissed(since time.Duration, distance int64) bool {
	moved := time.Duration(distance - c.distance.Load())
	return since-time.Duration(c.checked.Load()) >= suspendedCheck || moved.Abs() >= suspendedLeast/2
}

// resumed counts a suspension. One shorter than suspendedLeast may be a measurement error, and is
// not counted.
func (c *systemClock) resumed(total time.Duration) {
	for {
		missed := c.missed.Load()
		if int64(total)-missed < int64(suspendedLeast) || c.missed.CompareAndSwap(missed, int64(total)) {
			return
		}
	}
}

const (
	// slewPerMillion is how fast a clock is slewed towards the wall clock: 500 microseconds a second.
	slewPerMillion = 500
	// slewStep is the least time between two corrections, so that each is more than a few nanoseconds.
	slewStep = time.Millisecond
	// Recheck bounds each sleep towards a shard time. A timer does not notice that the clock was
	// anchored anew, and does not run while the machine is suspended.
	Recheck = time.Second
	// suspendedLeast is the shortest suspension that is counted.
	suspendedLeast = 10 * time.Millisecond
	// clockGapMax is how far the wall clock may be ahead of the last timestamp when the node starts.
	clockGapMax = 30 * 24 * time.Hour
)

// Shard gives the timestamps of one shard: an anchor plus the monotonic time since, so that a step
// of the wall clock does not reach them.
//
// Timestamps never decrease. If the clock is ahead of the wall clock, or behind it by less than
// half the bound, it is slewed towards it. If it is further behind (a suspended machine, a late
// first synchronization), it is anchored anew at once. The wall clock that it follows is that of
// Node, which steps only when the voters agree.
type Shard struct {
	clock Source
	bound time.Duration

	mu         sync.Mutex
	anchor     fsm.Time
	anchorMono time.Duration
	last       fsm.Time
}

// NewShard returns a clock that is anchored at the wall clock.
func NewShard(clock Source, bound time.Duration) *Shard {
	return &Shard{clock: clock, bound: bound, anchor: clock.Wall(), anchorMono: clock.Monotonic()}
}

// Stamp returns the timestamp of the next entry.
func (c *Shard) Stamp() fsm.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = max(c.last, c.read())
	return c.last
}

// Now returns the timestamp that an entry would get now.
func (c *Shard) Now() fsm.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return max(c.last, c.read())
}

// Begin anchors the clock for a new leader, whose node's clock is right. Timestamps go on from that
// clock, or from floor, the clock of the machine, if it is later. The earlier anchor does not
// count: the node's clock may have been wrong then.
func (c *Shard) Begin(floor fsm.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.anchor, c.anchorMono, c.last = max(floor, c.clock.Wall()), c.clock.Monotonic(), floor
}

// Raise makes every later timestamp at least floor. Time goes on from there.
func (c *Shard) Raise(floor fsm.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if floor > c.read() {
		c.anchor, c.anchorMono = floor, c.clock.Monotonic()
	}
	c.last = max(c.last, floor)
}

// Lower sets the clock back to the time that the machine's clock was reset to. Only this makes
// timestamps decrease.
func (c *Shard) Lower(to fsm.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.anchor, c.anchorMono, c.last = to, c.clock.Monotonic(), to
}

// readBoth reads a clock. A Node reads its monotonic clock for its wall clock anyway; reading both
// costs three system calls.
func readBoth(c Source) (mono time.Duration, wall fsm.Time) {
	if n, ok := c.(*Node); ok {
		reading, mono := n.Read()
		return mono, reading.Stamp
	}
	return c.Monotonic(), c.Wall()
}

// read moves the anchor to the present and returns it. mu is held.
func (c *Shard) read() fsm.Time {
	mono, wall := readBoth(c.clock)
	elapsed := mono - c.anchorMono
	t := c.anchor.Add(max(0, elapsed))
	offset := t.Sub(wall)
	if offset < -c.bound/2 {
		c.anchor, c.anchorMono = wall, mono
		return wall
	}
	if elapsed < slewStep {
		return t
	}
	t = slewed(t, wall, elapsed)
	c.anchor, c.anchorMono = t, mono
	return t
}

// Check returns an error if the wall clock contradicts newest, the latest timestamp of the node's
// shards; zero for none.
func Check(wall, newest fsm.Time, bound time.Duration) error {
	if newest == 0 {
		return nil
	}
	gap := wall.Sub(newest)
	at := func(t fsm.Time) string { return time.Unix(0, int64(t)).UTC().Format(time.RFC3339) }
	if gap < -bound {
		return fmt.Errorf("the wall clock says %s, which is %v behind the last stamp of this node's shards, %s: "+
			"set the clock, or start with --accept-clock if the stamp is wrong; time then goes on from the stamp",
			at(wall), (-gap).Round(time.Millisecond), at(newest))
	}
	if gap > clockGapMax {
		return fmt.Errorf("the wall clock says %s, which is %v ahead of the last stamp of this node's shards, %s: "+
			"set the clock, or start with --accept-clock if so much time has passed; everything due meanwhile is due at once",
			at(wall), gap.Round(time.Hour), at(newest))
	}
	return nil
}
