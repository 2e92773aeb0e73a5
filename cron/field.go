package cron

import (
	"fmt"
	"strconv"
	"strings"
)

// A field is a field of an expression.
type field int

// The fields, in their order.
const (
	fieldSecond field = iota
	fieldMinute
	fieldHour
	fieldDayOfMonth
	fieldMonth
	fieldDayOfWeek
)

// Names of three letters each.
const (
	monthNames = "JANFEBMARAPRMAYJUNJULAUGSEPOCTNOVDEC"
	dayNames   = "SUNMONTUEWEDTHUFRISAT"
)

// String returns the name of the field.
func (f field) String() string {
	switch f {
	case fieldSecond:
		return "second"
	case fieldMinute:
		return "minute"
	case fieldHour:
		return "hour"
	case fieldDayOfMonth:
		return "day of month"
	case fieldMonth:
		return "month"
	default:
		return "day of week"
	}
}

// bounds returns the values that may be written.
func (f field) bounds() (low, high int) {
	switch f {
	case fieldHour:
		return 0, 23
	case fieldDayOfMonth:
		return 1, 31
	case fieldMonth:
		return 1, 12
	case fieldDayOfWeek:
		return 0, 7
	default:
		return 0, 59
	}
}

// all returns the values that * stands for: those that may be written, with Sunday once.
func (f field) all() (low, high int) {
	low, high = f.bounds()
	if f == fieldDayOfWeek {
		high = 6
	}
	return low, high
}

// names returns the names that the field's values have, beginning with the lowest.
func (f field) names() string {
	switch f {
	case fieldMonth:
		return monthNames
	case fieldDayOfWeek:
		return dayNames
	default:
		return ""
	}
}

// value reads a number or a name, which is a part of item.
func (f field) value(word, item string) (v int, problem string) {
	low, high := f.bounds()
	if v, ok := number(word); ok {
		if v < low || v > high {
			return 0, fmt.Sprintf("%q is not in %d-%d", item, low, high)
		}
		return v, ""
	}
	names := f.names()
	if len(word) == 3 {
		if i := strings.Index(names, strings.ToUpper(word)); i >= 0 && i%3 == 0 {
			return low + i/3, ""
		}
	}
	if names != "" {
		return 0, fmt.Sprintf("%q is neither in %d-%d nor a name of three letters, %s to %s",
			item, low, high, names[:3], names[len(names)-3:])
	}
	return 0, fmt.Sprintf("%q is no number, range or step; numbers are %d-%d", item, low, high)
}

// forwards returns what to write instead of a range that goes backwards; last is the value of to.
func (f field) forwards(from, to string, last int) string {
	low, high := f.bounds()
	if f == fieldDayOfWeek {
		low = 1 // the range before has Sunday
	}
	lowText, highText := strconv.Itoa(low), strconv.Itoa(high)
	if _, ok := number(from); !ok {
		names := f.names()
		highText, lowText = names[len(names)-3:], names[:3]
		if f == fieldDayOfWeek {
			highText, lowText = "SUN", "MON"
		}
	}
	text := from + "-" + highText
	switch {
	case last < low:
		return text
	case last == low:
		return text + "," + to
	default:
		return text + "," + lowText + "-" + to
	}
}

// number returns the value of a word of decimal digits.
func number(word string) (int, bool) {
	if word == "" || len(word) > 9 {
		return 0, false
	}
	v := 0
	for _, c := range []byte(word) {
		if c < '0' || c > '9' {
			return 0, false
		}
		v = v*10 + int(c-'0')
	}
	return v, true
}
