package clock

import (
	"strings"
	"testing"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node/clock/clocktest"
)

// wakingClock runs on by an hour, as a machine that was suspended has, before a reading of the wall
// clock.
type wakingClock struct {
	*clocktest.Hand
	in int // readings of the wall clock until then
}

func (c *wakingClock) Wall() fsm.Time {
	if c.in--; c.in == 0 {
		c.Run(time.Hour)
	}
	return c.Hand.Wall()
}

// A suspension between any two readings of the clocks must not be counted twice.
func TestShardClockWhenSuspendedBetweenReadings(t *testing.T) {
	for in := range 4 {
		waking := &wakingClock{Hand: clocktest.NewHand()}
		clock := NewShard(NewNode(waking, DefaultBound, func() bool { return true }), DefaultBound)
		waking.Step(time.Hour) // so that it is anchored anew
		waking.in = in + 1
		for range 3 {
			if ahead := clock.Stamp().Sub(waking.Hand.Wall()); ahead > 0 {
				t.Errorf("suspended before reading %d it stamps %v ahead", in+1, ahead)
			}
		}
	}
}

func TestShardClockFollowsTheWallClock(t *testing.T) {
	hand := clocktest.NewHand()
	clock := NewShard(hand, DefaultBound)
	for range 1000 {
		hand.Run(7 * time.Millisecond)
		if got, want := clock.Stamp(), hand.Wall(); got != want {
			t.Fatalf("stamp is %d, want the wall clock %d", got, want)
		}
	}
}

func TestShardClockAfterAStepOfTheWallClock(t *testing.T) {
	const second = time.Second
	tests := []struct {
		name string
		step time.Duration
		// after is how long time passes after the step, in seconds of one stamp each.
		after int
		// offset is where the stamp must then be, relative to the wall clock.
		offset time.Duration
	}{
		{"back, at once", -10 * second, 0, 10 * second},
		{"back, slewed by 500 ppm", -10 * second, 100, 10*second - 50*time.Millisecond},
		{"back a little, until it agrees", -20 * time.Millisecond, 100, 0},
		{"forward within half the bound, at once", 200 * time.Millisecond, 0, -200 * time.Millisecond},
		{"forward within half the bound, slewed", 200 * time.Millisecond, 100, -150 * time.Millisecond},
		{"forward within half the bound, until it agrees", 200 * time.Millisecond, 1000, 0},
		{"forward by half the bound exactly", 250 * time.Millisecond, 0, -250 * time.Millisecond},
		{"forward beyond half the bound, anchored anew", 251 * time.Millisecond, 0, 0},
		{"forward by an hour, anchored anew", time.Hour, 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			hand := clocktest.NewHand()
			clock := NewShard(hand, DefaultBound)
			before := clock.Stamp()
			hand.Step(tt.step)
			for range tt.after {
				hand.Run(second)
				now := clock.Stamp()
				if now <= before {
					t.Fatalf("stamp went from %d to %d while a second passed", before, now)
				}
				before = now
			}
			if got := clock.Stamp().Sub(hand.Wall()); got != tt.offset {
				t.Errorf("stamp is %v off the wall clock, want %v", got, tt.offset)
			}
		})
	}
}

func TestShardClockSlewsAtAnyRateOfStamps(t *testing.T) {
	hand := clocktest.NewHand()
	clock := NewShard(hand, DefaultBound)
	hand.Step(-10 * time.Second)
	for range 1_000_000 { // 10 s in steps of 10 µs, each too short to be slewed on its own
		hand.Run(10 * time.Microsecond)
		clock.Stamp()
	}
	if got, want := clock.Now().Sub(hand.Wall()), 10*time.Second-5*time.Millisecond; got != want {
		t.Errorf("after 10 s the clock is %v ahead, want %v", got, want)
	}
}

func TestShardClockNeverStampsBelowItsFloor(t *testing.T) {
	hand := clocktest.NewHand()
	clock := NewShard(hand, DefaultBound)
	floor := hand.Wall().Add(time.Hour)
	clock.Raise(floor)
	if got := clock.Stamp(); got != floor {
		t.Errorf("stamp is %d, want the floor %d", got, floor)
	}
	hand.Run(2 * time.Second)
	if got, want := clock.Stamp(), floor.Add(2*time.Second-time.Millisecond); got != want {
		t.Errorf("after 2 s the stamp is %d, want %d: time goes on from the floor, slewed", got, want)
	}
	clock.Raise(hand.Wall()) // a floor below changes nothing
	if got := clock.Stamp(); got < floor {
		t.Errorf("stamp went back to %d, below %d", got, floor)
	}
}

// The stamps of a new leader go on from the machine's clock, also where its own is behind.
func TestShardClockOfANewLeader(t *testing.T) {
	for name, ahead := range map[string]time.Duration{
		"the machine is ahead": 200 * time.Millisecond, "the machine is behind": -time.Hour,
	} {
		t.Run(name, func(t *testing.T) {
			hand := clocktest.NewHand()
			c := NewShard(hand, DefaultBound)
			floor := hand.Wall() + fsm.Time(ahead)
			c.Begin(floor)
			from := max(floor, hand.Wall())
			if got := c.Stamp(); got != from {
				t.Errorf("the first stamp is %v from where it should be", got.Sub(from))
			}
			hand.Run(time.Second)
			if on := c.Stamp().Sub(from); on < 999*time.Millisecond || on > time.Second {
				t.Errorf("after a second it is %v later", on)
			}
		})
	}
}

func TestShardClockNowIsTheNextStamp(t *testing.T) {
	hand := clocktest.NewHand()
	clock := NewShard(hand, DefaultBound)
	hand.Run(time.Minute)
	hand.Step(-time.Second)
	if now, stamp := clock.Now(), clock.Stamp(); now != stamp {
		t.Errorf("now is %d, and the stamp at the same moment %d", now, stamp)
	}
}

func TestSystemClockRuns(t *testing.T) {
	clock := System()
	mono, wall := clock.Monotonic(), clock.Wall()
	for clock.Monotonic() == mono { // ends as soon as the clock moves
	}
	if since := time.Since(time.Unix(0, int64(wall))); since < 0 || since > time.Minute {
		t.Errorf("the wall clock is %v off", since)
	}
}

func TestCheckClock(t *testing.T) {
	newest := fsm.Time(1_800_000_000e9)
	tests := []struct {
		name    string
		wall    fsm.Time
		newest  fsm.Time
		problem string
	}{
		{"no stamp yet", newest, 0, ""},
		{"equal", newest, newest, ""},
		{"behind by the bound", newest - fsm.Time(DefaultBound), newest, ""},
		{"behind by more than the bound", newest - fsm.Time(DefaultBound) - 1, newest, "behind the last stamp"},
		{"ahead by 30 days", newest.Add(clockGapMax), newest, ""},
		{"ahead by more than 30 days", newest.Add(clockGapMax + 1), newest, "ahead of the last stamp"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := Check(tt.wall, tt.newest, DefaultBound)
			if tt.problem == "" && err != nil {
				t.Errorf("refused: %v", err)
			}
			if tt.problem != "" &&
				(err == nil || !strings.Contains(err.Error(), tt.problem) || !strings.Contains(err.Error(), "--accept-clock")) {
				t.Errorf("error is %v, want one that says %q and names --accept-clock", err, tt.problem)
			}
		})
	}
}
