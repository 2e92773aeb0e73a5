// Package render writes values as text for people: numbers, times, tables and bars.
package render

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Rows writes a table with a heading and columns as wide as needed.
func Rows(w io.Writer, heading []string, lines [][]string) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, strings.Join(heading, "\t"))
	for _, line := range lines {
		cells := make([]string, len(line))
		for i, cell := range line {
			cells[i] = printable(cell)
		}
		fmt.Fprintln(table, strings.Join(cells, "\t"))
	}
	table.Flush() //nolint:errcheck // w is memory
}

// printable returns a text with a dot for what would end its line, leave its column or command the
// terminal.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '·'
		}
		return r
	}, text)
}

// Fields writes names and values, one a line; what has no value is left out. What would command the
// terminal is a dot.
func Fields(w io.Writer, pairs ...string) {
	widest := 0
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			widest = max(widest, len(pairs[i]))
		}
	}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			fmt.Fprintf(w, "%-*s  %s\n", widest, pairs[i], printable(pairs[i+1]))
		}
	}
}

// Word returns an enum value in lower case and without its prefix: JOB_STATE_DEAD is "dead".
func Word(value interface{ String() string }) string {
	text := value.String()
	for _, prefix := range []string{"JOB_STATE_", "OVERDUE_MODE_", "EXPIRE_TO_", "REASON_", "NODE_STATE_", "TASK_ACT_"} {
		text = strings.TrimPrefix(text, prefix)
	}
	return strings.ToLower(text)
}

// Count writes a number of things: "1 job", "2,000 jobs".
func Count[T uint32 | uint64 | int](n T, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return Grouped(uint64(n)) + " " + thing + "s"
}

// Moment writes a time to the millisecond, in the reader's time zone, and how far it is from now.
func Moment(at *timestamppb.Timestamp, now time.Time) string {
	if at == nil {
		return ""
	}
	t := at.AsTime()
	return t.In(now.Location()).Format("2006-01-02 15:04:05.000 -07:00") + " (" + relative(t.Sub(now)) + ")"
}

// relative writes how far off a time is.
func relative(d time.Duration) string {
	switch {
	case d < 0:
		return Short(-d) + " ago"
	default:
		return "in " + Short(d)
	}
}

// Short writes a duration with the precision that a person cares about at its length.
func Short(d time.Duration) string {
	const day = 24 * time.Hour
	switch days, hours := d.Round(day), d.Round(time.Hour); {
	case days >= 100*day:
		return fmt.Sprintf("%dd", days/day)
	case d.Round(time.Second) >= day:
		return strings.Replace(fmt.Sprintf("%dd%dh", hours/day, hours%day/time.Hour), "d0h", "d", 1)
	case d.Round(100*time.Millisecond) >= time.Minute:
		text := d.Round(time.Second).String()
		if strings.HasSuffix(text, "m0s") {
			text = strings.TrimSuffix(text, "0s")
		}
		if strings.HasSuffix(text, "h0m") {
			text = strings.TrimSuffix(text, "0m")
		}
		return text
	case d >= time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(100 * time.Microsecond).String()
	default:
		return d.Round(time.Microsecond).String()
	}
}

// Duration writes a duration as it was set.
func Duration(d *durationpb.Duration) string {
	if d == nil {
		return ""
	}
	return Short(d.AsDuration())
}

// Durations writes several durations.
func Durations(list []*durationpb.Duration) string {
	var texts []string
	for _, d := range list {
		texts = append(texts, Duration(d))
	}
	return strings.Join(texts, ", ")
}

// After returns the time d after now.
func After(now time.Time, d time.Duration) *timestamppb.Timestamp {
	return timestamppb.New(now.Add(d))
}

// Preview returns the beginning of a body on one line, or what kind of bytes it is.
func Preview(body []byte, columns int) string {
	if len(body) == 0 {
		return ""
	}
	if !utf8.Valid(body) {
		return fmt.Sprintf("(%s, not text)", Size(uint64(len(body))))
	}
	var text strings.Builder
	used := 0
	for _, r := range string(body) {
		if !unicode.IsPrint(r) {
			r = '·'
		}
		if used++; used > columns {
			return text.String() + "…"
		}
		text.WriteRune(r)
	}
	return text.String()
}

// Size writes a number of bytes with a unit.
func Size(n uint64) string {
	if n < 1<<10 {
		return Count(n, "byte")
	}
	units := []string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	value := float64(n) / (1 << 10)
	unit := 0
	for value >= 1<<10 && unit < len(units)-1 {
		value /= 1 << 10
		unit++
	}
	return fmt.Sprintf("%.1f %s", value, units[unit])
}

// OrDash writes a dash for what there is none of.
func OrDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
