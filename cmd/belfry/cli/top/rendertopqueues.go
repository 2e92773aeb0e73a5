package top

import (
	"cmp"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/belfrydb/belfry/cmd/belfry/cli/render"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// queueNameMax is how many columns the name of a queue has at most, so that there is room for its
// numbers.
const queueNameMax = 28

// queueNameMin is what a long name keeps where there is no room.
const queueNameMin = 16

// queueColumn is a column of the table of queues.
type queueColumn struct {
	heading string
	// keep says how long the column stays when there is no room for all: the lowest goes first.
	keep int
	cell func(q *belfryv1.Queue, of map[string]rates) string
}

// queueColumns are the columns behind the name, in their order.
func queueColumns() []queueColumn {
	rate := func(of map[string]rates, name string, text func(rates) float64) string {
		r, ok := of[name]
		if !ok {
			return "-"
		}
		return perSecond(text(r))
	}
	return []queueColumn{
		{"READY", 9, func(q *belfryv1.Queue, _ map[string]rates) string { return render.Jobs(q.Counts.GetReady()) }},
		{"OLDEST", 4, func(q *belfryv1.Queue, _ map[string]rates) string {
			return render.OrDash(render.Duration(q.OldestReadyAge))
		}},
		{"LATE P99", 3, func(q *belfryv1.Queue, _ map[string]rates) string {
			return render.OrDash(render.Duration(q.Lateness.GetP99()))
		}},
		{"DELAYED", 8, func(q *belfryv1.Queue, _ map[string]rates) string { return render.Jobs(q.Counts.GetDelayed()) }},
		{"HOUR", 1, func(q *belfryv1.Queue, _ map[string]rates) string { return render.Jobs(q.Due.GetNextHour()) }},
		{"RESERVED", 2, func(q *belfryv1.Queue, _ map[string]rates) string { return render.Jobs(q.Counts.GetReserved()) }},
		{"DEAD", 5, func(q *belfryv1.Queue, _ map[string]rates) string { return render.Jobs(q.Counts.GetDead()) }},
		{"PUT/S", 7, func(q *belfryv1.Queue, of map[string]rates) string {
			return rate(of, q.Name, func(r rates) float64 { return r.put })
		}},
		{"ACKED/S", 6, func(q *belfryv1.Queue, of map[string]rates) string {
			return rate(of, q.Name, func(r rates) float64 { return r.acked })
		}},
	}
}

// shownName writes a name in so many columns.
func shownName(q *belfryv1.Queue, columns int) string {
	name := q.Name
	if q.Settings.GetPaused() {
		name = "(paused) " + name
	}
	if utf8.RuneCountInString(name) > columns {
		name = cutTo(name, columns-2) + ".."
	}
	return name
}

// queueTable shows so many of the queues as there are rows for. Where the columns do not fit it
// leaves out those that matter least, and shortens names if that is not enough, or spares a column.
func queueTable(queues []*belfryv1.Queue, of map[string]rates, p picture) []string {
	queues = queues[:min(len(queues), p.rows)]
	columns := queueColumns()
	for {
		lines := queueCells(queues, of, columns, queueNameMax)
		over := tableWidth(lines) - p.columns
		if over <= 0 {
			return aligned(lines)
		}
		lines = queueCells(queues, of, columns, max(queueNameMax-over, queueNameMin))
		if tableWidth(lines) <= p.columns || len(columns) == 1 {
			return aligned(lines)
		}
		least := slices.MinFunc(columns, func(a, b queueColumn) int { return cmp.Compare(a.keep, b.keep) })
		columns = slices.DeleteFunc(columns, func(c queueColumn) bool { return c.keep == least.keep })
	}
}

// queueCells returns the heading and a line for each queue, with names of up to so many columns.
func queueCells(queues []*belfryv1.Queue, of map[string]rates, columns []queueColumn, name int) [][]string {
	lines := make([][]string, 1, 1+len(queues))
	lines[0] = []string{"QUEUE"}
	for _, c := range columns {
		lines[0] = append(lines[0], c.heading)
	}
	for _, q := range queues {
		cells := []string{shownName(q, name)}
		for _, c := range columns {
			cells = append(cells, c.cell(q, of))
		}
		lines = append(lines, cells)
	}
	return lines
}

// tableWidth returns how many columns aligned needs.
func tableWidth(lines [][]string) int {
	sum := -columnGap
	for _, width := range widthsOf(lines) {
		sum += width + columnGap
	}
	return sum
}

// columnGap is what is between two columns of a table.
const columnGap = 2

// widthsOf returns how wide each column is.
func widthsOf(lines [][]string) []int {
	widths := make([]int, len(lines[0]))
	for _, cells := range lines {
		for i, cell := range cells {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	return widths
}

// aligned writes cells in columns: the first to the left, the others to the right.
func aligned(lines [][]string) (out []string) {
	widths := widthsOf(lines)
	for _, cells := range lines {
		text := fmt.Sprintf("%-*s", widths[0], cells[0])
		for i, cell := range cells[1:] {
			text += fmt.Sprintf("%*s", columnGap+widths[i+1], cell)
		}
		out = append(out, text)
	}
	return out
}
