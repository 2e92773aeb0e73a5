// Package chart draws charts of jobs as SVG. It makes no calls.
package chart

import (
	"fmt"
	"strconv"
	"time"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/ui/format"
)

// width and height are those of a chart in its own units.
const (
	width  = 600
	height = 80
	// barLeast is the height of the smallest value above 0, so that it can be seen.
	barLeast = 2
)

// Bars says when jobs fall due: so many slices of time, from the present one on.
type Bars struct {
	Title string
	// Width is that of a slice.
	Width  time.Duration
	Slices int
	// Label is the form of the labels, see [time.Time.Format]. Days are those of UTC.
	Label string
	Due   []*belfryv1.DueSlice
	// Link returns the page of the jobs of a slice.
	Link func(start time.Time) string
}

// values returns the jobs of each slice, from the one that begins at first on.
func (b *Bars) values(first time.Time) []uint64 {
	values := make([]uint64, b.Slices)
	for _, slice := range b.Due {
		at := int(slice.GetStart().AsTime().Sub(first) / b.Width)
		if slice.GetStart().AsTime().Before(first) || at >= b.Slices {
			continue // the clocks of node and shard are in different slices
		}
		values[at] += uint64(slice.GetJobs())
	}
	return values
}

// label writes when a slice begins.
func (b *Bars) label(c format.Clock, start time.Time) string {
	if b.Width >= 24*time.Hour {
		return start.Format(b.Label)
	}
	return start.In(c.Zone).Format(b.Label)
}

// Draw draws the chart. Each bar leads to its jobs.
func (b *Bars) Draw(c format.Clock) g.Node {
	first := c.Now.UTC().Truncate(b.Width)
	values := b.values(first)
	sum, most := uint64(0), uint64(1)
	for _, n := range values {
		sum, most = sum+n, max(most, n)
	}
	step := float64(width) / float64(b.Slices)
	var bars g.Group
	for i, n := range values {
		if n == 0 {
			continue
		}
		start := first.Add(time.Duration(i) * b.Width)
		high := max(barLeast, float64(n)/float64(most)*height)
		text := b.label(c, start) + ": " + format.Grouped(n)
		bars = append(bars, h.A(h.Href(b.Link(start)), h.Aria("label", text), g.El("rect", length("x", float64(i)*step),
			length("y", height-high), length("width", max(step-1, 1)), length("height", high), g.El("title", g.Text(text)))))
	}
	last := first.Add(time.Duration(b.Slices-1) * b.Width)
	return h.Figure(
		h.FigCaption(g.Textf("%s: %s jobs, peak %s", b.Title, format.Grouped(sum), format.Grouped(most))),
		canvas(h.Role("group"), h.Aria("label", b.Title), bars),
		axis(b.label(c, first), b.label(c, last)))
}

// canvas is the SVG of a chart.
func canvas(nodes ...g.Node) g.Node {
	return h.SVG(g.Attr("viewBox", fmt.Sprintf("0 0 %d %d", width, height)), g.Attr("preserveAspectRatio", "none"),
		g.Group(nodes))
}

// axis has the labels of the ends.
func axis(first, last string) g.Node {
	return h.P(h.Class("axis"), h.Span(g.Text(first)), h.Span(g.Text(last)))
}

// length is an attribute in units of the chart.
func length(name string, value float64) g.Node { return g.Attr(name, decimal(value)) }

// decimal writes a length.
func decimal(value float64) string { return strconv.FormatFloat(value, 'f', 1, 64) }
