package rule

import "github.com/belfrydb/belfry/fsm"

// Reset is a ResetClock: the time of the shard goes back from one moment to an earlier one.
type Reset struct {
	From, To fsm.Time
	Grace    fsm.Duration
}

// Left returns how long after the old clock at is, not less than 0.
func (r *Reset) Left(at fsm.Time) fsm.Duration { return max(0, at.Sub(r.From)) }

// Kept returns the moment that is as far from the new clock as at was from the old one, rounded up
// to a millisecond.
func (r *Reset) Kept(at fsm.Time) fsm.Time { return r.To.After(r.Left(at)) }

// Until returns the new end of a lease of the given end and length: its whole length from now, or what
// was left of it if that is more, plus the grace; no later than the old end.
func (r *Reset) Until(until fsm.Time, ttr fsm.Duration) fsm.Time {
	return min(until, r.To.After(max(ttr, r.Left(until))).Add(r.Grace).Ceil())
}

// Successor moves the times of a successor as those of a job that waits. It returns nil if they stay.
func (r *Reset) Successor(next *fsm.Successor) *fsm.Successor {
	if next == nil || next.Created <= r.To {
		return nil
	}
	n := *next
	n.Created = r.To
	if n.TTL != 0 {
		n.TTL = r.Kept(n.TTL)
	}
	if !n.Given.Has(fsm.GivenDueAt) && n.FirstDue > r.To {
		n.FirstDue = r.Kept(n.FirstDue)
	}
	n.Due = n.FirstDue
	return &n
}
