package main

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/belfrydb/belfry/cmd/compare/peer"
)

// plotPath is where the plot of a page is, plotName how the page refers to it.
func plotPath(page string) string { return strings.TrimSuffix(page, filepath.Ext(page)) + ".svg" }
func plotName(page string) string { return filepath.Base(plotPath(page)) }

// page returns a page of everything that was measured, and its plot, which the page knows as
// picture.
func page(all record, picture string) (text, plotted []byte) {
	var b bytes.Buffer
	last := ""
	if n := len(all.Runs); n > 0 {
		last = ", " + all.Runs[n-1].Began.Format("2006-01-02")
	}
	fmt.Fprintf(&b, "# Belfry beside other queues%s\n\n", last)
	b.WriteString("`make compare` wrote this page. It starts one peer at a time on loopback and gives all the same " +
		"work; `DESIGN.md` says how. Servers and clients share the machine. " +
		"Compare only rows of one table, as ratios: rates differ between machines and days.\n\n")
	fmt.Fprintf(&b, "![Jobs a second, as ratios to %s](%s)\n\nA peer with a star has nothing on disk when it "+
		"answers; a table below says what each peer has on disk.\n\n", reference, picture)
	b.WriteString("## Aims\n\n")
	aimTable(&b, all.Samples)
	b.WriteString("\n## Where Belfry loses\n\n")
	lost(&b, all.Samples)
	b.WriteString("\n## All figures\n\n")
	tables(&b, markdown, all)
	return b.Bytes(), plot(all.Samples)
}

// A contest is a figure in which one peer is ahead of another.
type contest struct {
	phases []string
	name   string
	of     func(r row) float64
	more   bool // is better
	unit   string
}

// contests are the figures by which peers are ahead or behind.
func contests() []contest {
	rates := []string{"put", "take", "mixed", "fill"}
	late := []string{"late", "late-put", "steady", "wake"}
	return []contest{
		{rates, "jobs a second", func(r row) float64 { return r.rate }, true, ""},
		{[]string{"put", "take", "mixed", "late"}, "the servers' CPU for 100,000 jobs", func(r row) float64 { return r.cpu },
			false, " s"},
		{late, "p50", func(r row) float64 { return r.half }, false, " ms"},
		{late, "p99", func(r row) float64 { return r.p99 }, false, " ms"},
		{[]string{"herd"}, "the last job", func(r row) float64 { return r.last }, false, " ms"},
		{[]string{"fill", "parked"}, "bytes a job or caller", func(r row) float64 { return r.perJob }, false, ""},
		{[]string{"parked"}, "processors", func(r row) float64 { return r.cores }, false, ""},
		{[]string{"again"}, "until the first put", func(r row) float64 { return r.seconds }, false, " s"},
	}
}

// lost writes every figure in which a peer is ahead of Belfry. The table is long by intent: nothing
// is weighed here.
func lost(b *bytes.Buffer, samples []sample) {
	b.WriteString("This table has every figure in which a peer's median is better than Belfry's, with the factor. " +
		"A peer that delivers early does not count.\n\n")
	table := newTable(b, markdown, "work", "figure", "Belfry", "peers ahead")
	found := false
	for _, w := range allWorks() {
		for _, p := range partsOf(samples, w.name) {
			rows := rowsOf(samples, p)
			for _, c := range contests() {
				if !slices.Contains(c.phases, p.phase) {
					continue
				}
				for _, ours := range rows {
					if ahead := c.ahead(ours, rows); strings.HasPrefix(ours.peer, "belfry-") && ahead != "" {
						found = true
						table.line(title(p), c.name, fmt.Sprintf("%s: %s%s", ours.peer, figure(c.of(ours)), c.unit), ahead)
					}
				}
			}
		}
	}
	table.flush()
	if !found {
		b.WriteString("\nNone was measured.\n")
	}
}

// ahead lists the peers that are better than one row.
func (c contest) ahead(ours row, rows []row) string {
	var ahead []string
	for _, theirs := range rows {
		mine, other := c.of(ours), c.of(theirs)
		if strings.HasPrefix(theirs.peer, "belfry-") || mine <= 0 || other <= 0 || (other > mine) != c.more || other == mine {
			continue
		}
		factor := other / mine
		if !c.more {
			factor = mine / other
		}
		mark := strings.ReplaceAll(peer.Mark(theirs.peer), "*", `\*`)
		ahead = append(ahead, fmt.Sprintf("%s%s %.2f×", theirs.peer, mark, factor))
	}
	return strings.Join(ahead, ", ")
}

// figure writes a figure with as many digits as it is worth.
func figure(x float64) string {
	if x >= 100 {
		return whole(x)
	}
	return fmt.Sprintf("%.3g", x)
}
