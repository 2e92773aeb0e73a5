package clock

import (
	"sync"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node/wakeup"
)

// Node is what this node takes the time to be: an anchor plus the monotonic time since, slewed towards the wall clock. When the
// wall clock is more than half the bound away, it is anchored anew, if somebody agrees with the wall clock: a majority of the voters
// (see clocks), or at once the node itself if there is nobody else to ask. It may step in both directions; that the stamps of a shard do
// not is the business of shardClock, whose wall clock this is.
type Node struct {
	clock Source
	bound time.Duration
	// alone reports whether this node is the only voter of all that it runs.
	alone func() bool
	// Strayed has a value when the wall clock is too far away and others have to be asked.
	Strayed wakeup.Signal

	mu         sync.Mutex
	anchor     fsm.Time
	anchorMono time.Duration
}

// NewNode returns a clock that is anchored at the wall clock.
func NewNode(clock Source, bound time.Duration, alone func() bool) *Node {
	return &Node{
		clock: clock, bound: bound, alone: alone, Strayed: wakeup.New(), anchor: clock.Wall(), anchorMono: clock.Monotonic(),
	}
}

// Wall implements Clock, for the clocks of the shards.
func (c *Node) Wall() fsm.Time {
	reading, _ := c.Read()
	return reading.Stamp
}

// Monotonic implements Clock.
func (c *Node) Monotonic() time.Duration { return c.clock.Monotonic() }

// Read returns what the node and its wall clock say, and the monotonic time at which they do.
func (c *Node) Read() (Reading, time.Duration) {
	reading, mono := c.advance()
	if !c.isStray(reading) {
		return reading, mono
	}
	if c.alone() {
		return c.follow()
	}
	c.Strayed.Send()
	return reading, mono
}

// isStray reports whether node and wall clock are too far apart for slewing.
func (c *Node) isStray(r Reading) bool { return r.Stamp.Sub(r.Wall).Abs() > c.bound/2 }

// advance brings the anchor to the present, slewed.
func (c *Node) advance() (Reading, time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	mono, wall := c.clock.Monotonic(), c.clock.Wall()
	elapsed := max(0, mono-c.anchorMono)
	t := c.anchor.Add(elapsed)
	if elapsed >= slewStep {
		t = slewed(t, wall, elapsed)
		c.anchor, c.anchorMono = t, mono
	}
	return Reading{Stamp: t, Wall: wall}, mono
}

// follow anchors the clock at the wall clock and returns what it says then, and the monotonic time: one read before the wall clock might lack what the
// machine was suspended for in between, and a shard's clock anchored by the two would be ahead by that.
func (c *Node) follow() (Reading, time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	wall := c.clock.Wall()
	c.anchor, c.anchorMono = wall, c.clock.Monotonic()
	return Reading{Stamp: wall, Wall: wall}, c.anchorMono
}

// slewed returns t corrected towards the wall clock for the time that has passed.
func slewed(t, wall fsm.Time, elapsed time.Duration) fsm.Time {
	correction := elapsed / (1_000_000 / slewPerMillion)
	return t - fsm.Time(min(max(t.Sub(wall), -correction), correction))
}
