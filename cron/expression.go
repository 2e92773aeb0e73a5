package cron

import (
	"math/bits"
	"strings"
)

// An expression is a set of local times: those whose second, minute, hour and day it has.
type expression struct {
	second, minute uint64 // a bit for each value
	hour           uint32
	month          uint16
	days           daySet

	// repeats says that a second, minute or hour is written with * or /. Such times follow real time
	// when the clock changes; all others are fixed.
	repeats bool
	seconds bool      // it is written with a field of seconds
	text    [6]string // the fields in canonical form, in the order of the constants
}

// String returns the canonical form: numbers instead of names, * instead of ?, single spaces, no
// descriptor. It parses to the same expression.
func (e *expression) String() string {
	if e.seconds {
		return strings.Join(e.text[:], " ")
	}
	return strings.Join(e.text[1:], " ")
}

// A clockTime is a time of day in seconds.
type clockTime = int64

// clockNext returns the first time of day from from on.
func (e *expression) clockNext(from clockTime) (clockTime, bool) {
	h, m, s := int(from/3600), int(from/60%60), int(from%60)
	hour := bits.TrailingZeros32(e.hour >> h << h)
	if hour == 32 {
		return 0, false
	}
	if hour > h {
		return e.firstIn(hour), true
	}
	if e.second>>s == 0 { // no second is left in this minute
		m, s = m+1, 0
	}
	minute := bits.TrailingZeros64(e.minute >> m << m)
	if minute == 64 {
		hour = bits.TrailingZeros32(e.hour >> (h + 1) << (h + 1))
		if hour == 32 {
			return 0, false
		}
		return e.firstIn(hour), true
	}
	if minute > m {
		s = 0
	}
	return clockTime(hour*3600 + minute*60 + bits.TrailingZeros64(e.second>>s<<s)), true
}

// firstIn returns the first time in an hour.
func (e *expression) firstIn(hour int) clockTime {
	return clockTime(hour*3600 + bits.TrailingZeros64(e.minute)*60 + bits.TrailingZeros64(e.second))
}

// hasClock says whether a time of day is one of the expression's.
func (e *expression) hasClock(at clockTime) bool {
	return e.hour>>(at/3600)&1 == 1 && e.minute>>(at/60%60)&1 == 1 && e.second>>(at%60)&1 == 1
}

// in returns the days of a month that the expression has, a bit for each.
func (e *expression) in(m monthShape) uint32 {
	if e.month>>m.month&1 == 0 {
		return 0
	}
	if e.days.anyOfMonth || e.days.anyOfWeek {
		return e.days.inMonth(m) & e.days.inWeeks(m)
	}
	return e.days.inMonth(m) | e.days.inWeeks(m)
}

// firstDay returns the first day of the expression in the cycle, and false if it has none in any year.
func (e *expression) firstDay() (int64, bool) {
	for m, _ := monthOf(cycleFirst); m.start < cycleEnd; m = m.following() {
		for day := 1; day <= m.length; day++ {
			if e.in(m.monthShape)>>day&1 == 1 {
				return m.start + int64(day-1), true
			}
		}
	}
	return 0, false
}
