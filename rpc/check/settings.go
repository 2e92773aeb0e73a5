package check

import (
	"slices"
	"time"

	"github.com/belfrydb/belfry/fsm"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/wire"
)

// The bounds of an overdue policy.
const (
	overdueAfterMin  = time.Second
	overduePeriodMin = time.Second
	overduePeriodMax = 30 * 24 * time.Hour
)

// Settings checks settings and returns a function that changes them. The function changes the
// fields that the request sets, and keeps the rest. It is a function because the catalog applies it
// to the settings that it holds when the change is logged. It fails with a *fault.Error if a new
// value does not go with one that is kept.
func (c *Request) Settings(field string, in *belfryv1.QueueSettings,
	partitions uint32) func(fsm.Settings) (fsm.Settings, error) {
	ttr := c.TTR(fault.Join(field, "ttr"), in.GetTtr())
	attempts := c.attempts(fault.Join(field, "maxAttempts"), in.GetMaxAttempts())
	retryDelays := c.retryDelays(fault.Join(field, "retryDelays"), in.GetRetryDelays())
	if in.GetRetryDelaysDefault() && len(in.GetRetryDelays()) > 0 &&
		!slices.Equal(retryDelays, fsm.DefaultRetryDelays(fsm.LatestFormat)) {
		c.Fail(fault.Invalid(fault.Join(field, "retryDelaysDefault"),
			"it does not go with other retryDelays than the default"))
	}
	dedup, dedupSet := c.Span(fault.Join(field, "dedupWindow"), in.GetDedupWindow(), 0, c.Limits.DelayMax)
	c.limitPerPartition(fault.Join(field, "maxInFlight"), uint64(in.GetMaxInFlight()), partitions)
	c.limitPerPartition(fault.Join(field, "maxJobs"), uint64(in.GetMaxJobs()), partitions)
	c.limitPerPartition(fault.Join(field, "maxBytes"), in.GetMaxBytes(), partitions)
	c.limitPerPartition(fault.Join(field, "putsPerSecond"), uint64(in.GetPutsPerSecond()), partitions)
	overdue := c.overdue(fault.Join(field, "overdue"), in.GetOverdue())
	toDead, toDeadSet := c.expireTo(fault.Join(field, "expireTo"), in)
	var pausedUntil fsm.Time
	if in.GetPausedUntil() != nil {
		if in.Paused != nil && !in.GetPaused() {
			c.Fail(fault.Invalid(fault.Join(field, "pausedUntil"), "it needs paused to be true or left out"))
		}
		pausedUntil = c.dueAt(fault.Join(field, "pausedUntil"), in.GetPausedUntil())
	}
	changeKeys := c.keySettings(field, in)
	return func(s fsm.Settings) (fsm.Settings, error) {
		s = s.Clone()
		if in.GetTtr() != nil {
			s.TTR = ttr
		}
		if in != nil && in.MaxAttempts != nil {
			s.MaxAttempts, s.MaxAttemptsSet = attempts, true
		}
		switch {
		case in.GetRetryDelaysDefault():
			s.RetryDelays = nil
		case len(retryDelays) > 0:
			s.RetryDelays = retryDelays
		}
		if dedupSet {
			s.DedupWindow, s.DedupWindowSet = dedup, true
		}
		if in != nil && in.DedupForever != nil {
			s.DedupForever = in.GetDedupForever()
		}
		setLimits(&s, in)
		if in.GetOverdue() != nil {
			s.Overdue, s.OverduePeriod, s.OverdueAfter = overdue.policy, overdue.period, overdue.after
		}
		if toDeadSet {
			s.ExpireToDead = toDead
		}
		setPause(&s, in, pausedUntil)
		return s, changeKeys(&s.Keys)
	}
}

// setLimits copies the limits that the request sets.
func setLimits(s *fsm.Settings, in *belfryv1.QueueSettings) {
	if in == nil {
		return
	}
	if in.MaxInFlight != nil {
		s.MaxInFlight = uint64(in.GetMaxInFlight())
	}
	if in.MaxJobs != nil {
		s.MaxJobs = uint64(in.GetMaxJobs())
	}
	if in.MaxBytes != nil {
		s.MaxBytes = in.GetMaxBytes()
	}
	if in.PutsPerSecond != nil {
		s.PutsPerSecond = uint64(in.GetPutsPerSecond())
	}
}

