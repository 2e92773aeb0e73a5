package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// timeline is everything that has a place on the axis of time, which all charts share.
type timeline struct {
	Length float64 // in seconds
	Ticks  []tick
	Phases []phase
	Shades []shade
	Rows   []faultLanes
	Marks  []mark
	Plots  []plot
}

// phase is a part of the run; Left and Width are in percent.
type phase struct{ Name, Left, Width string }

// shade is a stretch of time with as many faults under way.
type shade struct {
	From, Width string // in seconds
	Depth       int    // 1, 2, or 3 for more
}

// faultLanes holds all faults of one name, in as many lanes as are needed for none to hide another.
type faultLanes struct {
	Name  string
	Count int
	Lanes [][]bar
}

// bar is a fault in its lane; Left and Width are in percent.
type bar struct {
	ID          int
	Left, Width string
	Text        string
	to          float64
}

// mark is one violation, or several that are too close to be told apart; At is in percent.
type mark struct {
	ID    int // of the first
	At    string
	Label string
	Class string // "last" if its label stands to its left
	Text  string
}

func timelineOf(r *Report) *timeline {
	t := &timeline{Length: float64(len(r.Seconds))}
	for _, f := range r.Faults {
		t.Length = max(t.Length, math.Ceil(f.To))
	}
	for _, v := range r.Violations {
		t.Length = max(t.Length, math.Ceil(v.At))
	}
	t.Length = max(t.Length, 1)
	t.Ticks = t.ticks()
	t.Phases = t.phases(r.LoadSeconds)
	t.Shades = shades(r.Faults)
	t.Rows = t.rows(r.Faults)
	t.Marks = t.marks(r.Violations)
	t.Plots = []plot{
		throughputPlot(r.Seconds),
		quantilesPlot(plot{Title: "Latency", Unit: "of calls that change something", Class: "latency"}, r.Seconds,
			func(s Second) Quantiles { return s.Latency }),
		quantilesPlot(plot{Title: "Lateness", Unit: "of first deliveries, after their due time", Class: "lateness"},
			r.Seconds, func(s Second) Quantiles { return s.Lateness }),
	}
	return t
}

// Dense reports whether a second is narrower than a line of the usual width.
func (t *timeline) Dense() bool { return t.Length > 900 }

func (t *timeline) percent(seconds float64) string { return decimal(100 * seconds / t.Length) }

// ticks divides the axis into at most six parts of a round length.
func (t *timeline) ticks() []tick {
	steps := []float64{1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 4 * 3600, 12 * 3600, 24 * 3600,
		7 * 24 * 3600}
	at := slices.IndexFunc(steps, func(step float64) bool { return t.Length <= 6*step })
	var ticks []tick
	for s := 0.0; s <= t.Length; s += steps[at] {
		next := tick{At: t.percent(s), Label: clock(s)}
		switch {
		case s == 0:
			next.Class = "first"
		case s > 0.96*t.Length:
			next.Class = "last"
		}
		ticks = append(ticks, next)
	}
	return ticks
}

// phases are the load, and what follows it. A run that broke off in its load has none.
func (t *timeline) phases(load float64) []phase {
	if load <= 0 || load >= t.Length {
		return nil
	}
	return []phase{
		{Name: "clients work, faults strike", Left: "0", Width: t.percent(load)},
		{Name: "recovery, drain", Left: t.percent(load), Width: t.percent(t.Length - load)},
	}
}

// shades cuts the time at each beginning and end of a fault.
func shades(faults []Fault) []shade {
	type edge struct {
		at     float64
		change int
	}
	var edges []edge
	for _, f := range faults {
		edges = append(edges, edge{f.From, 1}, edge{f.To, -1})
	}
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Compare(a.at, b.at) })
	var all []shade
	depth := 0
	for i, e := range edges {
		if depth > 0 && e.at > edges[i-1].at {
			before := edges[i-1].at
			all = append(all, shade{From: decimal(before), Width: decimal(e.at - before), Depth: min(depth, 3)})
		}
		depth += e.change
	}
	return all
}

// rows gives each fault the first lane of its name in which the one before it has ended.
func (t *timeline) rows(faults []Fault) []faultLanes {
	var rows []faultLanes
	for i, f := range faults {
		at := slices.IndexFunc(rows, func(r faultLanes) bool { return r.Name == f.Name })
		if at < 0 {
			at = len(rows)
			rows = append(rows, faultLanes{Name: f.Name})
		}
		row := &rows[at]
		row.Count++
		lane := slices.IndexFunc(row.Lanes, func(lane []bar) bool { return lane[len(lane)-1].to <= f.From })
		if lane < 0 {
			lane = len(row.Lanes)
			row.Lanes = append(row.Lanes, nil)
		}
		row.Lanes[lane] = append(row.Lanes[lane], bar{
			ID: i + 1, Left: t.percent(f.From), Width: t.percent(f.To - f.From), to: f.To,
			Text: fmt.Sprintf("%s, %s to %s (%s): %s", f.Name, clockTenths(f.From), clockTenths(f.To),
				span(f.To-f.From), f.Text),
		})
	}
	return rows
}

// marks puts violations that are less than a part in 24 of the axis apart into one, which says how
// many they are.
func (t *timeline) marks(violations []Violation) []mark {
	order := make([]int, len(violations))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(violations[a].At, violations[b].At) })
	var marks []mark
	for len(order) > 0 {
		first := violations[order[0]]
		n := slices.IndexFunc(order, func(i int) bool { return violations[i].At > first.At+t.Length/24 })
		if n < 0 {
			n = len(order)
		}
		m := mark{ID: order[0] + 1, At: t.percent(first.At), Label: first.Invariant,
			Text: fmt.Sprintf("%s at %s: %s", first.Invariant, clockTenths(first.At), first.Text)}
		if first.At > 0.95*t.Length {
			m.Class = "last"
		}
		if n > 1 {
			m.Label = fmt.Sprintf("%d×", n)
			m.Text += fmt.Sprintf(" — and %d more until %s", n-1, clockTenths(violations[order[n-1]].At))
		}
		marks = append(marks, m)
		order = order[n:]
	}
	return marks
}
