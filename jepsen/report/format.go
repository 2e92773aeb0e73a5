package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
)

// grouped writes a number with a comma between thousands.
func grouped(n int64) string {
	text := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, text = "-", text[1:]
	}
	var b strings.Builder
	for i, digit := range text {
		if i > 0 && (len(text)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(digit)
	}
	return sign + b.String()
}

// clock writes a time of the run as on a stopwatch: 1:05, or 1:00:05 from an hour on.
func clock(seconds float64) string {
	s := int64(seconds)
	if s < 3600 {
		return fmt.Sprintf("%d:%02d", s/60, s%60)
	}
	return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
}

// clockTenths is clock with a tenth of a second.
func clockTenths(seconds float64) string {
	tenths := int64(math.Floor(seconds * 10))
	return fmt.Sprintf("%s.%d", clock(float64(tenths/10)), tenths%10)
}

// span writes a length of time.
func span(seconds float64) string {
	whole := int64(math.Round(seconds))
	switch {
	case seconds >= 3600:
		return parts(whole/60, 60, "h", "min")
	case seconds >= 120:
		return parts(whole, 60, "min", "s")
	case seconds >= 10:
		return strconv.FormatFloat(seconds, 'f', 0, 64) + " s"
	case seconds >= 0.0995:
		return strconv.FormatFloat(seconds, 'f', 1, 64) + " s"
	case seconds >= 0.001:
		return strconv.FormatFloat(seconds*1000, 'f', 0, 64) + " ms"
	case seconds > 0:
		return "< 1 ms"
	default:
		return "0 s"
	}
}

// parts writes n in two units, of which the larger is so many of the smaller.
func parts(n, each int64, larger, smaller string) string {
	text := fmt.Sprintf("%d %s", n/each, larger)
	if n%each > 0 {
		text += fmt.Sprintf(" %d %s", n%each, smaller)
	}
	return text
}

// short writes a number for an axis.
func short(v float64) string {
	switch {
	case v >= 1e6:
		return strconv.FormatFloat(v/1e6, 'g', 3, 64) + "M"
	case v >= 1e3:
		return strconv.FormatFloat(v/1e3, 'g', 3, 64) + "k"
	default:
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
}

// oneLine makes a text fit for one line of a terminal: what is not to be seen, and what moves the
// cursor or turns the writing round, becomes a space.
func oneLine(text string) string {
	visible := strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return ' '
		}
		return c
	}, text)
	return strings.Join(strings.Fields(visible), " ")
}

// cut shortens a text to so many characters.
func cut(text string, width int) string {
	if runes := []rune(text); len(runes) > width {
		return string(runes[:width-1]) + "…"
	}
	return text
}
