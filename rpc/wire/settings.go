package wire

import (
	"cmp"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/belfrydb/belfry/fsm"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// Settings converts settings, and fills in the defaults of a queue that was created in a
// format. Every field of the answer is set, except for the end of a pause that has none.
func Settings(s *fsm.Settings, created fsm.Format) *belfryv1.QueueSettings {
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
		RetryDelays:   Durations(delays),
		DedupWindow:   durationpb.New(DedupWindow(s)),
		DedupForever:  proto.Bool(s.DedupForever),
		MaxInFlight:   proto.Uint32(Count(s.MaxInFlight)),
		MaxJobs:       proto.Uint32(Count(s.MaxJobs)),
		MaxBytes:      proto.Uint64(s.MaxBytes),
		PutsPerSecond: proto.Uint32(Count(s.PutsPerSecond)),
		Overdue:       overduePolicy(s),
		ExpireTo:      expireTo.Enum(),
		Paused:        proto.Bool(s.Paused),
		PausedUntil:   CeilTime(s.PausedUntil),

		RetryDelaysDefault: proto.Bool(len(s.RetryDelays) == 0),

		KeyConcurrency: proto.Uint32(s.Keys.Concurrency),
		KeyRate:        keyRate(&s.Keys.Rate),
		KeyOrdered:     proto.Bool(s.Keys.Ordered),
		KeyFair:        proto.Bool(s.Keys.Fair),
		HoldOnDead:     proto.Bool(s.Keys.HoldOnDead),
		NoKeys:         proto.Bool(s.Keys.Refused),
	}
}

// DefaultSettings returns the settings of a new queue that was given none. The caller may change them.
func DefaultSettings() *belfryv1.QueueSettings {
	return Settings(&fsm.Settings{}, fsm.LatestFormat)
}

// keyRate converts the rate of a key. Without a limit the message is empty.
func keyRate(r *fsm.KeyRate) *belfryv1.KeyRate {
	if r.Count == 0 {
		return &belfryv1.KeyRate{}
	}
	return &belfryv1.KeyRate{Count: r.Count, Per: durationpb.New(r.Per), Burst: r.Burst}
}

// overduePolicy converts the overdue policy.
func overduePolicy(s *fsm.Settings) *belfryv1.OverduePolicy {
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
