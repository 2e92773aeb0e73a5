package redisson

import (
	"fmt"
	"math"
	"strconv"
)

// scoreEnd is the first score that Redis may write with an exponent, which Redisson does not read.
const scoreEnd = 1e17

// ParseScore reads a score of the timer, in the form that Redis writes, as the due time in Unix
// milliseconds: from 0 to 1e17-1. Zero, also as "-0", is a due time, because Redisson's transfer
// moves scores from 0 on.
//
// It refuses scores that Redisson does not move, or on which its clients fail, and says which kind
// it is: negative, with a fraction, 1e17 or more, infinite, not a number, or not in the form of a
// number of Redis.
func ParseScore(s string) (ms int64, err error) {
	ms, err = strconv.ParseInt(s, 10, 64)
	if err == nil && ms >= 0 && ms < scoreEnd && (s == strconv.FormatInt(ms, 10) || s == "-0") {
		return ms, nil
	}
	value, err := strconv.ParseFloat(s, 64)
	switch {
	case err != nil:
		return 0, fmt.Errorf("the score %.40q is no number", s)
	case math.IsNaN(value):
		return 0, fmt.Errorf("the score %q is not a number, so no due time", s)
	case math.IsInf(value, 0):
		return 0, fmt.Errorf("the score %q is infinite, so no due time", s)
	case value < 0:
		return 0, fmt.Errorf("the score %q is negative: Redisson never delivers the entry, and its clients do not come to "+
			"rest", s)
	case value >= scoreEnd:
		return 0, fmt.Errorf("the score %q is 1e17 milliseconds or more, which Redisson cannot read", s)
	case value != math.Trunc(value):
		return 0, fmt.Errorf("the score %q is no whole number of milliseconds, which Redisson cannot read", s)
	default:
		return 0, fmt.Errorf("the score %.40q is not written as Redis writes one", s)
	}
}
