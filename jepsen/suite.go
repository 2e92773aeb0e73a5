package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/belfrydb/belfry/jepsen/nemesis"
	"github.com/belfrydb/belfry/jepsen/report"
)

// summary is what a suite says of all its runs.
type summary struct {
	Command string           `json:"command"`
	Seed    uint64           `json:"seed"`
	Started time.Time        `json:"started"`
	Seconds float64          `json:"seconds"`
	Verdict report.Verdict   `json:"verdict"`
	Runs    []oneRun         `json:"runs"`
	Counts  map[string]int64 `json:"counts"`
	// Outages are those of each nemesis in seconds, one for each time that it struck, Looked is how
	// much each invariant had to look at.
	Outages map[string][]float64 `json:"outages"`
	// Missing are the nemeses that the plan promised, alone or combined, and that did not strike.
	Missing []string         `json:"missing,omitempty"`
	Looked  map[string]int64 `json:"looked"`
}

// oneRun is one run of a suite.
type oneRun struct {
	Dir          string         `json:"dir"`
	Command      string         `json:"command"`
	Verdict      report.Verdict `json:"verdict"`
	Text         string         `json:"text,omitempty"`
	LoadSeconds  float64        `json:"loadSeconds"`
	CheckSeconds float64        `json:"checkSeconds"`
	Faults       int            `json:"faults"`
	Calls        int64          `json:"calls"`
	Commands     int64          `json:"commands"`
}

// suite carries out many runs.
func suite(ctx context.Context, args []string, out io.Writer) error {
	base := settings{}
	flags := base.flags("suite")
	full := flags.Bool("full", false, "every kind of fault, every pair of the core kinds and the composites once, "+
		"instead of some for a certain time")
	budget := flags.Duration("budget", 40*time.Minute, "begin no run after that time, if not --full")
	if err := base.parse(flags, args); err != nil {
		return err
	}
	if *budget <= 0 {
		return fmt.Errorf("--budget: have %v, want more than 0", *budget)
	}
	own := []string{"nemesis", "once", "compose"}
	if *full {
		own = append(own, "time", "budget")
	}
	if err := decided(flags, own...); err != nil {
		return err
	}
	if base.dir == "" {
		base.dir = filepath.Join("jepsen-runs", "suite-"+time.Now().Format("20060102-150405"))
	}
	if err := emptyDir(base.dir); err != nil {
		return err
	}
	var err error
	if base.built, err = build(ctx, base.dir); err != nil {
		return err
	}
	s := &summary{
		Command: base.again(flags), Seed: base.seed, Started: time.Now(), Verdict: report.Valid,
		Counts: map[string]int64{}, Outages: map[string][]float64{}, Looked: map[string]int64{},
	}
	fmt.Fprintln(out, s.Command)
	if *full {
		plan := fullPlan(base)
		for i, one := range plan {
			fmt.Fprintf(out, "\nrun %d\n", i+1)
			s.carryOut(ctx, one, out)
		}
		s.Missing = s.missing(promised(plan))
	} else {
		for n := 0; time.Since(s.Started) < *budget && ctx.Err() == nil; n++ {
			fmt.Fprintf(out, "\nrun %d\n", n+1)
			s.carryOut(ctx, shortRun(base, n), out)
		}
	}
	s.Seconds = time.Since(s.Started).Seconds()
	if ctx.Err() != nil {
		s.Verdict = report.Invalid // what was to come is not known
	}
	return errors.Join(s.finish(base.dir, out), context.Cause(ctx))
}

// carryOut carries out one run and adds what it says. A run that is not valid does not end the
// suite.
func (s *summary) carryOut(ctx context.Context, one settings, out io.Writer) {
	if ctx.Err() != nil {
		return
	}
	r, err := one.run(ctx, out)
	if err != nil {
		s.Runs = append(s.Runs, oneRun{Dir: one.dir, Command: one.command(), Verdict: report.Invalid, Text: err.Error()})
		fmt.Fprintf(out, "could not be finished: %v\n", err)
		return
	}
	fmt.Fprint(out, report.Summary(r, filepath.Join(one.dir, pageName)))
	s.add(one.dir, r)
}

