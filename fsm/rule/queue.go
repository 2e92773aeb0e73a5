package rule

import "github.com/belfrydb/belfry/fsm"

// PartitionLimit is a limit of a queue as one of its partitions enforces it. A limit that is set is
// never less than 1; 0 is no limit.
func PartitionLimit(limit uint64, r *fsm.QueueRecord) uint64 {
	if limit == 0 {
		return 0
	}
	return max(1, limit/uint64(max(1, r.Partitions)))
}

// DedupWindow returns for how long the id of an ended job is remembered; forever if that has no end.
func DedupWindow(s *fsm.Settings) (window fsm.Duration, forever bool) {
	switch {
	case s.DedupForever:
		return 0, true
	case s.DedupWindowSet:
		return s.DedupWindow, false
	default:
		return fsm.DefaultDedupWindow, false
	}
}

// RetryDelays returns the delays after failed attempts of jobs without a list of their own, and
// whether fsm.Jitter applies. The list is that of the settings or of fsm; callers must not change it.
func RetryDelays(r *fsm.QueueRecord) (delays []fsm.Duration, jitter bool) {
	if len(r.Settings.RetryDelays) > 0 {
		return r.Settings.RetryDelays, false
	}
	return fsm.DefaultRetryDelays(r.Format), true
}
