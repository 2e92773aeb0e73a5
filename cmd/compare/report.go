package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"text/tabwriter"
	"time"
)

// row is one line of a table: a peer in one phase of a work.
type row struct {
	peer                   string
	rate, least, most      float64 // jobs a second: the median, the least and the greatest
	cpu                    float64 // seconds for 100,000 jobs
	resident               float64 // bytes
	early, half, p99, last float64 // milliseconds
	perJob, seconds        float64 // bytes, and the median
}

// reference is the peer that the others are compared with.
const reference = "redis-always"

// rowsOf returns the rows of one phase, in the order of the peers.
func rowsOf(samples []sample, work, phase string) []row {
	var rows []row
	for _, name := range peerNames() {
		var rates, cpus, residents, least, half, p99, most, perJob, seconds []float64
		for _, s := range samples {
			if s.Work != work || s.Phase != phase || s.Peer != name {
				continue
			}
			rates = append(rates, float64(s.Jobs)/s.Seconds)
			if s.Jobs > 0 {
				cpus = append(cpus, s.CPU/float64(s.Jobs)*100_000)
			}
			residents = append(residents, float64(s.Resident))
			perJob, seconds = append(perJob, s.PerJob), append(seconds, s.Seconds)
			least, half, p99, most = append(least, s.Least), append(half, s.Half), append(p99, s.Most99), append(most, s.Most)
		}
		if len(rates) == 0 {
			continue
		}
		rows = append(rows, row{
			peer: name, rate: median(rates), least: slices.Min(rates), most: slices.Max(rates), cpu: median(cpus), resident: median(residents),
			early: slices.Min(least), half: median(half), p99: median(p99), last: slices.Max(most),
			perJob: median(perJob), seconds: median(seconds),
		})
	}
	return rows
}

// median returns the middle of some figures, the mean of the two in the middle if they are even; 0 of none.
func median(of []float64) float64 {
	if len(of) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(of))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// show writes the tables, to a page as well if one is asked for.
func show(to io.Writer, s settings, versions map[string]string, samples []sample) error {
	text := tables(s, versions, samples, plain)
	if _, err := to.Write(text); err != nil {
		return err
	}
	if s.page == "" {
		return nil
	}
	return os.WriteFile(s.page, tables(s, versions, samples, markdown), 0o600)
}

// style is how tables are written.
type style int

const (
	plain style = iota
	markdown
)

// tables writes all tables.
func tables(s settings, versions map[string]string, samples []sample, how style) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s, %d processors; %d rounds of %v; medians, in brackets the least and the greatest; ratios to %s.\n\n",
		time.Now().UTC().Format("2006-01-02"), runtime.NumCPU(), s.rounds, s.length, reference)
	table := newTable(&b, how, "peer", "version", "on disk before the answer")
	for _, p := range allPeers() {
		if version, ok := versions[p.name]; ok {
			table.line(p.name, version, p.keeps)
		}
	}
	table.end()
	for _, w := range allWorks() {
		for _, phase := range []string{"put", "take", "mixed", "late", "herd", "fill", "again"} {
			rows := rowsOf(samples, w.name, phase)
			if len(rows) == 0 {
				continue
			}
			fmt.Fprintf(&b, "\n%s, %s: %s\n\n", w.name, phase, w.about)
			phaseTable(&b, how, phase, rows)
		}
	}
	failures(&b, samples)
	return b.Bytes()
}

// failures writes what could not be done, each peer and work once.
func failures(b *bytes.Buffer, samples []sample) {
	told := map[[2]string]bool{}
	for _, s := range samples {
		if key := [2]string{s.Work, s.Peer}; s.Failed != "" && !told[key] {
			told[key] = true
			fmt.Fprintf(b, "\n%s could not do %s: %s\n", s.Peer, s.Work, s.Failed)
		}
	}
}

// phaseTable writes the table of one phase.
func phaseTable(b *bytes.Buffer, how style, phase string, rows []row) {
	switch phase {
	case "fill":
		table := newTable(b, how, "peer", "jobs/s", "bytes a job and server", "CPU s / 100,000")
		for _, r := range rows {
			table.line(r.peer, fmt.Sprintf("%.0f", r.rate), fmt.Sprintf("%.0f", r.perJob), fmt.Sprintf("%.2f", r.cpu))
		}
		table.end()
		return
	case "again":
		table := newTable(b, how, "peer", "seconds until the first put")
		for _, r := range rows {
			table.line(r.peer, fmt.Sprintf("%.2f", r.seconds))
		}
		table.end()
		return
	case "late", "herd":
		table := newTable(b, how, "peer", "least ms", "p50 ms", "p99 ms", "last ms", "CPU s / 100,000", "resident MB")
		for _, r := range rows {
			table.line(r.peer, number(r.early), number(r.half), number(r.p99), number(r.last), fmt.Sprintf("%.2f", r.cpu), megabytes(r.resident))
		}
		table.end()
		return
	}
	base := 0.0
	for _, r := range rows {
		if r.peer == reference {
			base = r.rate
		}
	}
	table := newTable(b, how, "peer", "jobs/s", "", "ratio", "p50 ms", "p99 ms", "CPU s / 100,000", "resident MB")
	for _, r := range rows {
		ratio := "–"
		if base > 0 {
			ratio = fmt.Sprintf("%.2f", r.rate/base)
		}
		table.line(r.peer, fmt.Sprintf("%.0f", r.rate), fmt.Sprintf("(%.0f–%.0f)", r.least, r.most), ratio, number(r.half), number(r.p99), fmt.Sprintf("%.2f", r.cpu), megabytes(r.resident))
	}
	table.end()
}

func number(ms float64) string       { return fmt.Sprintf("%.2f", ms) }
func megabytes(bytes float64) string { return fmt.Sprintf("%.0f", bytes/1e6) }

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

func (t *table) end() {
	if t.tab != nil {
		t.tab.Flush() //nolint:errcheck,gosec // likewise
	}
}