// add adds what a run says.
func (s *summary) add(dir string, r *report.Report) {
	ran := oneRun{
		Dir: dir, Command: r.Command, Verdict: r.Verdict, LoadSeconds: r.LoadSeconds, CheckSeconds: r.CheckSeconds,
		Faults: len(r.Faults),
		Calls:  r.Counts["calls"], Commands: r.Counts["commands"],
	}
	if r.Verdict != report.Valid {
		ran.Text = r.Violations[0].Invariant + ": " + r.Violations[0].Text
	}
	s.Runs = append(s.Runs, ran)
	for what, n := range r.Counts {
		if strings.HasSuffix(what, "(ms)") { // of times the worst: they do not add up
			s.Counts[what] = max(s.Counts[what], n)
		} else {
			s.Counts[what] += n
		}
	}
	for _, f := range r.Faults {
		s.Outages[f.Name] = append(s.Outages[f.Name], f.Outage)
	}
	for _, c := range r.Checks {
		s.Looked[c.Invariant] += c.Looked
	}
}

// finish prints and keeps what there is to say.
func (s *summary) finish(dir string, out io.Writer) error {
	reason := s.reason()
	if reason != "" {
		s.Verdict = report.Invalid
	}
	err := writeFile(filepath.Join(dir, "suite.json"), func(w io.Writer) error {
		lines := json.NewEncoder(w)
		lines.SetIndent("", "  ")
		return lines.Encode(s)
	})
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(table, "\nrun\tseconds\tfaults\tcalls\tcommands\tcheck s\tverdict\t\n")
	for i, r := range s.Runs {
		fmt.Fprintf(table, "%d\t%.0f\t%d\t%d\t%d\t%.1f\t%s\t\n", i+1, r.LoadSeconds, r.Faults, r.Calls, r.Commands,
			r.CheckSeconds, r.Verdict)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("printing the table of runs: %w", err)
	}
	if err := printOutages(out, s.Outages); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d runs in %.0f s: %d calls, %d commands; %d kinds of fault and combinations struck %d times\n",
		len(s.Runs), s.Seconds, s.Counts["calls"], s.Counts["commands"], len(s.Outages), s.struck())
	for what, missing := range map[string][]string{"kinds that did not strike": s.missing(nemesis.Names(nemesis.All())),
		"checks that had nothing to look at": s.blind()} {
		if len(missing) > 0 {
			fmt.Fprintf(out, "%s: %s\n", what, strings.Join(missing, ", "))
		}
	}
	for _, r := range s.Runs {
		if r.Verdict != report.Valid {
			fmt.Fprintf(out, "invalid: %s\n  repeat: %s\n  %s\n", r.Dir, r.Command, r.Text)
		}
	}
	if s.Verdict != report.Valid {
		fmt.Fprintf(out, "repeat all with: %s\nverdict: invalid: %s\n", s.Command, cmp.Or(reason, "it was broken off"))
		return errInvalid
	}
	fmt.Fprintln(out, "verdict: valid")
	return nil
}

// reason says why a suite is not valid; empty if its runs and faults do not show that.
func (s *summary) reason() string {
	invalid := 0
	for _, r := range s.Runs {
		if r.Verdict != report.Valid {
			invalid++
		}
	}
	switch {
	case invalid > 0:
		return fmt.Sprintf("%d of %d runs are invalid", invalid, len(s.Runs))
	case len(s.Runs) == 0:
		return "there was no run"
	case len(s.Missing) > 0:
		return "these did not strike: " + strings.Join(s.Missing, ", ")
	default:
		return ""
	}
}

// missing returns which nemeses struck in no run: a kind alone or with others, a combination as
// that.
func (s *summary) missing(wanted []string) []string {
	kinds := strings.Split(strings.Join(slices.Collect(maps.Keys(s.Outages)), "+"), "+")
	return slices.DeleteFunc(wanted, func(name string) bool {
		return len(s.Outages[name]) > 0 || slices.Contains(kinds, name)
	})
}

// blind returns the checks that had nothing to look at in any run.
func (s *summary) blind() (checks []string) {
	for check, looked := range s.Looked {
		if looked == 0 {
			checks = append(checks, check)
		}
	}
	slices.Sort(checks)
	return checks
}

// promised returns every nemesis of a plan.
func promised(plan []settings) (all []string) {
	for _, one := range plan {
		all = append(all, strings.Split(one.nemeses, ",")...)
	}
	return all
}

// struck is how often faults struck.
func (s *summary) struck() (n int) {
	for _, each := range s.Outages {
		n += len(each)
	}
	return n
}
