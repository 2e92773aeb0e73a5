package wire

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// ErrDuration is the error for a duration with a wrong form. It names every form.
var ErrDuration = errors.New(`want a duration such as "300s", "5m", "1h30m", "7d" or a number of seconds`)

// errDurationRange says that a duration has the right form and is too long for any field.
var errDurationRange = errors.New("the duration is longer than 292 years")

// ParseDuration reads a duration in one of three forms: Go's notation ("300ms", "1h30m"), the same
// with days of 24 hours as the first unit ("7d", "1d12h"), or a bare number of seconds. It is exact
// to the nanosecond. It rounds a finer number of seconds up in amount, so that a delay never
// becomes shorter than written. In Go's notation, [time.ParseDuration] drops finer digits.
func ParseDuration(text string) (time.Duration, error) {
	if len(text) == 0 || len(text) > 64 {
		return 0, ErrDuration
	}
	if last := text[len(text)-1]; last >= '0' && last <= '9' || last == '.' {
		return parseSeconds(text)
	}
	sign, rest := time.Duration(1), text
	if rest[0] == '-' || rest[0] == '+' {
		if rest[0] == '-' {
			sign = -1
		}
		rest = rest[1:]
	}
	var sum time.Duration
	if days, after, ok := strings.Cut(rest, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 32)
		if err != nil {
			return 0, ErrDuration
		}
		if n > uint64(math.MaxInt64/(24*time.Hour)) {
			return 0, errDurationRange
		}
		sum, rest = time.Duration(n)*24*time.Hour, after
		if rest == "" {
			return sign * sum, nil
		}
	}
	if rest == "" || rest[0] == '-' || rest[0] == '+' {
		return 0, ErrDuration
	}
	d, err := time.ParseDuration(rest)
	if err != nil {
		return 0, ErrDuration
	}
	if sum+d < sum {
		return 0, errDurationRange
	}
	return sign * (sum + d), nil
}

// parseSeconds reads a decimal number of seconds, as JSON writes numbers.
func parseSeconds(text string) (time.Duration, error) {
	negative := strings.HasPrefix(text, "-")
	digits := strings.TrimPrefix(text, "-")
	if strings.ContainsAny(digits, "eE") {
		return parseScientific(digits, negative)
	}
	whole, fraction, _ := strings.Cut(digits, ".")
	if whole == "" || strings.Trim(whole, "0123456789") != "" || strings.Trim(fraction, "0123456789") != "" {
		return 0, ErrDuration
	}
	seconds, err := strconv.ParseUint(whole, 10, 64)
	if err != nil || seconds > uint64(math.MaxInt64/time.Second)-1 {
		return 0, errDurationRange
	}
	var finer bool
	if len(fraction) > 9 {
		finer = strings.Trim(fraction[9:], "0") != ""
		fraction = fraction[:9]
	}
	var nanos uint64
	if fraction != "" {
		if nanos, err = strconv.ParseUint(fraction, 10, 64); err != nil {
			return 0, ErrDuration
		}
		for range 9 - len(fraction) {
			nanos *= 10
		}
	}
	d := time.Duration(seconds)*time.Second + time.Duration(nanos)
	if finer {
		d++
	}
	if negative {
		d = -d
	}
	return d, nil
}

// parseScientific reads a number of seconds with an exponent. Such a number is approximate.
func parseScientific(digits string, negative bool) (time.Duration, error) {
	if digits[0] < '0' || digits[0] > '9' {
		return 0, ErrDuration
	}
	seconds, err := strconv.ParseFloat(digits, 64)
	if errors.Is(err, strconv.ErrSyntax) {
		return 0, ErrDuration
	}
	if err != nil || seconds >= float64(math.MaxInt64/time.Second) {
		return 0, errDurationRange
	}
	d := time.Duration(math.Ceil(seconds * float64(time.Second)))
	if negative {
		d = -d
	}
	return d, nil
}

// Year is the length of a year in limits: 365.25 days.
const Year = 365*24*time.Hour + 6*time.Hour

// FormatDuration writes a duration for people: "24h", "1m30s", and "100y (876600h)", since years,
// of 365.25 days, are not read as a unit.
func FormatDuration(d time.Duration) string {
	if d != 0 && d%Year == 0 {
		return fmt.Sprintf("%dy (%dh)", d/Year, d/time.Hour)
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
