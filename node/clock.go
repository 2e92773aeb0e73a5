package node

import (
	"fmt"
	"sync"
	"time"

	"github.com/belfrydb/belfry/fsm"
)

// Clock is the source of time. Its methods may be called from any goroutine.
type Clock interface {
	// Wall returns the wall clock as nanoseconds since the Unix epoch. It may step.
	Wall() fsm.Time
	// Monotonic returns the time since some fixed moment of this process. It never steps.
	Monotonic() time.Duration
}

// SystemClock returns the clock of the operating system.
func SystemClock() Clock { return systemClock{start: time.Now()} }

// systemClock reads the two clocks that package time holds together in one value.
type systemClock struct{ start time.Time }

// Wall implements Clock.
func (systemClock) Wall() fsm.Time { return fsm.Time(time.Now().UnixNano()) }

// Monotonic implements Clock.
func (c systemClock) Monotonic() time.Duration { return time.Since(c.start) }

const (
	// slewPerMillion is how fast a shard clock drifts towards the wall clock: 500 microseconds a second.
	slewPerMillion = 500
	// slewStep is the least time between two corrections, so that the whole nanoseconds of each are worth counting.
	slewStep = time.Millisecond
	// clockRecheck is the longest that anything sleeps towards a shard time: a timer does not notice when the clock is
	// anchored anew, and does not run while the machine is suspended.
	clockRecheck = time.Second
	// clockGapMax is how far the wall clock may have run ahead of the last stamp while the node was stopped.
	clockGapMax = 30 * 24 * time.Hour
)

// shardClock gives the stamps of one shard: an anchor plus the monotonic time since, so that steps of the wall clock do not reach it.
//
// A stamp is never below an earlier one. Ahead of the wall clock, or behind by less than half the bound, it is slewed
// towards it; behind by more (a suspended machine, a late first synchronisation) it is anchored anew at once, because a
// single voter agrees with itself.
type shardClock struct {
	clock Clock
	bound time.Duration

	mu         sync.Mutex
	anchor     fsm.Time
	anchorMono time.Duration
	last       fsm.Time
}

// newShardClock returns a clock that is anchored at the wall clock.
func newShardClock(clock Clock, bound time.Duration) *shardClock {
	return &shardClock{clock: clock, bound: bound, anchor: clock.Wall(), anchorMono: clock.Monotonic()}
}

// stamp returns the time for the next entry.
func (c *shardClock) stamp() fsm.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = max(c.last, c.read())
	return c.last
}

// now returns the stamp that the next entry would get if it were proposed at once.
func (c *shardClock) now() fsm.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return max(c.last, c.read())
}

// raise makes every later stamp at least floor: the clock of the machine that a new leader takes over. Time goes on from there.
func (c *shardClock) raise(floor fsm.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if floor > c.read() {
		c.anchor, c.anchorMono = floor, c.clock.Monotonic()
	}
	c.last = max(c.last, floor)
}

// ahead returns by how much the stamps are ahead of the wall clock; negative if they are behind.
func (c *shardClock) ahead() time.Duration { return c.now().Sub(c.clock.Wall()) }

// isAhead reports whether the stamps are ahead of the wall clock by more than the bound.
func (c *shardClock) isAhead() bool { return c.ahead() > c.bound }

// read advances the anchor to the present and returns it. mu is held.
func (c *shardClock) read() fsm.Time {
	mono, wall := c.clock.Monotonic(), c.clock.Wall()
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
	correction := elapsed / (1_000_000 / slewPerMillion)
	t -= fsm.Time(min(max(offset, -correction), correction))
	c.anchor, c.anchorMono = t, mono
	return t
}

// checkClock returns an error if the wall clock contradicts the newest stamp that the node's shards ever got; newest is zero if there is none.
func checkClock(wall, newest fsm.Time, bound time.Duration) error {
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
