package rpc

import (
	"cmp"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

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

// settings checks settings and returns a function that changes them. The function changes the
// fields that the request sets, and keeps the rest. It is a function because the catalog applies it
// to the settings that it holds when the change is logged.
func (c *checker) settings(field string, in *belfryv1.QueueSettings, partitions uint32) func(fsm.Settings) fsm.Settings {
	ttr := c.ttr(join(field, "ttr"), in.GetTtr())
	attempts := c.attempts(join(field, "maxAttempts"), in.GetMaxAttempts())
	retryDelays := c.retryDelays(join(field, "retryDelays"), in.GetRetryDelays())
	if in.GetRetryDelaysDefault() && len(in.GetRetryDelays()) > 0 && !slices.Equal(retryDelays, fsm.DefaultRetryDelays(fsm.LatestFormat)) {
		c.fail(fault.Invalid(join(field, "retryDelaysDefault"), "it does not go with other retryDelays than the default"))
	}
	dedup, dedupSet := c.span(join(field, "dedupWindow"), in.GetDedupWindow(), 0, c.limits.DelayMax)
	c.limitPerPartition(join(field, "maxInFlight"), uint64(in.GetMaxInFlight()), partitions)
	c.limitPerPartition(join(field, "maxJobs"), uint64(in.GetMaxJobs()), partitions)
	c.limitPerPartition(join(field, "maxBytes"), in.GetMaxBytes(), partitions)
	c.limitPerPartition(join(field, "putsPerSecond"), uint64(in.GetPutsPerSecond()), partitions)
	overdue := c.overdue(join(field, "overdue"), in.GetOverdue())
	toDead, toDeadSet := c.expireTo(join(field, "expireTo"), in)
	var pausedUntil fsm.Time
	if in.GetPausedUntil() != nil {
		if in.Paused != nil && !in.GetPaused() {
			c.fail(fault.Invalid(join(field, "pausedUntil"), "it needs paused to be true or left out"))
		}
		pausedUntil = c.dueAt(join(field, "pausedUntil"), in.GetPausedUntil())
	}
	return func(s fsm.Settings) fsm.Settings {
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
		return s
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
func (c *checker) limitPerPartition(field string, limit uint64, partitions uint32) {
	if limit > 0 && limit < uint64(partitions) {
		c.fail(fault.Invalid(field, "%d is below the number of partitions, %d", limit, partitions))
	}
}

// overdueChange is the change of the overdue policy that a request asks for.
type overdueChange struct {
	policy        fsm.OverduePolicy
	period, after time.Duration
}

// overdue checks an overdue policy.
func (c *checker) overdue(field string, in *belfryv1.OverduePolicy) overdueChange {
	var out overdueChange
	if in == nil {
		return out
	}
	out.after, _ = c.span(join(field, "overdueAfter"), in.GetOverdueAfter(), overdueAfterMin, c.limits.DelayMax)
	out.period, _ = c.span(join(field, "period"), in.GetPeriod(), overduePeriodMin, overduePeriodMax)
	switch in.GetMode() {
	case belfryv1.OverdueMode_OVERDUE_MODE_FIRE:
		out.policy = fsm.FireOverdue
	case belfryv1.OverdueMode_OVERDUE_MODE_SPREAD:
		out.policy = fsm.SpreadOverdue
	case belfryv1.OverdueMode_OVERDUE_MODE_DROP:
		out.policy = fsm.DropOverdue
	case belfryv1.OverdueMode_OVERDUE_MODE_UNSPECIFIED:
		c.fail(fault.Invalid(join(field, "mode"), "want one of FIRE, SPREAD, DROP"))
	default:
		c.fail(fault.Invalid(join(field, "mode"), "want one of FIRE, SPREAD, DROP, not %d", in.GetMode()))
	}
	if spread := out.policy == fsm.SpreadOverdue; spread != (in.GetPeriod() != nil) {
		c.fail(fault.Invalid(join(field, "period"), "it goes with SPREAD, and SPREAD needs it: %s to %s",
			wire.FormatDuration(overduePeriodMin), wire.FormatDuration(overduePeriodMax)))
	}
	return out
}

// expireTo checks the setting of what happens to expired jobs.
func (c *checker) expireTo(field string, in *belfryv1.QueueSettings) (toDead, set bool) {
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
	c.fail(fault.Invalid(field, "want one of GONE, DEAD"))
	return false, false
}

// wireSettings converts settings, and fills in the defaults of a queue that was created in a
// format.
func wireSettings(s *fsm.Settings, created fsm.Format) *belfryv1.QueueSettings {
	delays := s.RetryDelays
	if len(delays) == 0 {
		delays = fsm.DefaultRetryDelays(created)
	}
	attempts := uint32(fsm.DefaultMaxAttempts)
	if s.MaxAttemptsSet {
		attempts = s.MaxAttempts
	}
	expireTo := belfryv1.ExpireTo_EXPIRE_TO_GONE
	if s.ExpireToDead {
		expireTo = belfryv1.ExpireTo_EXPIRE_TO_DEAD
	}
	return &belfryv1.QueueSettings{
		Ttr:           durationpb.New(cmp.Or(s.TTR, fsm.DefaultTTR)),
		MaxAttempts:   proto.Uint32(attempts),
		RetryDelays:   wire.Durations(delays),
		DedupWindow:   durationpb.New(wire.DedupWindow(s)),
		DedupForever:  proto.Bool(s.DedupForever),
		MaxInFlight:   proto.Uint32(wire.Count(s.MaxInFlight)),
		MaxJobs:       proto.Uint32(wire.Count(s.MaxJobs)),
		MaxBytes:      proto.Uint64(s.MaxBytes),
		PutsPerSecond: proto.Uint32(wire.Count(s.PutsPerSecond)),
		Overdue:       wireOverdue(s),
		ExpireTo:      expireTo.Enum(),
		Paused:        proto.Bool(s.Paused),
		PausedUntil:   wire.CeilTime(s.PausedUntil),

		RetryDelaysDefault: proto.Bool(len(s.RetryDelays) == 0),
	}
}

// wireOverdue converts the overdue policy.
func wireOverdue(s *fsm.Settings) *belfryv1.OverduePolicy {
	after := s.OverdueAfter
	if after == 0 {
		after = fsm.DefaultOverdueAfter
	}
	out := &belfryv1.OverduePolicy{OverdueAfter: durationpb.New(after)}
	switch s.Overdue {
	case fsm.FireOverdue:
		out.Mode = belfryv1.OverdueMode_OVERDUE_MODE_FIRE
	case fsm.SpreadOverdue:
		out.Mode, out.Period = belfryv1.OverdueMode_OVERDUE_MODE_SPREAD, durationpb.New(s.OverduePeriod)
	case fsm.DropOverdue:
		out.Mode = belfryv1.OverdueMode_OVERDUE_MODE_DROP
	}
	return out
}
