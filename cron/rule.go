package cron

import (
	"iter"
	"math/bits"
	"time"
)

// A Rule says when a schedule fires. It never changes, and any goroutine may use it.
//
// A Rule knows the years 1900 to 2199: no firing is found beyond them.
type Rule struct {
	expression *expression // with every: all times, for what excludes leave of them
	excludes   []*expression
	empty      map[excludeSet]bool // excludes that leave nothing of a day
	zone       *Zone
	dst        DST

	every, phase int64 // in milliseconds; every is 0 with an expression
	start, end   int64 // the first and the last millisecond at which the rule may fire
	jitter       time.Duration
	warnings     []string
}

// excludedMax is how often a rule with every goes on to the next time that is not excluded, and finds
// that it does not fire in the second of it, before Next takes the rule for ended.
const excludedMax = 10_000

// Next returns the first firing strictly after after, and false if there is none: after Spec.End and
// beyond the horizon of Rule. With Spec.Every it also gives up after 10,000 stretches of time that
// excludes leave and in which the rule does not fire. The time is in the rule's zone, in UTC with
// Spec.Every; it is exact to the second, with Spec.Every to the millisecond.
//
// The work is bounded: it looks at the days up to the one that it finds, or up to the horizon.
func (r *Rule) Next(after time.Time) (time.Time, bool) {
	after = clamp(after)
	from := after.UnixMilli() + 1
	at, ok := r.next(max(from, r.start))
	if !ok || at > r.end {
		return time.Time{}, false
	}
	if r.every > 0 {
		return time.UnixMilli(at).UTC(), true
	}
	return time.UnixMilli(at).In(r.zone.location), true
}

// clamp moves a time into what milliseconds since 1970 can count, without changing what comes next.
func clamp(t time.Time) time.Time {
	if s := t.Unix(); s < horizonFirst {
		return time.Unix(horizonFirst, 0).Add(-time.Millisecond)
	} else if s > horizonEnd {
		return time.Unix(horizonEnd, 0)
	}
	return t
}

// next returns the first firing at from or after it, in milliseconds, without regard to the bounds.
func (r *Rule) next(from int64) (int64, bool) {
	if r.every > 0 {
		return r.everyNext(from)
	}
	at, ok := r.instant(ceilDiv(from, 1000))
	return at * 1000, ok
}

// everyNext is next with every.
func (r *Rule) everyNext(from int64) (int64, bool) {
	for range excludedMax {
		at := ceilDiv(from-r.phase, r.every)*r.every + r.phase
		if at >= horizonEnd*1000 {
			return 0, false
		}
		if len(r.excludes) == 0 {
			return at, true
		}
		second := floorDiv(at, 1000)
		allowed, ok := r.instant(second)
		if !ok {
			return 0, false
		}
		if allowed == second {
			return at, true
		}
		from = allowed * 1000
	}
	return 0, false
}

// instant returns the first second, since 1970, at from or after it at which the expression fires.
func (r *Rule) instant(from int64) (int64, bool) {
	once := r.every == 0 && (r.dst == Skip || r.dst == Once && !r.expression.repeats)
	moves := once && r.dst == Once
	for i := r.zone.spanAt(from); i < len(r.zone.spans); i++ {
		s := &r.zone.spans[i]
		local := max(from, s.start) + s.offset
		if moves && from <= s.start && r.fallsInto(s.passed, local) {
			return s.start, true
		}
		if once {
			local = max(local, s.passed)
		}
		if at, ok := r.localNext(local, s.end+s.offset); ok {
			return at - s.offset, true
		}
	}
	return 0, false
}

// fallsInto says whether a time of the expression is in a gap, and is not excluded at its end. It has
// no time if the end is not after the beginning, as of a span that does not begin with a gap.
func (r *Rule) fallsInto(gap, end int64) bool {
	if _, ok := r.localNext(gap, end); !ok {
		return false
	}
	m, day := monthOf(floorDiv(end, daySeconds))
	for _, e := range r.excludes {
		if e.in(m.monthShape)>>day&1 == 1 && e.hasClock(end-floorDiv(end, daySeconds)*daySeconds) {
			return false
		}
	}
	return true
}