// setPause pauses or resumes. A pause without an end replaces one that had an end, and the reverse.
func setPause(s *fsm.Settings, in *belfryv1.QueueSettings, until fsm.Time) {
	switch {
	case until != 0:
		s.Paused, s.PausedUntil = true, until
	case in != nil && in.Paused != nil:
		s.Paused, s.PausedUntil = in.GetPaused(), 0
	}
}

// limitPerPartition checks that a limit, divided among the partitions, is at least 1 for each.
func (c *Request) limitPerPartition(field string, limit uint64, partitions uint32) {
	if limit > 0 && limit < uint64(partitions) {
		c.Fail(fault.Invalid(field, "%d is below the number of partitions, %d", limit, partitions))
	}
}

// overdueChange is the change of the overdue policy that a request asks for.
type overdueChange struct {
	policy        fsm.OverduePolicy
	period, after time.Duration
}

// overdue checks an overdue policy.
func (c *Request) overdue(field string, in *belfryv1.OverduePolicy) overdueChange {
	var out overdueChange
	if in == nil {
		return out
	}
	out.after, _ = c.Span(fault.Join(field, "overdueAfter"), in.GetOverdueAfter(), overdueAfterMin, c.Limits.DelayMax)
	out.period, _ = c.Span(fault.Join(field, "period"), in.GetPeriod(), overduePeriodMin, overduePeriodMax)
	switch in.GetMode() {
	case belfryv1.OverdueMode_OVERDUE_MODE_FIRE:
		out.policy = fsm.FireOverdue
	case belfryv1.OverdueMode_OVERDUE_MODE_SPREAD:
		out.policy = fsm.SpreadOverdue
	case belfryv1.OverdueMode_OVERDUE_MODE_DROP:
		out.policy = fsm.DropOverdue
	case belfryv1.OverdueMode_OVERDUE_MODE_UNSPECIFIED:
		c.Fail(fault.Invalid(fault.Join(field, "mode"), "want one of FIRE, SPREAD, DROP"))
	default:
		c.Fail(fault.Invalid(fault.Join(field, "mode"), "want one of FIRE, SPREAD, DROP, not %d", in.GetMode()))
	}
	if spread := out.policy == fsm.SpreadOverdue; spread != (in.GetPeriod() != nil) {
		c.Fail(fault.Invalid(fault.Join(field, "period"), "it goes with SPREAD, and SPREAD needs it: %s to %s",
			wire.FormatDuration(overduePeriodMin), wire.FormatDuration(overduePeriodMax)))
	}
	return out
}

// expireTo checks the setting of what happens to expired jobs.
func (c *Request) expireTo(field string, in *belfryv1.QueueSettings) (toDead, set bool) {
	if in == nil || in.ExpireTo == nil {
		return false, false
	}
	switch in.GetExpireTo() {
	case belfryv1.ExpireTo_EXPIRE_TO_GONE:
		return false, true
	case belfryv1.ExpireTo_EXPIRE_TO_DEAD:
		return true, true
	case belfryv1.ExpireTo_EXPIRE_TO_UNSPECIFIED:
	}
	c.Fail(fault.Invalid(field, "want one of GONE, DEAD"))
	return false, false
}

// RestoreOptions checks what to do with overdue jobs.
func (c *Request) RestoreOptions(in *belfryv1.OverduePolicy) fsm.Import {
	begin := fsm.Import{Step: fsm.ImportBegin}
	if in == nil {
		return begin
	}
	policy := c.overdue("overdue", in)
	if in.GetOverdueAfter() != nil {
		c.Fail(fault.Invalid("overdue.overdueAfter", "it does not go with a restore"))
	}
	switch policy.policy {
	case fsm.FireOverdue:
		begin.Overdue = fsm.ImportFire
	case fsm.SpreadOverdue:
		begin.Overdue, begin.Period = fsm.ImportSpread, policy.period
	case fsm.DropOverdue:
		begin.Overdue = fsm.ImportDrop
	}
	return begin
}
