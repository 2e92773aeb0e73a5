// Package format writes numbers, times and durations as the pages of the dashboard show them.
package format

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// timeFormat is the form of all times: with the offset of their zone, to the millisecond.
const timeFormat = "2006-01-02 15:04:05.000 -07:00"

// Clock writes times in the zone that the person chose.
type Clock struct {
	// Now is the time of the page.
	Now time.Time
	// Zone is the zone of all times.
	Zone *time.Location
}

// NowText is the time of the page.
func (c Clock) NowText() string { return c.Now.In(c.Zone).Format("2006-01-02 15:04:05 -07:00") }

// Text writes a time.
func (c Clock) Text(t *timestamppb.Timestamp) string { return t.AsTime().In(c.Zone).Format(timeFormat) }

// Relative writes how far away a time is.
func (c Clock) Relative(t *timestamppb.Timestamp) string {
	away := t.AsTime().Sub(c.Now)
	switch {
	case away > -time.Second && away < time.Second:
		return "now"
	case away < 0:
		return Span(-away) + " ago"
	default:
		return "in " + Span(away)
	}
}

// Duration writes a duration of the wire; nothing if it is not set.
func Duration(d *durationpb.Duration) string {
	if d == nil {
		return ""
	}
	return Span(d.AsDuration())
}

// Span writes a duration with its two largest units.
func Span(d time.Duration) string {
	if d < 0 {
		return "-" + Span(-d)
	}
	const day = 24 * time.Hour
	switch {
	case d == 0:
		return "0 s"
	case d < time.Millisecond:
		return fmt.Sprintf("%d µs", d.Microseconds())
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", d.Seconds()), ".0") + " s"
	case d < time.Hour:
		return two(int64(d/time.Minute), "m", int64(d%time.Minute/time.Second), "s")
	case d < day:
		return two(int64(d/time.Hour), "h", int64(d%time.Hour/time.Minute), "m")
	default:
		return two(int64(d/day), "d", int64(d%day/time.Hour), "h")
	}
}

func two(large int64, largeUnit string, small int64, smallUnit string) string {
	text := fmt.Sprintf("%s %s", Grouped(uint64(large)), largeUnit)
	if small != 0 {
		text += fmt.Sprintf(" %d %s", small, smallUnit)
	}
	return text
}

// thinSpace separates groups of three digits.
const thinSpace = "\u202f"

// Grouped writes a number with a narrow space after every three digits.
func Grouped[N uint32 | uint64](n N) string {
	digits := strconv.FormatUint(uint64(n), 10)
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + thinSpace + digits[at:]
	}
	return digits
}

// Size writes a number of bytes.
func Size(bytes uint64) string {
	units := []string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	if bytes < 1024 {
		return fmt.Sprintf("%d B", bytes)
	}
	value, unit := float64(bytes)/1024, 0
	for value >= 1024 && unit < len(units)-1 {
		value, unit = value/1024, unit+1
	}
	return fmt.Sprintf("%.1f %s", value, units[unit])
}

// Rate writes events per second.
func Rate(perSecond float64) string {
	switch {
	case perSecond == 0:
		return "0"
	case perSecond < 10:
		return fmt.Sprintf("%.2f", perSecond)
	default:
		return Grouped(uint64(perSecond + 0.5))
	}
}

// Word writes the name of a value of an enum in lower case, without its prefix.
func Word(value fmt.Stringer) string {
	name := value.String()
	for _, prefix := range []string{"JOB_STATE_", "TASK_ACT_", "NODE_STATE_", "OVERDUE_MODE_", "EXPIRE_TO_",
		"FIRING_RESULT_"} {
		name = strings.TrimPrefix(name, prefix)
	}
	return strings.ToLower(strings.ReplaceAll(name, "_", " "))
}

// Plural writes a number of things.
func Plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return strconv.Itoa(n) + " " + thing + "s"
}
