package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/belfrydb/belfry/cmd/compare/peer"
)

// part is one table: a phase of a work, and of works that differ by it how many jobs it had.
type part struct {
	work, phase string
	jobs        int64 // 0 if it says nothing
}

// phases are all phases, in the order of the tables.
func phases() []string {
	return []string{
		"put", "take", "put-one", "take-one", "put-six", "take-six", "mixed", "steady", "late", "late-put", "herd", "parked",
		"wake", "fill", "again", "calm", "snapshot",
	}
}

// sized reports whether phases with different numbers of jobs are different tables.
func sized(phase string) bool {
	return slices.Contains([]string{"fill", "again", "calm", "snapshot"}, phase)
}

// partOf returns the table that a sample belongs to.
func partOf(s sample) part {
	p := part{s.Work, s.Phase, 0}
	if sized(s.Phase) {
		p.jobs = s.Jobs
	}
	return p
}

// partsOf returns what samples there are of one work, in order.
func partsOf(samples []sample, work string) []part {
	var parts []part
	for _, phase := range phases() {
		var some []part
		for _, s := range samples {
			if p := partOf(s); s.Work == work && s.Phase == phase && !slices.Contains(some, p) {
				some = append(some, p)
			}
		}
		slices.SortFunc(some, func(a, b part) int { return int(a.jobs - b.jobs) })
		parts = append(parts, some...)
	}
	return parts
}

// row is one line of a table: a peer in one phase of a work.
type row struct {
	peer                   string
	samples                int
	rate, least, most      float64 // jobs a second: the median, the least and the greatest
	cpu, clientCPU         float64 // seconds for 100,000 jobs
	cores                  float64 // seconds of the servers' processor time a second
	resident               float64 // bytes
	early, half, p99, last float64 // milliseconds: the least of all, medians, and the median of the greatest
	perJob, seconds        float64 // bytes, and the median
}

// reference is the peer that the others are compared with.
const reference = "redis-always"

// rowsOf returns the rows of one part, in the order of the peers.
func rowsOf(samples []sample, of part) []row {
	var rows []row
	for _, name := range peer.Names() {
		var some []sample
		for _, s := range samples {
			if partOf(s) == of && s.Peer == name && s.Seconds > 0 {
				some = append(some, s)
			}
		}
		if len(some) == 0 {
			continue
		}
		figures := func(of func(s sample) float64) []float64 {
			var all []float64
			for _, s := range some {
				all = append(all, of(s))
			}
			return all
		}
		middle := func(of func(s sample) float64) float64 { return median(figures(of)) }
		rates := figures(sample.rate)
		rows = append(rows, row{
			peer: name, samples: len(some), rate: median(rates), least: slices.Min(rates), most: slices.Max(rates),
			cpu:       middle(func(s sample) float64 { return s.per100k(s.CPU) }),
			clientCPU: middle(func(s sample) float64 { return s.per100k(s.ClientCPU) }),
			cores:     middle(func(s sample) float64 { return s.CPU / s.Seconds }),
			resident:  middle(func(s sample) float64 { return float64(s.Resident) }),
			early:     slices.Min(figures(func(s sample) float64 { return s.Least })),
			half:      middle(func(s sample) float64 { return s.Half }),
			p99:       middle(func(s sample) float64 { return s.Most99 }),
			last:      middle(func(s sample) float64 { return s.Most }),
			perJob:    middle(func(s sample) float64 { return s.PerJob }),
			seconds:   middle(func(s sample) float64 { return s.Seconds }),
		})
	}
	return rows
}

// find returns the row of a peer, false if there is none.
func find(rows []row, peer string) (row, bool) {
	n := slices.IndexFunc(rows, func(r row) bool { return r.peer == peer })
	if n < 0 {
		return row{}, false
	}
	return rows[n], true
}

// median returns the middle of some figures, the mean of the two in the middle if they are even; 0
// of none.
func median(of []float64) float64 {
	if len(of) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(of))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// show writes the tables, and the page with its plot if one is asked for.
func show(to io.Writer, s settings, all record) error {
	var b bytes.Buffer
	tables(&b, plain, all)
	if _, err := b.WriteTo(to); err != nil {
		return err
	}
	if s.page == "" {
		return nil
	}
	text, picture := page(all, plotName(s.page))
	if err := os.WriteFile(s.page, text, 0o644); err != nil { //nolint:gosec // all users may read a page
		return err
	}
	return os.WriteFile(plotPath(s.page), picture, 0o644) //nolint:gosec // likewise
}

// style is how tables are written.
type style int

const (
	plain style = iota
	markdown
)

// tables writes all tables.
func tables(b *bytes.Buffer, how style, all record) {
	for _, line := range all.invocations() {
		fmt.Fprintf(b, "%s%s.\n", bullet(how), line)
	}
	fmt.Fprintf(b, "\nMedians of up to %d rounds; in brackets the least and the greatest; ratios to %s.\n\n",
		all.rounds(), reference)
	versions := all.versions()
	table := newTable(b, how, "peer", "version", "on disk before the answer")
	for _, p := range peer.All() {
		if version, ok := versions[p.Name]; ok {
			table.line(p.Name, version, p.Keeps)
		}
	}
	table.flush()
	for _, w := range allWorks() {
		parts := partsOf(all.Samples, w.name)
		if len(parts) == 0 {
			continue
		}
		if how == markdown {
			fmt.Fprintf(b, "\n### %s\n\n%s.\n", w.name, strings.ToUpper(w.about[:1])+w.about[1:])
		}
		for _, part := range parts {
			fmt.Fprintf(b, "\n%s", title(part))
			if how == plain {
				fmt.Fprintf(b, ": %s", w.about)
			}
			b.WriteString("\n\n")
			phaseTable(b, how, part.phase, rowsOf(all.Samples, part))
		}
		missing(b, w, versions)
	}
	failures(b, all.Samples)
}

