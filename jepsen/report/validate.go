package report

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// secondsMax is the longest run that is believed, 30 days. A time beyond it is a mistake in units.
const secondsMax = 30 * 24 * 3600

// Validate returns every reason why a report cannot be one, or nil. Above all, its verdict must be
// that of its checks: a report that calls itself valid beside a violation is refused, and so is one
// that is invalid and does not say why.
func (r *Report) Validate() error {
	var p problems
	p.unless(r.Command != "", "no command repeats it")
	p.unless(r.Commit != "", "it has no commit")
	p.unless(!r.Started.IsZero(), "it has no start")
	p.unless(r.Nodes > 0, "it has %d nodes", r.Nodes)
	p.unless(isTime(r.LoadSeconds), "clients worked for %v s", r.LoadSeconds)
	p.unless(isTime(r.CheckSeconds), "the check took %v s", r.CheckSeconds)
	p.verdict(r)
	p.checks(r)
	for _, name := range slices.Sorted(maps.Keys(r.Counts)) {
		p.unless(name != "", "a count has no name")
		p.unless(r.Counts[name] >= 0, "%s is %d", name, r.Counts[name])
	}
	if len(r.Seconds) > secondsMax {
		p.unless(false, "%d seconds are no run", len(r.Seconds))
	} else {
		for i := range r.Seconds {
			p.second(i, &r.Seconds[i])
		}
	}
	for i, f := range r.Faults {
		p.unless(f.Name != "", "fault %d has no name", i)
		p.unless(isTime(f.From) && isTime(f.To) && f.From <= f.To, "fault %d is from %v s to %v s", i, f.From, f.To)
		p.unless(isTime(f.Outage), "fault %d has an outage of %v s", i, f.Outage)
		p.available(i, &r.Faults[i])
		p.unless(i == 0 || r.Faults[i-1].From <= f.From, "fault %d begins before the one before it", i)
	}
	for i, probe := range r.Probes {
		p.unless(probe.Name != "", "probe %d has no name", i)
		p.unless(isTime(probe.Took) && isTime(probe.Limit), "probe %d took %v s of %v s", i, probe.Took, probe.Limit)
	}
	return errors.Join(p...)
}

// problems are what is wrong with a report.
type problems []error

func (p *problems) unless(ok bool, format string, args ...any) {
	if !ok {
		*p = append(*p, fmt.Errorf(format, args...))
	}
}

func (p *problems) verdict(r *Report) {
	violated := len(r.Violations) > 0
	switch r.Verdict {
	case Valid:
		p.unless(!violated, "it is valid and has %d violations", len(r.Violations))
	case Invalid:
		p.unless(violated, "it is invalid and does not say why")
	default:
		p.unless(false, "%q is no verdict", r.Verdict)
	}
	for i, v := range r.Violations {
		p.unless(v.Invariant != "", "violation %d names no invariant", i)
		p.unless(v.Text != "", "violation %d says nothing", i)
		p.unless(isTime(v.At), "violation %d is at %v s", i, v.At)
	}
}

func (p *problems) available(i int, f *Fault) {
	if e := f.Effect; e != nil {
		p.unless(len(e.Healthy) > 0, "fault %d spares no node", i)
		p.unless(f.From <= e.Began && e.Began <= e.Struck && e.Struck <= e.Healing && e.Healing <= f.To,
			"fault %d has the effect %+v", i, *e)
		p.unless(isTime(e.Allowed) && (e.Allowed > 0) == (e.Why != ""), "fault %d allows %v s for the reason %q",
			i, e.Allowed, e.Why)
	}
	a := f.Availability
	p.unless(a == nil || f.Effect != nil, "fault %d spares nothing, and is judged by that", i)
	if a == nil {
		return
	}
	p.unless(isTime(a.Slack), "fault %d has %v s of slack", i, a.Slack)
	for _, seconds := range []map[string]float64{a.Served, a.Named} {
		for node, took := range seconds {
			p.unless(isTime(took), "fault %d took %v s for %s", i, took, node)
		}
	}
}

func (p *problems) checks(r *Report) {
	shown := map[string]int64{}
	for _, v := range r.Violations {
		shown[v.Invariant]++
	}
	seen := map[string]bool{}
	for _, c := range r.Checks {
		p.unless(c.Invariant != "", "a check names no invariant")
		p.unless(!seen[c.Invariant], "%s is checked twice", c.Invariant)
		seen[c.Invariant] = true
		p.unless(c.Looked >= 0, "%s looked at %d", c.Invariant, c.Looked)
		p.unless(isTime(c.Seconds), "%s took %v s", c.Invariant, c.Seconds)
		p.unless(c.Violations >= shown[c.Invariant], "%s has %d violations, %d are shown", c.Invariant, c.Violations,
			shown[c.Invariant])
		p.unless(c.Violations == 0 || shown[c.Invariant] > 0, "%s has %d violations, none is shown", c.Invariant,
			c.Violations)
	}
}

func (p *problems) second(i int, s *Second) {
	p.unless(s.Applied >= 0 && s.NotApplied >= 0 && s.Unknown >= 0, "second %d has %d, %d and %d calls", i, s.Applied,
		s.NotApplied, s.Unknown)
	p.unless(s.Latency.ordered(), "second %d has the latency %+v", i, s.Latency)
	p.unless(s.Lateness.ordered(), "second %d has the lateness %+v", i, s.Lateness)
}

// ordered reports whether quantiles can be those of Count values.
func (q Quantiles) ordered() bool {
	if q.Count == 0 {
		return q == Quantiles{}
	}
	return q.Count > 0 && q.P50 >= 0 && q.P50 <= q.P99 && q.P99 <= q.Max && q.Max <= secondsMax*1000
}

// isTime reports whether seconds can be a time of a run; what is no number cannot.
func isTime(seconds float64) bool { return seconds >= 0 && seconds <= secondsMax }
