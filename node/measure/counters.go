// Package measure counts what becomes of the requests and jobs of a shard.
package measure

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node/admit"
	"github.com/belfrydb/belfry/node/histogram"
	"github.com/belfrydb/belfry/node/outcome"
)

// Counters are the counters that the parts of a shard share. Any goroutine may use them.
type Counters struct {
	// NotApplied and Unknown count requests by what became of them. The others count those of
	// NotApplied that were refused for one reason.
	NotApplied, Unknown            atomic.Uint64
	Overloaded, DiskFull, NoLeader atomic.Uint64
	MemoryFull, TooFewVoters       atomic.Uint64
	// QuotaRefusals counts those that a quota refused.
	QuotaRefusals admit.NamespaceRefusals
	// Redelivered counts grants after the first one of a job.
	Redelivered atomic.Uint64
	// Apply receives how long each entry takes to apply.
	Apply *histogram.Histogram
	// WorkerLate and ServerLate divide the lateness of first grants at the moment when a caller was
	// ready to take the job.
	WorkerLate, ServerLate *histogram.Histogram
	// Fires counts the firings of schedules by what came of them.
	Fires struct{ Fired, Missed, Skipped, Backfilled atomic.Uint64 }
	// FiredLate is how long after the due time of its job, which is the nominal time and the jitter, the
	// job of a firing was put: 0 if it was put before.
	FiredLate *histogram.Histogram
	// Queues has the measurements of single queues.
	Queues *Queues
}

// New returns counters at zero.
func New() *Counters {
	return &Counters{
		Apply: histogram.Seconds(), ServerLate: histogram.Seconds(), WorkerLate: histogram.Seconds(),
		FiredLate: histogram.Seconds(), Queues: newQueues(),
	}
}

// Failed counts requests that ended with err.
func (c *Counters) Failed(err error, requests int) {
	n := uint64(requests)
	if outcome.Of(err) == outcome.Unknown {
		c.Unknown.Add(n)
		return
	}
	c.NotApplied.Add(n)
	switch {
	case errors.Is(err, outcome.ErrOverloaded), errors.Is(err, outcome.ErrQuotaUnknown):
		// callers get the same reason for both
		c.Overloaded.Add(n)
	case errors.Is(err, outcome.ErrDiskFull):
		c.DiskFull.Add(n)
	case errors.Is(err, outcome.ErrMemoryFull):
		c.MemoryFull.Add(n)
	case errors.Is(err, outcome.ErrTooFewVoters):
		c.TooFewVoters.Add(n)
	case errors.Is(err, outcome.ErrNoLeader), errors.Is(err, outcome.ErrNotLeader):
		c.NoLeader.Add(n)
	case errors.Is(err, outcome.ErrQuota), errors.Is(err, outcome.ErrRateLimited):
		c.QuotaRefusals.Note(err, n)
	}
}

// Fired counts what came of a command of the scheduler. late is how long after its due time its job was
// put.
func (c *Counters) Fired(fire *fsm.Fire, result *fsm.Result, late time.Duration) {
	if result.Code != fsm.OK {
		return
	}
	c.Fires.Missed.Add(fire.Missed)
	switch {
	case result.Created:
		c.Fires.Fired.Add(1)
		c.FiredLate.Observe(late)
	case fire.Put != 0:
		c.Fires.Skipped.Add(1)
	}
}

// Ran counts the jobs that a RunSchedule put.
func (c *Counters) Ran(result *fsm.Result) {
	if !result.Replayed { // else they were counted at the first reply
		c.Fires.Backfilled.Add(result.Count)
	}
}

// Granted counts the grants of a Reserve at clock. came is when the Reserve could first have been
// granted: its caller waited, and its queue withheld no jobs.
func (c *Counters) Granted(came fsm.Time, result *fsm.Result, clock fsm.Time) {
	if result.Replayed {
		return // counted at the first reply
	}
	for i := range result.Grants {
		g := &result.Grants[i]
		if g.Attempt > 1 {
			c.Redelivered.Add(1)
			continue
		}
		had := min(max(g.Due, came), clock) // timestamps need not follow the clock that gave came
		c.WorkerLate.Observe(had.Sub(g.Due))
		c.ServerLate.Observe(clock.Sub(had))
		c.Queues.late(g.Queue, clock.Sub(g.Due))
	}
}
