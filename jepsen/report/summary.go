package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

const (
	columns     = 80
	outagesMost = 5
)

// Summary returns the text for the terminal at the end of the run; page is the path of its page.
// Lines have at most 80 columns, except the path, the command that repeats an invalid run, and the
// last line, which is only the verdict:
//
//	verdict: valid
//	verdict: invalid: I8 at 1:05.2: what was seen
//
// The texts of the report cannot begin or break a line, or move the cursor.
func Summary(r *Report, page string) string {
	s := &summary{}
	s.line("seed %d, commit %s", r.Seed, oneLine(r.Commit))
	s.line("%s, %s of load, %s, checked in %s", plural(r.Nodes, "node"), span(r.LoadSeconds),
		plural(len(r.Faults), "fault"), span(r.CheckSeconds))
	s.struck(r)
	s.calls(r.Seconds)
	s.counts(r.Counts)
	s.checks(r)
	s.availability(r.Faults)
	s.outages(r.Faults)
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
	s.line("calls: %s applied, %s refused, %s unknown", grouped(total.Applied), grouped(total.NotApplied),
		grouped(total.Unknown))
}

// counts adds them, a line each.
func (s *summary) counts(counts map[string]int64) {
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		s.line("  %-60s %13s", cut(oneLine(name), 60), grouped(counts[name]))
	}
}

// struck says which of the nemeses that were asked for did not strike.
func (s *summary) struck(r *Report) {
	missing := slices.DeleteFunc(slices.Clone(r.Nemeses), func(name string) bool {
		return slices.ContainsFunc(r.Faults, func(f Fault) bool { return f.Name == name })
	})
	if len(missing) > 0 {
		s.line("  of %d nemeses that were asked for, %d did not strike: %s", len(r.Nemeses), len(missing),
			oneLine(strings.Join(missing, ", ")))
	}
}

func (s *summary) checks(r *Report) {
	held, violated, nothing := r.outcomes()
	s.line("checks: %d held, %d violated, %d with nothing to look at", held, violated, nothing)
	var blind []string
	for _, c := range r.Checks {
		if c.Looked == 0 && c.Violations == 0 {
			blind = append(blind, oneLine(c.Invariant))
		}
	}
	if len(blind) > 0 {
		s.line("  nothing to look at: %s", strings.Join(blind, ", "))
	}
	for _, c := range r.Checks {
		if c.Violations > 0 {
			s.line("  %-4s violated %s× in %s: %s", oneLine(c.Invariant), grouped(c.Violations), grouped(c.Looked),
				oneLine(c.Title))
		}
	}
}

// outages adds the longest ones.
func (s *summary) outages(faults []Fault) {
	if len(faults) == 0 {
		return
	}
	longest := slices.Clone(faults)
	slices.SortStableFunc(longest, func(a, b Fault) int { return cmp.Compare(b.Outage, a.Outage) })
	s.line("longest outages of a shard, each begun while the fault lasted:")
	for _, f := range longest[:min(len(longest), outagesMost)] {
		s.line("  %s at %s: %s %s", span(f.Outage), clock(f.From), oneLine(f.Name), oneLine(f.Text))
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
