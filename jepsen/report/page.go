package report

import (
	"embed"
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

//go:embed page.html page.css page.js
var pageFiles embed.FS

// WritePage writes the report as one file of HTML that needs nothing else: no network, and no
// script to be complete. All texts of the report are escaped. A report that is not as Validate
// wants it is not written.
func WritePage(w io.Writer, r *Report) error {
	if err := r.Validate(); err != nil {
		return fmt.Errorf("writing the page: %w", err)
	}
	page, err := template.New("page.html").ParseFS(pageFiles, "page.html", "page.css", "page.js")
	if err != nil {
		return fmt.Errorf("reading the template of the page: %w", err)
	}
	if err := page.Execute(w, pageOf(r)); err != nil {
		return fmt.Errorf("writing the page: %w", err)
	}
	return nil
}

// page is what the template shows.
type page struct {
	*Report
	Timeline   *timeline
	Sentence   string
	Reason     string // the first violation, if there is one
	Tiles      []fact
	Facts      []fact
	Checks     []checkRow
	Violated   []violationRow
	Struck     []faultRow
	Tried      []triedRow
	Counted    []fact
	Recoveries bool          // whether any fault has one
	Numbers    [][11]float64 // of each second, for the script
}

// fact is a name and what it stands for.
type fact struct{ Name, Text string }

// checkRow is one line of the table of checks.
type checkRow struct {
	Class, Invariant, Title    string // Class is "held", "violated" or "nothing"
	Looked, Violations, Length string
}

// violationRow is one line of the table of violations.
type violationRow struct {
	ID                  int
	Invariant, At, Text string
}

// faultRow is one line of the table of faults.
type faultRow struct {
	ID                                         int
	Name, Text, From, Length, Outage, Recovery string
	// Available says what was found of the availability while it lasted; empty if that was not judged.
	Available string
}

// triedRow is one line of the table of what was tried after the last fault; Class is that of a
// check.
type triedRow struct{ Class, Name, Took, Limit, Failure string }

func pageOf(r *Report) *page {
	p := &page{Report: r, Timeline: timelineOf(r), Sentence: r.sentence(), Tiles: r.tiles(), Facts: r.facts()}
	if r.Verdict == Invalid {
		p.Reason = r.reason()
	}
	for _, c := range r.Checks {
		p.Checks = append(p.Checks, checkRowOf(c))
	}
	for i, v := range r.Violations {
		p.Violated = append(p.Violated, violationRow{ID: i + 1, Invariant: v.Invariant, At: clockTenths(v.At), Text: v.Text})
	}
	for i, f := range r.Faults {
		p.Struck = append(p.Struck, faultRow{ID: i + 1, Name: f.Name, Text: f.Text, From: clockTenths(f.From),
			Length: span(f.To - f.From), Outage: span(f.Outage), Available: f.Availability.sentence()})
	}
	for _, rec := range r.recoveries() {
		p.Struck[rec.fault].Recovery = rec.String()
		p.Recoveries = true
	}
	for _, one := range r.Probes {
		row := triedRow{Class: "held", Name: one.Name, Took: span(one.Took), Limit: span(one.Limit), Failure: one.Failure}
		if one.Failure != "" || one.Took > one.Limit {
			row.Class = "violated"
		}
		p.Tried = append(p.Tried, row)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Counts)) {
		p.Counted = append(p.Counted, fact{name, grouped(r.Counts[name])})
	}
	p.Numbers = make([][11]float64, len(r.Seconds))
	for i, s := range r.Seconds {
		late := s.Lateness
		p.Numbers[i] = [11]float64{
			float64(s.Applied), float64(s.NotApplied), float64(s.Unknown),
			float64(s.Latency.Count), s.Latency.P50, s.Latency.P99, s.Latency.Max, float64(late.Count), late.P50,
			late.P99, late.Max,
		}
	}
	return p
}

// sentence says what the verdict rests on.
func (r *Report) sentence() string {
	held, violated, nothing := r.outcomes()
	said := fmt.Sprintf("%s held", plural(held, "check"))
	if violated > 0 {
		said += fmt.Sprintf(", %d violated", violated)
	}
	if nothing > 0 {
		said += fmt.Sprintf(", %d had nothing to look at", nothing)
	}
	return fmt.Sprintf("%s, %s of load, %s: %s.", plural(r.Nodes, "node"), span(r.LoadSeconds),
		plural(len(r.Faults), "fault"), said)
}

func (r *Report) tiles() []fact {
	total := sum(r.Seconds)
	var looked, violations int64
	for _, c := range r.Checks {
		looked += c.Looked
		violations += c.Violations
	}
	violations = max(violations, int64(len(r.Violations)))
	return []fact{
		{"calls applied", grouped(total.Applied)}, {"calls refused", grouped(total.NotApplied)},
		{"outcomes unknown", grouped(total.Unknown)},
		{"faults", grouped(int64(len(r.Faults)))}, {"things looked at", grouped(looked)}, {"violations", grouped(violations)},
	}
}

func (r *Report) facts() []fact {
	return []fact{
		{"seed", strconv.FormatUint(r.Seed, 10)},
		{"commit", r.Commit},
		{"started", r.Started.UTC().Format("2006-01-02 15:04:05 UTC")},
		{"check", span(r.CheckSeconds)},
		{"workloads", listed(r.Workloads)},
		{"nemeses", listed(r.Nemeses)},
	}
}

func listed(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return grouped(int64(n)) + " " + thing + "s"
}

func checkRowOf(c Check) checkRow {
	row := checkRow{
		Class: "held", Invariant: c.Invariant, Title: c.Title,
		Looked: grouped(c.Looked), Violations: grouped(c.Violations), Length: span(c.Seconds),
	}
	switch {
	case c.Violations > 0:
		row.Class = "violated"
	case c.Looked == 0:
		row.Class, row.Looked, row.Violations = "nothing", "nothing to look at", "–"
	}
	return row
}
