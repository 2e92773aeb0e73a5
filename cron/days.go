package cron

import (
	"fmt"
	"strconv"
	"strings"
)

// A daySet is a set of days: those of the month, and those of the week.
type daySet struct {
	ofMonth     uint32 // a bit for each of 1 to 31
	fromLast    uint32 // a bit for each n of L-n, 0 for L
	nearest     uint32 // a bit for each day before W, as in 15W
	lastWorkday bool   // LW
	anyOfMonth  bool   // the field begins with *

	ofWeek    uint8    // a bit for each of 0 to 6, Sunday first
	nth       [7]uint8 // for each day of the week a bit for each k of n#k
	last      uint8    // a bit for each day before L, as in 5L
	anyOfWeek bool     // the field begins with *
}

// parseOfMonth reads L, LW, and such as L-3 and 15W. ok says whether the item is one of them.
func (d *daySet) parseOfMonth(item string) (canonical, problem string, ok bool) {
	upper := strings.ToUpper(item)
	before, workday := strings.CutSuffix(upper, "W")
	back, fromLast := strings.CutPrefix(upper, "L-")
	switch {
	case upper == "L":
		d.fromLast |= 1
	case upper == "LW":
		d.lastWorkday = true
	case fromLast:
		n, isNumber := number(back)
		if !isNumber || n > 30 {
			return "", fmt.Sprintf("%q: the days before the last are 0-30", item), true
		}
		d.fromLast |= 1 << n
		if n == 0 {
			return "L", "", true
		}
		return "L-" + strconv.Itoa(n), "", true
	case workday:
		n, isNumber := number(before)
		if !isNumber || n < 1 || n > 31 {
			return "", fmt.Sprintf("%q: the day before W is L or in 1-31", item), true
		}
		d.nearest |= 1 << n
		return strconv.Itoa(n) + "W", "", true
	default:
		return "", "", false
	}
	return upper, "", true
}

// parseOfWeek reads such as 5L and 5#2. ok says whether the item is one of them.
func (d *daySet) parseOfWeek(item string) (canonical, problem string, ok bool) {
	if strings.EqualFold(item, "L") {
		return "", `"L" needs a day before it, as in 5L, the last Friday of the month`, true
	}
	if day, isLast := strings.CutSuffix(strings.ToUpper(item), "L"); isLast {
		n, problem := fieldDayOfWeek.value(day, item)
		d.last |= 1 << (n % 7)
		return strconv.Itoa(n%7) + "L", problem, true
	}
	day, nth, isNth := strings.Cut(item, "#")
	if !isNth {
		return "", "", false
	}
	n, problem := fieldDayOfWeek.value(day, item)
	if problem != "" {
		return "", problem, true
	}
	k, isNumber := number(nth)
	if !isNumber || k < 1 || k > 5 {
		return "", fmt.Sprintf("%q: a month has such a day 1-5 times", item), true
	}
	d.nth[n%7] |= 1 << k
	return strconv.Itoa(n%7) + "#" + strconv.Itoa(k), "", true
}

// inMonth returns the days that the day of the month allows.
func (d *daySet) inMonth(m monthShape) uint32 {
	valid := uint32(1)<<(m.length+1) - 2
	days := d.ofMonth & valid
	for n := 0; d.fromLast>>n != 0; n++ {
		if d.fromLast>>n&1 == 1 && m.length > n {
			days |= 1 << (m.length - n)
		}
	}
	for n := 1; d.nearest>>n != 0; n++ {
		if d.nearest>>n&1 == 1 && n <= m.length {
			days |= 1 << m.nearestWorkday(n)
		}
	}
	if d.lastWorkday {
		days |= 1 << m.lastWorkday()
	}
	return days
}

// inWeeks returns the days that the day of the week allows.
func (d *daySet) inWeeks(m monthShape) uint32 {
	week := (uint32(d.ofWeek)>>m.first | uint32(d.ofWeek)<<(7-m.first)) & 0x7f // from the first of the month on
	days := (week | week<<7 | week<<14 | week<<21 | week<<28) << 1
	if d.last != 0 || d.nth != [7]uint8{} {
		for day := 1; day <= m.length; day++ {
			w := m.weekday(day)
			if d.nth[w]>>((day+6)/7)&1 == 1 || d.last>>w&1 == 1 && day+7 > m.length {
				days |= 1 << day
			}
		}
	}
	return days & (1<<(m.length+1) - 2)
}
