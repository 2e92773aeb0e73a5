package report

import (
	"math"
	"slices"
)

// recovery is what came after the last of the faults under way had ended.
type recovery struct {
	fault int // its index among the faults
	// after is until the end of the first second in which the throughput was back, so it is a second
	// too long at most.
	after float64
	// back is false if the next fault began, or clients stopped, before that.
	back bool
}

// recoveries looks, for each moment at which every fault has ended, for the second in which at
// least half of the usual calls were applied again. Usual is the median of the seconds in which
// clients worked and any call was applied. A run that applied nothing has none.
func (r *Report) recoveries() []recovery {
	loaded := r.Seconds[:min(len(r.Seconds), int(r.LoadSeconds))]
	usual := usualApplied(loaded)
	if usual == 0 {
		return nil
	}
	var found []recovery
	for i := 0; i < len(r.Faults); {
		last, next := i, i+1
		for ; next < len(r.Faults) && r.Faults[next].From <= r.Faults[last].To; next++ {
			if r.Faults[next].To > r.Faults[last].To {
				last = next
			}
		}
		i = next
		healed, until := r.Faults[last].To, float64(len(loaded))
		if next < len(r.Faults) {
			until = min(until, r.Faults[next].From)
		}
		if healed >= until {
			continue // no client was there to see it
		}
		rec := recovery{fault: last, after: until - healed}
		for at := int(healed); at < int(math.Ceil(until)); at++ {
			if 2*loaded[at].Applied >= usual {
				rec.after, rec.back = float64(at+1)-healed, true
				break
			}
		}
		found = append(found, rec)
	}
	return found
}

func usualApplied(seconds []Second) int64 {
	var applied []int64
	for _, s := range seconds {
		if s.Applied > 0 {
			applied = append(applied, s.Applied)
		}
	}
	if len(applied) == 0 {
		return 0
	}
	slices.Sort(applied)
	return applied[len(applied)/2]
}
