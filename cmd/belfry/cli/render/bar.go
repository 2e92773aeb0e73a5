package render

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

const (
	barColumns   = 30
	fullBlock    = "█"
	eighthBlocks = " ▏▎▍▌▋▊▉"
)

// Canvas is what bars are drawn on.
type Canvas struct {
	Columns int
	// Blocks tells that a bar may end in an eighth of a column; else it is of ASCII.
	Blocks bool
}

// DueSums writes in one line when jobs fall due, empty if none does.
func DueSums(d *belfryv1.DueHistogram) string {
	if d.GetOverdue()+d.GetNextMonth()+d.GetLater() == 0 {
		return ""
	}
	return fmt.Sprintf("%s overdue; within 1m %s, 1h %s, 1d %s, 30d %s; later %s",
		Jobs(d.GetOverdue()), Jobs(d.GetNextMinute()), Jobs(d.GetNextHour()), Jobs(d.GetNextDay()), Jobs(d.GetNextMonth()),
		Jobs(d.GetLater()))
}

// Due draws when jobs fall due: the next hour by five minutes, the next day by hours and the next
// month by days, each only if it has jobs that the one before does not show. Minutes and hours are
// in the reader's time zone, days in UTC as the server counts them.
func Due(w io.Writer, d *belfryv1.DueHistogram, c Canvas, zone *time.Location) {
	if d.GetNextHour() > 0 {
		fmt.Fprintln(w, "\ndue in the next hour")
		c.chart(w, dueRows(d.GetMinutes(), 5*time.Minute), zone, "15:04")
	}
	if d.GetNextDay() > d.GetNextHour() {
		fmt.Fprintln(w, "\ndue in the next 24 hours")
		c.chart(w, dueRows(d.GetHours(), time.Hour), zone, "Mon 15:04")
	}
	if d.GetNextMonth() > d.GetNextDay() {
		fmt.Fprintln(w, "\ndue in the next 30 days, of UTC")
		c.chart(w, dueRows(d.GetDays(), 24*time.Hour), time.UTC, "Mon 01-02")
	}
}

// dueRow is a bar: the jobs that fall due in a stretch of time.
type dueRow struct {
	start time.Time
	jobs  uint64
}

// dueRows adds slices, which are in their order, up to stretches of a length, from the first that
// has jobs to the last.
func dueRows(list []*belfryv1.DueSlice, length time.Duration) (rows []dueRow) {
	for _, s := range list {
		start := s.GetStart().AsTime().Truncate(length)
		if len(rows) == 0 {
			rows = append(rows, dueRow{start: start})
		}
		for last := rows[len(rows)-1].start; last.Before(start); {
			last = last.Add(length)
			rows = append(rows, dueRow{start: last})
		}
		rows[len(rows)-1].jobs += uint64(s.GetJobs())
	}
	return rows
}

// chart draws a line for each row: when it starts, its jobs, and a bar, of which the longest is as
// long as there is room.
func (c Canvas) chart(w io.Writer, rows []dueRow, zone *time.Location, layout string) {
	most, widest := uint64(1), 0
	for _, r := range rows {
		most, widest = max(most, r.jobs), max(widest, len(Grouped(r.jobs)))
	}
	for _, r := range rows {
		head := fmt.Sprintf("  %s  %*s  ", r.start.In(zone).Format(layout), widest, Grouped(r.jobs))
		fmt.Fprintln(w, strings.TrimRight(head+c.bar(r.jobs, most, max(1, c.Columns-len(head))), " "))
	}
}

// bar draws a bar of up to so many columns; what is not 0 can be seen.
func (c Canvas) bar(n, most uint64, columns int) string {
	share := float64(n) / float64(most) * float64(columns)
	switch {
	case n == 0:
		return ""
	case c.Blocks:
		return eighths(max(1, int(share*8+0.5)))
	default:
		return strings.Repeat("#", max(1, int(share+0.5)))
	}
}

// AddDue adds a page of queues up.
func AddDue(sum, d *belfryv1.DueHistogram) {
	for _, n := range []struct{ sum, add *uint32 }{
		{&sum.Overdue, &d.Overdue}, {&sum.NextMinute, &d.NextMinute}, {&sum.NextHour, &d.NextHour},
		{&sum.NextDay, &d.NextDay},
		{&sum.NextMonth, &d.NextMonth}, {&sum.Later, &d.Later},
	} {
		*n.sum += *n.add
	}
	sum.Minutes, sum.Hours, sum.Days = addSlices(sum.Minutes, d.Minutes), addSlices(sum.Hours, d.Hours),
		addSlices(sum.Days, d.Days)
}

// addSlices adds slices to others in the order of their times.
func addSlices(list, more []*belfryv1.DueSlice) []*belfryv1.DueSlice {
	for _, s := range more {
		i, found := slices.BinarySearchFunc(list, s, func(a, b *belfryv1.DueSlice) int {
			return a.GetStart().AsTime().Compare(b.GetStart().AsTime())
		})
		if found {
			list[i].Jobs += s.GetJobs()
		} else {
			list = slices.Insert(list, i, s)
		}
	}
	return list
}

// Bar draws a share of 0 to 1 in eighths of a column.
func Bar(share float64) string {
	n := int(share*barColumns*8 + 0.5)
	return eighths(n) + strings.Repeat("░", barColumns-(n+7)/8)
}

// eighths draws so many eighths of a column.
func eighths(n int) string {
	text := strings.Repeat(fullBlock, n/8)
	if rest := n % 8; rest > 0 {
		text += string([]rune(eighthBlocks)[rest])
	}
	return text
}

// Grouped writes a number with commas between its thousands.
func Grouped(n uint64) string {
	digits := fmt.Sprint(n)
	var text strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			text.WriteByte(',')
		}
		text.WriteRune(d)
	}
	return text.String()
}

// Jobs formats a number of jobs.
func Jobs(n uint32) string { return Grouped(uint64(n)) }
