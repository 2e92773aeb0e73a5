package rule

import (
	"math/bits"

	"github.com/belfrydb/belfry/fsm"
)

// Outage is the time (From, To] in which jobs fell due and were not moved.
type Outage struct{ From, To fsm.Time }

// Spread maps a due time in the outage to (To, To+period], rounding up so that it always leaves the
// outage.
func (o Outage) Spread(due fsm.Time, period fsm.Duration) fsm.Time {
	hi, lo := bits.Mul64(uint64(due-o.From), uint64(period))
	span := uint64(o.To - o.From)
	quotient, remainder := bits.Div64(hi, lo, span) // hi < span, since due-From <= span and period < 2^63
	if remainder > 0 {
		quotient++
	}
	return o.To.Add(fsm.Duration(min(quotient, uint64(fsm.TimeMax)))).Ceil()
}

// ImportPolicy returns what a restore does with overdue jobs of a queue that has these settings, and
// the period over which it spreads them.
func ImportPolicy(r *fsm.RestoreMark, s *fsm.Settings) (fsm.ImportOverdue, fsm.Duration) {
	if r.Overdue != fsm.ImportByQueue {
		return r.Overdue, r.Period
	}
	if r.Began.Sub(r.Since) >= OverdueAfter(s) {
		switch s.Overdue {
		case fsm.SpreadOverdue:
			return fsm.ImportSpread, s.OverduePeriod
		case fsm.DropOverdue:
			return fsm.ImportDrop, 0
		case fsm.FireOverdue:
		}
	}
	return fsm.ImportFire, 0
}

// OverdueAfter is how long an outage lasts at least for the overdue policy of a queue to apply.
func OverdueAfter(s *fsm.Settings) fsm.Duration {
	if s.OverdueAfter == 0 {
		return fsm.DefaultOverdueAfter
	}
	return s.OverdueAfter
}
