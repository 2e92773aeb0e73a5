package fsm

import (
	"strconv"
	"strings"
)

// FormatTime returns a time in RFC 3339, in UTC, with as many digits of the second as it needs. The
// calendar is computed here because a machine may not ask the time package for one.
func FormatTime(t Time) string {
	days, rest := t/Day, t%Day
	year, month, day := civil(int64(days))
	text := pad(year, 4) + "-" + pad(month, 2) + "-" + pad(day, 2) + "T" + pad(int64(rest/Hour), 2) + ":" +
		pad(int64(rest%Hour/Minute), 2) + ":" + pad(int64(rest%Minute/second), 2)
	if part := rest % second; part != 0 {
		text += "." + strings.TrimRight(pad(int64(part), 9), "0")
	}
	return text + "Z"
}

const second = Time(1_000_000_000)

func pad(n int64, digits int) string {
	s := strconv.FormatInt(n, 10)
	return strings.Repeat("0", max(0, digits-len(s))) + s
}

// civil returns the date of a day since the epoch, which is not negative. A year begins in March here,
// so that the leap day is its last. (Algorithm: H. Hinnant, "chrono-Compatible Low-Level Date
// Algorithms".)
func civil(days int64) (year, month, day int64) {
	days += 719_468 // since 0000-03-01
	era, ofEra := days/146_097, days%146_097
	yearOfEra := (ofEra - ofEra/1460 + ofEra/36_524 - ofEra/146_096) / 365
	ofYear := ofEra - (365*yearOfEra + yearOfEra/4 - yearOfEra/100)
	shifted := (5*ofYear + 2) / 153 // months since March
	day = ofYear - (153*shifted+2)/5 + 1
	year = yearOfEra + era*400
	if month = shifted + 3; month > 12 {
		month, year = month-12, year+1
	}
	return year, month, day
}