// bullet begins an item of a list.
func bullet(how style) string {
	if how == markdown {
		return "* "
	}
	return ""
}

// title names a part.
func title(p part) string {
	text := p.work
	if p.phase != p.work {
		text += ", " + p.phase
	}
	if p.jobs > 0 {
		text += fmt.Sprintf(", %d jobs", p.jobs)
	}
	return text
}

// missing says of peers that were there why they did not take part in a work.
func missing(b *bytes.Buffer, w work, versions map[string]string) {
	for _, p := range peer.All() {
		if why, ok := w.doneBy(p); !ok && why != "" && versions[p.Name] != "" {
			fmt.Fprintf(b, "\n%s is not in %s: %s.\n", p.Name, w.name, why)
		}
	}
}

// failures writes what could not be done, each peer and work once.
func failures(b *bytes.Buffer, samples []sample) {
	times := map[[2]string]int{}
	for _, s := range samples {
		if s.Failed != "" {
			times[[2]string{s.Work, s.Peer}]++
		}
	}
	for _, s := range samples {
		key := [2]string{s.Work, s.Peer}
		if s.Failed == "" || times[key] == 0 {
			continue
		}
		fmt.Fprintf(b, "\n%s could not do %s, %d times: %s\n", s.Peer, s.Work, times[key], oneLine(s.Failed))
		delete(times, key)
	}
}

// oneLine is the first line of a text, and not too much of it.
func oneLine(text string) string {
	text, _, _ = strings.Cut(text, "\n")
	return text[:min(len(text), 300)]
}

// phaseTable writes the table of one phase.
func phaseTable(b *bytes.Buffer, how style, phase string, rows []row) {
	heads, cells := phaseColumns(phase, rows)
	table := newTable(b, how, heads...)
	for _, r := range rows {
		table.line(cells(r)...)
	}
	table.flush()
}

// phaseColumns returns the heads of a phase's table, and what writes a row.
func phaseColumns(phase string, rows []row) (heads []string, cells func(r row) []string) {
	switch phase {
	case "fill":
		return []string{"peer", "jobs/s", "bytes a job and server", "CPU s / 100,000", "clients' CPU", "resident MB"},
			func(r row) []string {
				return []string{r.peer, whole(r.rate), whole(r.perJob), number(r.cpu), number(r.clientCPU), whole(r.resident / 1e6)}
			}
	case "again":
		return []string{"peer", "seconds until the first put", "times"}, func(r row) []string {
			return []string{r.peer, number(r.seconds), fmt.Sprint(r.samples)}
		}
	case "parked":
		return []string{"peer", "bytes a caller", "CPU, in processors", "resident MB"}, func(r row) []string {
			return []string{r.peer, whole(r.perJob), fmt.Sprintf("%.3f", r.cores), whole(r.resident / 1e6)}
		}
	case "late", "late-put", "herd", "steady", "wake":
		return []string{"peer", "least ms", "p50 ms", "p99 ms", "last ms", "CPU s / 100,000", "clients' CPU", "resident MB"},
			func(r row) []string {
				return []string{r.peer, number(r.early), number(r.half), number(r.p99), number(r.last), number(r.cpu),
					number(r.clientCPU), whole(r.resident / 1e6)}
			}
	case "calm", "snapshot":
		return []string{"peer", "p50 ms", "p99 ms", "last ms", "times"}, func(r row) []string {
			return []string{r.peer, number(r.half), number(r.p99), number(r.last), fmt.Sprint(r.samples)}
		}
	}
	base, _ := find(rows, reference)
	return []string{"peer", "jobs/s", "", "ratio", "p50 ms", "p99 ms", "CPU s / 100,000", "clients' CPU", "resident MB"},
		func(r row) []string {
			ratio := "–"
			if base.rate > 0 {
				ratio = number(r.rate / base.rate)
			}
			return []string{r.peer, whole(r.rate), fmt.Sprintf("(%.0f–%.0f)", r.least, r.most), ratio, number(r.half),
				number(r.p99), number(r.cpu), number(r.clientCPU), whole(r.resident / 1e6)}
		}
}

func number(x float64) string { return fmt.Sprintf("%.2f", x) }
func whole(x float64) string  { return fmt.Sprintf("%.0f", x) }

// table writes lines in columns.
type table struct {
	how style
	to  io.Writer
	tab *tabwriter.Writer
}

func newTable(b *bytes.Buffer, how style, heads ...string) *table {
	t := &table{how: how, to: b}
	if how == plain {
		t.tab = tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
		t.to = t.tab
	}
	t.line(heads...)
	if how == markdown {
		rule := make([]string, len(heads))
		for n := range rule {
			rule[n] = "---"
		}
		t.line(rule...)
	}
	return t
}

func (t *table) line(cells ...string) {
	for n, cell := range cells {
		switch {
		case t.how == markdown && n == 0:
			fmt.Fprintf(t.to, "| %s |", cell)
		case t.how == markdown:
			fmt.Fprintf(t.to, " %s |", cell)
		default:
			fmt.Fprintf(t.to, "%s\t", cell)
		}
	}
	fmt.Fprintln(t.to)
}

func (t *table) flush() {
	if t.tab != nil {
		t.tab.Flush() //nolint:errcheck,gosec // into memory
	}
}
