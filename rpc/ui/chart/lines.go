package chart

import (
	"strings"
	"time"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/ui/format"
)

// minutes is how many minutes a chart of the last hour has, the present one among them.
const minutes = 60

// Lines are numbers of each minute of the last hour.
type Lines struct {
	Title string
	// Since is from when on something is known, and First is when the first minute began.
	Since, First time.Time
	Lines        []Line
	// Text writes a value of the lines.
	Text func(value float64) string
}

// Line is one line. A value is that of a minute; below 0 there is none.
type Line struct {
	Name   string
	Values [minutes]float64
}

// LastHour returns the charts of a queue: what happened to its jobs in each minute, and how late they
// were handed out. since is from when on that is known.
func LastHour(c format.Clock, all []*belfryv1.QueueMinute, since time.Time) []Lines {
	first := c.Now.UTC().Truncate(time.Minute).Add(-(minutes - 1) * time.Minute)
	counts := []Line{{Name: "put"}, {Name: "handed out"}, {Name: "acked"}, {Name: "failed"}}
	late := []Line{{Name: "half of the jobs"}, {Name: "99 of 100"}}
	for i := range minutes {
		late[0].Values[i], late[1].Values[i] = none, none
		if first.Add(time.Duration(i+1) * time.Minute).After(since) {
			continue
		}
		for n := range counts {
			counts[n].Values[i] = none
		}
	}
	for _, m := range all {
		i := int(m.GetStart().AsTime().Sub(first) / time.Minute)
		if m.GetStart().AsTime().Before(first) || i >= minutes {
			continue // the clocks of node and shard are in different minutes
		}
		for n, value := range []uint32{m.Puts, m.Reserves, m.Acks, m.Failures} {
			counts[n].Values[i] = float64(value)
		}
		if m.LateP99 != nil {
			late[0].Values[i], late[1].Values[i] = m.LateP50.AsDuration().Seconds(), m.LateP99.AsDuration().Seconds()
		}
	}
	return []Lines{
		{Title: "Jobs, by minutes", Since: since, First: first, Lines: counts,
			Text: func(value float64) string { return format.Grouped(uint64(value)) }},
		{Title: "Lateness, by minutes", Since: since, First: first, Lines: late,
			Text: func(value float64) string { return format.Span(time.Duration(value * float64(time.Second))) }},
	}
}

// none stands for a minute of which there is no value.
const none = -1

// most returns the highest value of a line; none if it has no value.
func (l *Line) most() float64 {
	most := float64(none)
	for _, value := range l.Values {
		most = max(most, value)
	}
	return most
}

// Draw draws the chart, with its numbers as a table below it.
func (l *Lines) Draw(c format.Clock) g.Node {
	most := float64(0)
	var peaks []string
	for i := range l.Lines {
		line := &l.Lines[i]
		if line.most() >= 0 {
			peaks = append(peaks, line.Name+" at most "+l.Text(line.most()))
		}
		most = max(most, line.most())
	}
	about := strings.Join(peaks, ", ")
	if about == "" {
		about = "nothing"
	}
	unknown := min(max(l.Since.Sub(l.First).Minutes(), 0), minutes)
	if unknown > 0 {
		about += "; before " + l.Since.In(c.Zone).Format(clockFormat) + " nothing is known"
	}
	last := l.First.Add((minutes - 1) * time.Minute)
	var paths g.Group
	for i := range l.Lines {
		paths = append(paths, g.El("path", h.Class(lineClass(i)), g.Attr("d", l.Lines[i].path(most)),
			g.Attr("vector-effect", "non-scaling-stroke")))
	}
	return h.Figure(
		h.FigCaption(g.Text(l.Title+", peak "+l.Text(most)+": "), l.legend()),
		canvas(h.Role("img"), h.Aria("label", l.Title+": "+about), g.If(unknown > 0, g.El("rect", h.Class("unknown"),
			length("x", 0), length("y", 0), length("width", unknown*step), length("height", height),
			g.El("title", g.Text("not known")))), paths),
		axis(l.First.In(c.Zone).Format(clockFormat), last.In(c.Zone).Format(clockFormat)),
		g.If(unknown > 0, h.P(h.Class("help"), g.Text("Before "+l.Since.In(c.Zone).Format(clockFormat)+
			", in gray, nothing is known: the node counts from its start."))),
		l.table(c))
}

const (
	clockFormat = "15:04"
	step        = float64(width) / minutes
	// dot is the width of a point without neighbours.
	dot = 4
)

// lineClass is the class of a line, which has its color.
func lineClass(i int) string { return "line" + string(rune('0'+i)) }

// legend has the name of each line.
func (l *Lines) legend() g.Node {
	var names g.Group
	for i := range l.Lines {
		names = append(names, g.If(i > 0, g.Text(" · ")), h.Span(h.Class("legend "+lineClass(i)), g.Text(l.Lines[i].Name)))
	}
	return names
}

// path draws a line through the middles of the minutes. It has gaps where there is no value.
func (l *Line) path(most float64) string {
	var out strings.Builder
	open := false
	for i, value := range l.Values {
		if value < 0 {
			open = false
			continue
		}
		y := float64(height)
		if most > 0 {
			y -= value / most * (height - 2*barLeast)
		}
		x, end := (float64(i)+0.5)*step, " "+decimal(y-barLeast/2)
		if open {
			out.WriteString("L" + decimal(x) + end)
		} else { // also a point without neighbours is to be seen
			out.WriteString("M" + decimal(x-dot/2) + end + "h" + decimal(dot))
		}
		open = true
	}
	return out.String()
}

// table has the minutes in which something happened.
func (l *Lines) table(c format.Clock) g.Node {
	columns := g.Group{h.Th(h.Scope("col"), g.Text("Minute"))}
	for _, line := range l.Lines {
		columns = append(columns, h.Th(h.Scope("col"), g.Text(line.Name)))
	}
	var rows g.Group
	for i := range minutes {
		cells, some := g.Group{}, false
		for _, line := range l.Lines {
			text := "–"
			if line.Values[i] >= 0 {
				text = l.Text(line.Values[i])
			}
			some = some || line.Values[i] > 0
			cells = append(cells, h.Td(g.Text(text)))
		}
		if some {
			start := l.First.Add(time.Duration(i) * time.Minute).In(c.Zone).Format(clockFormat)
			rows = append(rows, h.Tr(h.Th(h.Scope("row"), g.Text(start)), cells))
		}
	}
	if len(rows) == 0 {
		return h.P(h.Class("help"), g.Text("Nothing happened."))
	}
	return h.Details(h.Summary(g.Text("As a table")),
		h.Table(h.Class("numbers"), h.THead(h.Tr(columns)), h.TBody(rows)))
}
