package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

const (
	columns        = 80
	recoveriesMost = 3
)

// Summary is what is said on the terminal when the run has ended; page is where its page is. Lines are of 80 columns at most, except the path, the
// command that repeats an invalid run, and the last line, which is the verdict and nothing else:
//
//	verdict: valid
//	verdict: invalid: I8 at 1:05.2: what was seen
//
// The texts of the report cannot begin a line, break one, or move the cursor.
func Summary(r *Report, page string) string {
	s := &summary{}
	s.line("seed %d, commit %s", r.Seed, oneLine(r.Commit))
	s.line("%s, %s of load, %s, checked in %s", plural(r.Nodes, "node"), span(r.LoadSeconds), plural(len(r.Faults), "fault"), span(r.CheckSeconds))
	s.calls(r.Seconds)
	s.counts(r.Counts)
	s.checks(r)
	s.recoveries(r)
	s.WriteString("page: " + oneLine(page) + "\n")
	if r.Verdict == Valid {
		s.WriteString("verdict: valid\n")
		return s.String()
	}
	s.WriteString("repeat with: " + oneLine(r.Command) + "\n")
	s.WriteString("verdict: invalid: " + r.reason() + "\n")
	return s.String()
}

// reason is the first violation in one line.
func (r *Report) reason() string {
	if len(r.Violations) == 0 {
		return "the report does not say why"
	}
	v := r.Violations[0]
	return fmt.Sprintf("%s at %s: %s", oneLine(v.Invariant), clockTenths(v.At), oneLine(v.Text))
}

// summary collects lines.
type summary struct{ strings.Builder }

// line adds one that fits.
func (s *summary) line(format string, args ...any) {
	s.WriteString(cut(fmt.Sprintf(format, args...), columns) + "\n")
}

func (s *summary) calls(seconds []Second) {
	total := sum(seconds)
	s.line("calls: %s applied, %s refused, %s unknown", grouped(total.Applied), grouped(total.NotApplied), grouped(total.Unknown))
}

// counts adds them in two columns.
func (s *summary) counts(counts map[string]int64) {
	for pair := range slices.Chunk(slices.Sorted(maps.Keys(counts)), 2) {
		var cells []string
		for _, name := range pair {
			cells = append(cells, fmt.Sprintf("%-24s %13s", cut(oneLine(name), 24), grouped(counts[name])))
		}
		s.line("  %s", strings.Join(cells, "  "))
	}
}

func (s *summary) checks(r *Report) {
	held, violated, nothing := r.outcomes()
	s.line("checks: %d held, %d violated, %d with nothing to look at", held, violated, nothing)
	for _, c := range r.Checks {
		if c.Violations > 0 {
			s.line("  %-4s violated %s× in %s: %s", oneLine(c.Invariant), grouped(c.Violations), grouped(c.Looked), oneLine(c.Title))
		}
	}
}

func (s *summary) recoveries(r *Report) {
	all := r.recoveries()
	if len(all) == 0 {
		return
	}
	slices.SortStableFunc(all, func(a, b recovery) int { return cmp.Compare(b.after, a.after) })
	s.line("slowest recoveries, from the end of the last fault:")
	for _, rec := range all[:min(len(all), recoveriesMost)] {
		f := r.Faults[rec.fault]
		s.line("  %s at %s: %s %s", rec, clock(f.To), oneLine(f.Name), oneLine(f.Text))
	}
}

// String says how long it took.
func (rec recovery) String() string {
	if rec.back {
		return "within " + span(rec.after)
	}
	return "not within " + span(rec.after)
}

// outcomes counts the checks by what came of them. One that looked at nothing has not held.
func (r *Report) outcomes() (held, violated, nothing int) {
	for _, c := range r.Checks {
		switch {
		case c.Violations > 0:
			violated++
		case c.Looked == 0:
			nothing++
		default:
			held++
		}
	}
	return held, violated, nothing
}

// sum adds up the calls.
func sum(seconds []Second) Second {
	var total Second
	for _, s := range seconds {
		total.Applied += s.Applied
		total.NotApplied += s.NotApplied
		total.Unknown += s.Unknown
	}
	return total
}
