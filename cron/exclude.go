package cron

import "math/bits"

// excludeSetsMax is how many different sets of excludes the days of a rule may have. A list of
// holidays has as many as it has expressions, and twice as many with weekends.
const excludeSetsMax = 1000

// An excludeSet is a set of excludes, a bit for each: those that have a day in common.
type excludeSet uint32

// excludesOfMonth has the days of a month that each exclude has.
type excludesOfMonth [excludesMax]uint32

// enter begins a month.
func (x *excludesOfMonth) enter(excludes []*expression, m monthShape) {
	for i, e := range excludes {
		x[i] = e.in(m)
	}
}

// on returns the excludes that have a day of the month.
func (x *excludesOfMonth) on(day, excludes int) (set excludeSet) {
	for i := range excludes {
		set |= excludeSet(x[i] >> day & 1 << i)
	}
	return set
}

// emptyDays returns the sets of excludes that leave nothing of a day of e, and whether all days of e
// have one of these. ok is false if there are too many sets to look at.
func emptyDays(e *expression, excludes []*expression) (empty map[excludeSet]bool, all, ok bool) {
	seen := make(map[excludeSet]bool)
	empty, all = make(map[excludeSet]bool), true
	var of excludesOfMonth
	for m, _ := monthOf(cycleFirst); m.start < cycleEnd; m = m.following() {
		of.enter(excludes, m.monthShape)
		for days := e.in(m.monthShape); days != 0; days &= days - 1 {
			set := of.on(bits.TrailingZeros32(days), len(excludes))
			if seen[set] {
				continue
			}
			if len(seen) == excludeSetsMax {
				return nil, false, false
			}
			seen[set] = true
			if _, left := leftOfDay(e, excludes, set, 0); left {
				all = false
			} else {
				empty[set] = true
			}
		}
	}
	return empty, all, true
}

// leftOfDay returns the first time of e at from or after it that no exclude of a set has.
func leftOfDay(e *expression, excludes []*expression, set excludeSet, from clockTime) (clockTime, bool) {
	if set == 0 {
		return e.clockNext(from)
	}
	first := from / 3600
	for hour := first; hour < 24; hour++ {
		if e.hour>>hour&1 == 0 {
			continue
		}
		var within clockTime
		if hour == first {
			within = from % 3600
		}
		if at, ok := leftOfHour(e, excludes, set, hour*3600+within); ok {
			return at, true
		}
	}
	return 0, false
}

// leftOfHour returns the first time of e that is at from or after it, in the same hour, and that no
// exclude of a set has. The hour is one of e's.
func leftOfHour(e *expression, excludes []*expression, set excludeSet, from clockTime) (clockTime, bool) {
	hour, m, second := from/3600, int(from/60%60), int(from%60)
	minutes := e.minute >> m << m
	var partial uint32 // excludes that leave some seconds of a minute
	for ; set != 0; set &= set - 1 {
		i := bits.TrailingZeros32(uint32(set))
		switch x := excludes[i]; {
		case x.hour>>hour&1 == 0:
		case e.second&^x.second == 0:
			minutes &^= x.minute
		default:
			partial |= 1 << i
		}
	}
	for ; minutes != 0; minutes &= minutes - 1 {
		minute := bits.TrailingZeros64(minutes)
		seconds := e.second
		if minute == m {
			seconds = seconds >> second << second
		}
		for rest := partial; rest != 0; rest &= rest - 1 {
			if x := excludes[bits.TrailingZeros32(rest)]; x.minute>>minute&1 == 1 {
				seconds &^= x.second
			}
		}
		if seconds != 0 {
			return hour*3600 + int64(minute*60+bits.TrailingZeros64(seconds)), true
		}
	}
	return 0, false
}
