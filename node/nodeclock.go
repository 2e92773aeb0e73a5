package node

import (
	"sync"
	"time"

	"github.com/belfrydb/belfry/fsm"
)

// nodeClock is what this node takes the time to be: an anchor plus the monotonic time since, slewed towards the wall clock. When the
// wall clock is more than half the bound away, it is anchored anew, if somebody agrees with the wall clock: a majority of the voters
// (see clocks), or at once the node itself if there is nobody else to ask. It may step in both directions; that the stamps of a shard do
// not is the business of shardClock, whose wall clock this is.
type nodeClock struct {
	clock Clock
	bound time.Duration
	// alone reports whether this node is the only voter of all that it runs.
	alone func() bool
	// strayed has a value when the wall clock is too far away and others have to be asked.
	strayed wakeup

	mu         sync.Mutex
	anchor     fsm.Time
	anchorMono time.Duration
}

// newNodeClock returns a clock that is anchored at the wall clock.
func newNodeClock(clock Clock, bound time.Duration, alone func() bool) *nodeClock {
	return &nodeClock{
		clock: clock, bound: bound, alone: alone, strayed: newWakeup(), anchor: clock.Wall(), anchorMono: clock.Monotonic(),
	}
}

// Wall implements Clock, for the clocks of the shards.
func (c *nodeClock) Wall() fsm.Time {
	reading, _ := c.read()
	return reading.Stamp
}

// Monotonic implements Clock.
func (c *nodeClock) Monotonic() time.Duration { return c.clock.Monotonic() }

// read returns what the node and its wall clock say, and the monotonic time at which they do.
func (c *nodeClock) read() (ClockReading, time.Duration) {
	reading, mono := c.advance()
	if !c.isStray(reading) {
		return reading, mono
	}
	if c.alone() {
		return c.follow()
	}
	c.strayed.signal()
	return reading, mono
}

// isStray reports whether node and wall clock are too far apart for slewing.
func (c *nodeClock) isStray(r ClockReading) bool { return r.Stamp.Sub(r.Wall).Abs() > c.bound/2 }

// advance brings the anchor to the present, slewed.
func (c *nodeClock) advance() (ClockReading, time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	mono, wall := c.clock.Monotonic(), c.clock.Wall()
	elapsed := max(0, mono-c.anchorMono)
	t := c.anchor.Add(elapsed)
	if elapsed >= slewStep {
		t = slewed(t, wall, elapsed)
		c.anchor, c.anchorMono = t, mono
	}
	return ClockReading{Stamp: t, Wall: wall}, mono
}

// follow anchors the clock at the wall clock and returns what it says then, and the monotonic time: one read before the wall clock might lack what the
// machine was suspended for in between, and a shard's clock anchored by the two would be ahead by that.
func (c *nodeClock) follow() (ClockReading, time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	wall := c.clock.Wall()
	c.anchor, c.anchorMono = wall, c.clock.Monotonic()
	return ClockReading{Stamp: wall, Wall: wall}, c.anchorMono
}

// slewed returns t corrected towards the wall clock for the time that has passed.
func slewed(t, wall fsm.Time, elapsed time.Duration) fsm.Time {
	correction := elapsed / (1_000_000 / slewPerMillion)
	return t - fsm.Time(min(max(t.Sub(wall), -correction), correction))
}
