package fsm

import (
	"slices"
	"time"
)

// OverduePolicy says what happens to jobs that fell due while the shard had no leader.
type OverduePolicy uint8

// The policies. FireOverdue is the default: every job is handed out as soon as possible.
const (
	FireOverdue OverduePolicy = 0
	// SpreadOverdue spaces the jobs over OverduePeriod, in their order.
	SpreadOverdue OverduePolicy = 1
	// DropOverdue ends the jobs as expired.
	DropOverdue OverduePolicy = 2
)

// Defaults for what neither the job nor its queue says.
const (
	DefaultTTR          = 30 * time.Second
	DefaultMaxAttempts  = 16
	DefaultDedupWindow  = 10 * time.Minute
	DefaultOverdueAfter = time.Minute
)

// DefaultRetryDelays returns the retry delays of a queue of the given format without a list of its
// own. Format 1 has none: a failed job is ready at once. Jitter goes with them. The caller owns the
// list.
func DefaultRetryDelays(created Format) []time.Duration {
	if created < 2 {
		return nil
	}
	return []time.Duration{
		time.Second, 5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute, time.Hour,
	}
}

// Jitter returns a default retry delay with a deviation of up to a tenth, so that jobs that failed
// together do not come back together. It depends on the fence of the failed attempt alone: every
// replica must find the same due time.
func Jitter(delay time.Duration, fence uint64) time.Duration {
	// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
	z := fence + 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	z ^= z >> 31
	return delay - delay/10 + time.Duration(z%uint64(delay/5+1)) //nolint:gosec // delays are not negative
}

// Settings is the configuration of a queue. The zero value means defaults and no limits.
type Settings struct {
	// TTR is the length of a lease where neither the reserve nor the job says; 0 means DefaultTTR.
	TTR time.Duration
	// MaxAttempts is the number of failed attempts after which a job is dead. It counts only if
	// MaxAttemptsSet; then 0 means no limit.
	MaxAttempts    uint32
	MaxAttemptsSet bool
	// RetryDelays[n-1] follows failed attempt n; the last one repeats; empty means DefaultRetryDelays
	// of the queue's format.
	RetryDelays []time.Duration
	// DedupWindow is how long an ended job's id is remembered. It counts only if DedupWindowSet; else
	// DefaultDedupWindow.
	DedupWindow    time.Duration
	DedupWindowSet bool
	// DedupForever keeps ended ids without end; DedupWindow then does not count.
	DedupForever bool
	// MaxInFlight bounds reserved jobs, MaxJobs held ones, MaxBytes those and schedules, PutsPerSecond new
	// ones; 0 means no limit.
	MaxInFlight   uint64
	MaxJobs       uint64
	MaxBytes      uint64
	PutsPerSecond uint64
	// Overdue, OverduePeriod (for SpreadOverdue) and OverdueAfter (0 means DefaultOverdueAfter) are
	// the policy after an outage.
	Overdue       OverduePolicy
	OverduePeriod time.Duration
	OverdueAfter  time.Duration
	// ExpireToDead sends jobs whose TTL ends to the dead letters instead of ending them.
	ExpireToDead bool
	// Paused stops handing out, for good or until PausedUntil if that is not zero.
	Paused      bool
	PausedUntil Time
	// Keys are the limits of each key.
	Keys KeySettings
}

// Clone returns a copy that shares no memory with s.
func (s Settings) Clone() Settings {
	s.RetryDelays = slices.Clone(s.RetryDelays)
	return s
}

// PausedAt reports whether the queue hands out nothing at time now.
func (s *Settings) PausedAt(now Time) bool {
	return s.Paused && (s.PausedUntil == 0 || now < s.PausedUntil)
}
