package clock

import (
	"sync"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/wakeup"
)

// Node is the clock of this node: an anchor plus the monotonic time since, slewed towards the wall
// clock. If the wall clock is more than half the bound away, and a majority of the voters agrees
// with it (see Comparer), the clock is anchored anew at the wall clock; a node without other voters
// does so at once. The clock may step in both directions. It is the wall clock of Shard, which
// never decreases.
type Node struct {
	clock Source
	bound time.Duration
	// alone reports whether this node is the only voter of each of its groups.
	alone func() bool
	// Strayed is sent when the wall clock is too far away and the other voters must be asked.
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

// Wall implements Source, for the clocks of shards.
func (c *Node) Wall() fsm.Time {
	reading, _ := c.Read()
	return reading.Stamp
}

// Monotonic implements Source.
func (c *Node) Monotonic() time.Duration { return c.clock.Monotonic() }

// Read returns the time of the node and of its wall clock, and the monotonic time of the reading.
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

// isStray reports whether the node and its wall clock are too far apart for slewing.
func (c *Node) isStray(r Reading) bool { return r.Stamp.Sub(r.Wall).Abs() > c.bound/2 }

// advance moves the anchor to the present, slewed.
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

// follow anchors the clock at the wall clock and returns both. It reads the monotonic clock after
// the wall clock: if the machine were suspended in between, the other order would put a shard's
// clock ahead by that time.
func (c *Node) follow() (Reading, time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	wall := c.clock.Wall()
	c.anchor, c.anchorMono = wall, c.clock.Monotonic()
	return Reading{Stamp: wall, Wall: wall}, c.anchorMono
}

// slewed returns t corrected towards the wall clock, by at most what slewing allows for the elapsed
// time.
func slewed(t, wall fsm.Time, elapsed time.Duration) fsm.Time {
	correction := elapsed / (1_000_000 / slewPerMillion)
	return t - fsm.Time(min(max(t.Sub(wall), -correction), correction))
}
