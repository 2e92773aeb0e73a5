package fsm

import (
	"slices"
	"time"
)

// OverduePolicy says what happens to jobs that fell due while the shard had no leader.
type OverduePolicy uint8

// The policies. FireOverdue is the default: every job rings as soon as it can.
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

// Settings is the configuration of a queue. The zero value means defaults and no limits.
type Settings struct {
	// TTR is the length of a lease where neither the reserve nor the job says; 0 means DefaultTTR.
	TTR time.Duration
	// MaxAttempts is the number of failed attempts after which a job is dead. It counts only if MaxAttemptsSet; then 0 means no limit.
	MaxAttempts    uint32
	MaxAttemptsSet bool
	// RetryDelays[n-1] follows failed attempt n; the last one repeats; empty means no delay.
	RetryDelays []time.Duration
	// DedupWindow is how long an ended job's id is remembered. It counts only if DedupWindowSet; else DefaultDedupWindow.
	DedupWindow    time.Duration
	DedupWindowSet bool
	// DedupForever keeps ended ids without end; DedupWindow then does not count.
	DedupForever bool
	// MaxInFlight bounds reserved jobs, MaxJobs and MaxBytes held ones, PutsPerSecond new ones; 0 means no limit.
	MaxInFlight   uint64
	MaxJobs       uint64
	MaxBytes      uint64
	PutsPerSecond uint64
	// Overdue, OverduePeriod (for SpreadOverdue) and OverdueAfter (0 means DefaultOverdueAfter) are the policy after an outage.
	Overdue       OverduePolicy
	OverduePeriod time.Duration
	OverdueAfter  time.Duration
	// ExpireToDead sends jobs whose TTL ends to the dead letters instead of ending them.
	ExpireToDead bool
	// Paused stops handing out, for good or until PausedUntil if that is not zero.
	Paused      bool
	PausedUntil Time
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
