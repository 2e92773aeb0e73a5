package report

import (
	"math"
	"strconv"
	"strings"
)

// plot is one chart. Its paths are drawn in a box that is as many units wide as the run has
// seconds, and 100 high, from the top. The page stretches the box to the available width, which
// distorts letters but not lines. So all text is placed over it, at a position in percent.
type plot struct {
	Title  string
	Unit   string
	Class  string
	Series []series
	Ticks  []tick
}

// series is one line or area.
type series struct {
	Name  string
	Class string
	Path  string
}

// tick is a mark on an axis.
type tick struct {
	At    string // in percent
	Label string
	Class string // where its label stands: "first", "last" or ""
}

// throughputPlot stacks what was applied, refused and unknown.
func throughputPlot(all []Second) plot {
	most := 0.0
	for _, s := range all {
		most = max(most, float64(s.Applied)+float64(s.NotApplied)+float64(s.Unknown))
	}
	top := roundUp(most)
	p := plot{Title: "Throughput", Unit: "calls per second", Class: "throughput"}
	for _, share := range []float64{0, 0.5, 1} {
		p.Ticks = append(p.Ticks, tick{At: decimal(100 - 100*share), Label: short(top * share)})
	}
	below := make([]float64, len(all))
	for _, part := range []struct {
		name, class string
		count       func(Second) int64
	}{
		{"applied", "applied", func(s Second) int64 { return s.Applied }},
		{"refused", "refused", func(s Second) int64 { return s.NotApplied }},
		{"unknown", "unknown", func(s Second) int64 { return s.Unknown }},
	} {
		above := make([]float64, len(all))
		for i, s := range all {
			above[i] = below[i] + float64(part.count(s))
		}
		p.Series = append(p.Series, series{Name: part.name, Class: part.class, Path: areaPath(below, above, top)})
		below = above
	}
	return p
}

// areaPath draws the steps between two rows of values, where there is anything between them.
func areaPath(below, above []float64, top float64) string {
	var b strings.Builder
	height := func(v float64) string { return decimal(100 - 100*v/top) }
	for i := 0; i < len(above); {
		if above[i] <= below[i] {
			i++
			continue
		}
		end := i
		b.WriteString("M" + strconv.Itoa(i) + " " + height(below[i]))
		for ; end < len(above) && above[end] > below[end]; end++ {
			b.WriteString("V" + height(above[end]) + "H" + strconv.Itoa(end+1))
		}
		for back := end - 1; back >= i; back-- {
			b.WriteString("V" + height(below[back]) + "H" + strconv.Itoa(back))
		}
		b.WriteString("Z")
		i = end
	}
	return b.String()
}

// quantilesPlot shows milliseconds on a logarithmic scale of whole decades. A second in which
// nothing was measured is a gap.
func quantilesPlot(p plot, all []Second, of func(Second) Quantiles) plot {
	low, high := decades(all, of)
	for d := low; d <= high; d++ {
		at := decimal(100 - 100*float64(d-low)/float64(high-low))
		p.Ticks = append(p.Ticks, tick{At: at, Label: decadeLabel(d)})
	}
	for _, line := range []struct {
		name, class string
		value       func(Quantiles) float64
	}{
		{"max", "max", func(q Quantiles) float64 { return q.Max }},
		{"p99", "p99", func(q Quantiles) float64 { return q.P99 }},
		{"p50", "p50", func(q Quantiles) float64 { return q.P50 }},
	} {
		var b strings.Builder
		before := false
		for i, s := range all {
			q := of(s)
			if q.Count > 0 {
				share := (math.Log10(max(line.value(q), math.Pow10(low))) - float64(low)) / float64(high-low)
				height := decimal(100 - 100*share)
				if before {
					b.WriteString("V" + height)
				} else {
					b.WriteString("M" + strconv.Itoa(i) + " " + height)
				}
				b.WriteString("H" + strconv.Itoa(i+1))
			}
			before = q.Count > 0
		}
		p.Series = append(p.Series, series{Name: line.name, Class: line.class, Path: b.String()})
	}
	return p
}

// decades returns the powers of ten, of milliseconds, that enclose all values, two apart at least.
// Less than 0.1 ms is drawn as 0.1 ms: it is as good as none.
func decades(all []Second, of func(Second) Quantiles) (low, high int) {
	least, most := math.Inf(1), 0.0
	for _, s := range all {
		if q := of(s); q.Count > 0 {
			least, most = min(least, q.P50), max(most, q.Max)
		}
	}
	if most == 0 {
		return 0, 2
	}
	low = int(math.Floor(math.Log10(max(least, 0.1))))
	return low, max(low+2, int(math.Ceil(math.Log10(most))))
}

func decadeLabel(d int) string {
	if d >= 3 {
		return short(math.Pow10(d-3)) + " s"
	}
	return short(math.Pow10(d)) + " ms"
}

// Empty reports whether the plot has nothing to show.
func (p plot) Empty() bool {
	for _, s := range p.Series {
		if s.Path != "" {
			return false
		}
	}
	return true
}

// roundUp returns the smallest of 1, 2, 4, 6 and 8 times a power of ten that is not less, so that
// its half is round as well.
func roundUp(v float64) float64 {
	if v <= 2 {
		return 2
	}
	power := math.Pow10(int(math.Floor(math.Log10(v))))
	for _, step := range []float64{1, 2, 4, 6, 8} {
		if step*power >= v {
			return step * power
		}
	}
	return 10 * power
}

// decimal writes a coordinate or a percentage, to a hundredth.
func decimal(v float64) string {
	return strconv.FormatFloat(math.Round(v*100)/100, 'f', -1, 64)
}
