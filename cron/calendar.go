package cron

import "time"

const daySeconds = 24 * 60 * 60

// A monthShape is what decides which days of a month are in a set.
type monthShape struct {
	month  int // 1 to 12
	length int // in days
	first  int // the day of the week of its first day, 0 for Sunday
}

// weekday returns the day of the week of a day of the month.
func (m monthShape) weekday(day int) int { return (m.first + day - 1) % 7 }

// nearestWorkday returns the day from Monday to Friday that is nearest to day and in this month.
func (m monthShape) nearestWorkday(day int) int {
	switch m.weekday(day) {
	case 6: // Saturday
		if day == 1 {
			return 3
		}
		return day - 1
	case 0: // Sunday
		if day == m.length {
			return day - 2
		}
		return day + 1
	default:
		return day
	}
}

// lastWorkday returns the last day from Monday to Friday.
func (m monthShape) lastWorkday() int {
	day := m.length
	for m.weekday(day) == 0 || m.weekday(day) == 6 {
		day--
	}
	return day
}

// A month is a month of the calendar, at the day number of its first day, counted from 1970-01-01.
type month struct {
	year  int
	start int64
	monthShape
}

// monthOf returns the month of a day, and its place in it, from 1 on.
func monthOf(day int64) (m month, dayOfMonth int) {
	year, mon, d := time.Unix(day*daySeconds, 0).UTC().Date()
	m = month{year: year, start: day - int64(d-1)}
	m.month = int(mon)
	m.measure()
	return m, d
}

// measure derives the length and the first day of the week.
func (m *month) measure() {
	m.length = 31
	switch m.month {
	case 4, 6, 9, 11:
		m.length = 30
	case 2:
		m.length = 28
		if m.year%4 == 0 && (m.year%100 != 0 || m.year%400 == 0) {
			m.length = 29
		}
	}
	const thursday = 4 // 1970-01-01
	m.first = int(((m.start+thursday)%7 + 7) % 7)
}

// following returns the month after m.
func (m month) following() month {
	next := month{year: m.year, start: m.start + int64(m.length)}
	next.month = m.month + 1
	if next.month > 12 {
		next.year, next.month = m.year+1, 1
	}
	next.measure()
	return next
}

// The days from cycleFirst to cycleEnd have a month of every shape: each length of each month with each
// first day of the week. What has no day in them has none at all.
const (
	cycleFirst = 10957         // 2000-01-01, as a day since 1970
	cycleEnd   = 10957 + 10227 // 2028-01-01
)

// floorDiv returns a/b, rounded down.
func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// ceilDiv returns a/b, rounded up.
func ceilDiv(a, b int64) int64 { return -floorDiv(-a, b) }