// localNext returns the first local time of the expression that no exclude has, at from or after it
// and before limit. Local times are in seconds, as if the zone were UTC.
func (r *Rule) localNext(from, limit int64) (int64, bool) {
	day := floorDiv(from, daySeconds)
	clock := from - day*daySeconds
	m, dayOfMonth := monthOf(day)
	var excludes excludesOfMonth
	for m.start*daySeconds < limit {
		days := r.expression.in(m.monthShape) >> dayOfMonth << dayOfMonth
		if days != 0 && len(r.excludes) > 0 {
			excludes.enter(r.excludes, m.monthShape)
		}
		for ; days != 0; days &= days - 1 {
			d := bits.TrailingZeros32(days)
			if d != dayOfMonth {
				clock = 0
			}
			if at, ok := r.clockNext(clock, d, &excludes); ok {
				at += (m.start + int64(d-1)) * daySeconds
				return at, at < limit
			}
		}
		m, dayOfMonth, clock = m.following(), 1, 0
	}
	return 0, false
}

// clockNext returns the first time of day d of a month that is from from on, and not excluded.
func (r *Rule) clockNext(from clockTime, d int, excludes *excludesOfMonth) (clockTime, bool) {
	if len(r.excludes) == 0 {
		return r.expression.clockNext(from)
	}
	set := excludes.on(d, len(r.excludes))
	if r.empty[set] {
		return 0, false
	}
	return leftOfDay(r.expression, r.excludes, set, from)
}

// Prev returns the last firing strictly before before, and false if there is none.
func (r *Rule) Prev(before time.Time) (time.Time, bool) {
	before = clamp(before)
	limit := min(before.UnixMilli(), r.end+1) // a firing is in whole milliseconds: it is before limit
	if before.After(time.UnixMilli(before.UnixMilli())) {
		limit = min(before.UnixMilli()+1, r.end+1)
	}
	found, ok := int64(0), false
	low := limit
	for back := int64(1000); !ok && low > r.start; back *= 2 {
		low = max(limit-back, r.start)
		found, ok = r.next(low)
		ok = ok && found < limit
	}
	if !ok {
		return time.Time{}, false
	}
	for low, high := found+1, limit; low < high; { // from high on, none is before limit
		middle := low + (high-low)/2
		if at, ok := r.next(middle); ok && at < limit {
			found, low = at, at+1
		} else {
			high = middle
		}
	}
	if r.every > 0 {
		return time.UnixMilli(found).UTC(), true
	}
	return time.UnixMilli(found).In(r.zone.location), true
}

// Times returns the firings strictly after after, in order, until there are no more.
func (r *Rule) Times(after time.Time) iter.Seq[time.Time] {
	return func(yield func(time.Time) bool) {
		for t, ok := r.Next(after); ok; t, ok = r.Next(t) {
			if !yield(t) {
				return
			}
		}
	}
}

// Jitter returns Spec.Jitter.
func (r *Rule) Jitter() time.Duration { return r.jitter }

// Zone returns the zone of the rule's times: UTC with Spec.Every.
func (r *Rule) Zone() *time.Location {
	if r.every > 0 {
		return time.UTC
	}
	return r.zone.location
}

// Warnings returns what a user should know about the rule, a sentence each: it is valid, and may
// mean something else than intended. The caller must not change the slice.
func (r *Rule) Warnings() []string { return r.warnings }

// String returns the canonical form of the expression (numbers instead of names, the fields instead
// of a descriptor), or the interval and its phase, as in "every 5m0s phase 1m0s".
func (r *Rule) String() string {
	if r.every == 0 {
		return r.expression.String()
	}
	text := "every " + (time.Duration(r.every) * time.Millisecond).String()
	if r.phase != 0 {
		text += " phase " + (time.Duration(r.phase) * time.Millisecond).String()
	}
	return text
}
