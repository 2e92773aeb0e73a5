package fsm

import (
	"math"
	"time"
)

// Time is a point in shard time: nanoseconds since the Unix epoch, UTC. Zero means "none".
type Time int64

// TimeMax is the last representable time, in the year 2262. Sums that would pass it stop there.
const TimeMax Time = math.MaxInt64

// Add returns t+d, held at TimeMax instead of overflowing. d must not be negative.
func (t Time) Add(d time.Duration) Time {
	if sum := t + Time(d); sum >= t {
		return sum
	}
	return TimeMax
}

// Sub returns t-u.
func (t Time) Sub(u Time) time.Duration { return time.Duration(t - u) }

// CeilMillis returns t in whole milliseconds since the Unix epoch, rounded up, so that a reader who waits for it is never early.
func (t Time) CeilMillis() int64 {
	ms := int64(t) / int64(time.Millisecond)
	if int64(t)%int64(time.Millisecond) > 0 {
		ms++
	}
	return ms
}
