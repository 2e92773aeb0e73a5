package ui

import (
	"fmt"
	"strconv"
	"time"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// chart is a bar chart.
type chart struct {
	title string
	bars  []bar
	// most is the highest value, and sum is that of all bars.
	most, sum uint64
	// first and last are the labels of the ends.
	first, last string
}

// bar is one bar. x, y, width and height are in the units of the chart, which is chartWidth wide and
// chartHeight high.
type bar struct {
	x, y, width, height float64
	label, target       string
	value               uint64
}

const (
	chartWidth  = 600
	chartHeight = 80
	// barLeast is the height of the smallest value above 0, so that it can be seen.
	barLeast = 2
)

// chartOf says what a chart shows: so many slices of time of a width, from the present one on.
type chartOf struct {
	title  string
	width  time.Duration
	slices int
	label  string // the form of the labels, see [time.Time.Format]
	due    []*belfryv1.DueSlice
	link   func(start time.Time) string
}

func newChart(c clock, of chartOf) chart {
	first := c.now.UTC().Truncate(of.width)
	values := make([]uint64, of.slices)
	out := chart{title: of.title, most: 1}
	for _, slice := range of.due {
		at := int(slice.GetStart().AsTime().Sub(first) / of.width)
		if slice.GetStart().AsTime().Before(first) || at >= of.slices {
			continue // the clocks of node and shard are in different slices
		}
		values[at] += uint64(slice.GetJobs())
		out.sum += uint64(slice.GetJobs())
		out.most = max(out.most, values[at])
	}
	step := float64(chartWidth) / float64(of.slices)
	for i, n := range values {
		start := first.Add(time.Duration(i) * of.width)
		label := start.In(c.zone).Format(of.label)
		if of.width >= 24*time.Hour {
			label = start.Format(of.label) // a day of UTC
		}
		if i == 0 {
			out.first = label
		}
		out.last = label
		if n == 0 {
			continue
		}
		height := max(barLeast, float64(n)/float64(out.most)*chartHeight)
		out.bars = append(out.bars, bar{x: float64(i) * step, y: chartHeight - height, width: max(step-1, 1), height: height,
			label: label, target: of.link(start), value: n})
	}
	return out
}

// draw draws the chart as SVG. Each bar leads to its jobs.
func (c chart) draw() g.Node {
	length := func(name string, value float64) g.Node { return g.Attr(name, strconv.FormatFloat(value, 'f', 1, 64)) }
	return h.Figure(
		h.FigCaption(g.Textf("%s: %s jobs, peak %s", c.title, grouped(c.sum), grouped(c.most))),
		h.SVG(g.Attr("viewBox", fmt.Sprintf("0 0 %d %d", chartWidth, chartHeight)), g.Attr("preserveAspectRatio", "none"),
			h.Role("group"), h.Aria("label", c.title),
			g.Map(c.bars, func(b bar) g.Node {
				text := b.label + ": " + grouped(b.value)
				return h.A(h.Href(b.target), h.Aria("label", text), g.El("rect", length("x", b.x), length("y", b.y),
					length("width", b.width), length("height", b.height), g.El("title", g.Text(text))))
			})),
		h.P(h.Class("axis"), h.Span(g.Text(c.first)), h.Span(g.Text(c.last))))
}
