package fsm

import (
	"math"
	"time"
)

// Time is a point in shard time: nanoseconds since the Unix epoch, UTC. Zero means "none".
type Time int64

const millisecond = Time(time.Millisecond)

// TimeMax is the last time there is, in the year 2262. Sums that would pass it stop there.
const TimeMax = math.MaxInt64 / millisecond * millisecond

// Add returns t+d, held at TimeMax instead of overflowing. d must not be negative.
func (t Time) Add(d time.Duration) Time {
	if sum := t + Time(d); sum >= t {
		return min(sum, TimeMax)
	}
	return TimeMax
}

// Sub returns t-u.
func (t Time) Sub(u Time) time.Duration { return time.Duration(t - u) }

// Ceil returns t in whole milliseconds, rounded up: what callers are shown must be what holds, and
// never early.
func (t Time) Ceil() Time { return t.Add(time.Duration((millisecond - t%millisecond) % millisecond)) }

// After returns when something is due that is to happen d from t: a whole millisecond, rounded up.
// If d is 0 it is the millisecond that t lies in, which is due already.
func (t Time) After(d time.Duration) Time {
	if d == 0 {
		return t - t%millisecond
	}
	return t.Add(d).Ceil()
}

// CeilMillis returns t in whole milliseconds since the Unix epoch, rounded up.
func (t Time) CeilMillis() int64 { return int64(t.Ceil() / millisecond) }
