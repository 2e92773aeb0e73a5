package main

import (
	"bytes"
	"fmt"
	"math"
	"strings"

	"github.com/belfrydb/belfry/cmd/compare/peer"
)

// The plot is one group of bars for each phase of works that are about rates; bars begin at the
// ratio 1 and go to the right if a peer is ahead of the reference. The scale is logarithmic, so
// that twice and half as fast are bars of the same length.
const (
	plotWidth  = 860
	plotLeft   = 190 // where bars may begin
	plotRight  = 790
	plotTop    = 58
	barHeight  = 9
	groupSpace = 10
	// Ratios beyond these are drawn as if they were these; what they are is written beside each bar.
	ratioMin = 1.0 / 32
	ratioMax = 16.0
)

// plotted are the peers of the plot, each with the class that gives it its colour.
func plotted() [][2]string {
	return [][2]string{
		{one, "one"}, {three, "three"}, {"redis-always-auto", "auto"}, {"redisson-always", "redisson"},
		{"beanstalkd-log", "beanstalkd"}, {"nats-three", "nats"},
	}
}

const plotStyle = `<style>
text { font: 12px system-ui, sans-serif; fill: #24292f; }
.small { font-size: 9px; fill: #57606a; }
.line { stroke: #8c959f; stroke-width: 1; }
.grid { stroke: #d0d7de; stroke-width: 1; }
.one { fill: #0969da; }
.three { fill: #54aeff; }
.auto { fill: #cf222e; }
.redisson { fill: #ff8182; }
.beanstalkd { fill: #9a6700; }
.nats { fill: #1a7f37; }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3; }
.small { fill: #9da7b3; }
.line { stroke: #8b949e; }
.grid { stroke: #30363d; }
.one { fill: #58a6ff; }
.three { fill: #1f6feb; }
.auto { fill: #f85149; }
.redisson { fill: #b62324; }
.beanstalkd { fill: #d29922; }
.nats { fill: #3fb950; }
}
</style>
`

// xOf is where a ratio is.
func xOf(ratio float64) float64 {
	place := math.Log(min(max(ratio, ratioMin), ratioMax)/ratioMin) / math.Log(ratioMax/ratioMin)
	return plotLeft + place*(plotRight-plotLeft)
}

// plot draws the ratios of rates as an SVG.
func plot(samples []sample) []byte {
	var body bytes.Buffer
	y := plotTop
	for _, w := range allWorks() {
		for _, p := range partsOf(samples, w.name) {
			if p.phase != "put" && p.phase != "take" && p.phase != "mixed" {
				continue
			}
			y = group(&body, p, rowsOf(samples, p), y)
		}
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img" `+
		`aria-label="Jobs a second as ratios to %s">`+"\n",
		plotWidth, y+10, plotWidth, y+10, reference)
	b.WriteString(plotStyle)
	x := 10
	for _, p := range plotted() {
		fmt.Fprintf(&b, `<rect class="%s" x="%d" y="10" width="10" height="10"/><text x="%d" y="19">%s%s</text>`+"\n", p[1],
			x, x+14, p[0], peer.Mark(p[0]))
		x += 38 + 7*len(p[0])
	}
	for ratio := ratioMin; ratio <= ratioMax; ratio *= 2 {
		class, label := "grid", fmt.Sprintf("%g×", ratio)
		if ratio == 1 {
			class, label = "line", reference
		}
		if ratio < 1 {
			label = fmt.Sprintf("1/%g×", 1/ratio)
		}
		fmt.Fprintf(&b, `<line class="%s" x1="%.1f" x2="%.1f" y1="%d" y2="%d"/>`+
			`<text class="small" text-anchor="middle" x="%.1f" y="%d">%s</text>`+"\n",
			class, xOf(ratio), xOf(ratio), plotTop-12, y, xOf(ratio), plotTop-16, label)
	}
	b.Write(body.Bytes())
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// group draws the bars of one part from y on, and returns where the next begins; without a
// reference there are none.
func group(b *bytes.Buffer, p part, rows []row, y int) int {
	base, ok := find(rows, reference)
	if !ok || base.rate <= 0 {
		return y
	}
	begin := y
	for _, named := range plotted() {
		r, ok := find(rows, named[0])
		if !ok {
			continue
		}
		ratio := r.rate / base.rate
		from, to := xOf(1), xOf(ratio)
		anchor, at := "start", to+4
		if to < from {
			anchor, at = "end", to-4
		}
		fmt.Fprintf(b, `<rect class="%s" x="%.1f" y="%d" width="%.1f" height="%d"/>`+
			`<text class="small" text-anchor="%s" x="%.1f" y="%d">%.2f</text>`+"\n",
			named[1], min(from, to), y, max(1, math.Abs(to-from)), barHeight-1, anchor, at, y+barHeight-2, ratio)
		y += barHeight
	}
	if y == begin {
		return y
	}
	fmt.Fprintf(b, `<text text-anchor="end" x="%d" y="%d">%s</text>`+"\n", plotLeft-30, (begin+y)/2+4,
		strings.ReplaceAll(title(p), ", ", " "))
	return y + groupSpace
}
