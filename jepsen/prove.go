package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/belfrydb/belfry/jepsen/planted"
	"github.com/belfrydb/belfry/jepsen/report"
	"github.com/belfrydb/belfry/jepsen/workload"
)

// proof is what became of one planted bug.
type proof struct {
	bug planted.Bug
	// valid is the verdict, found are the invariants that were violated, took is the time from the
	// start of the run to the verdict.
	valid bool
	found []string
	took  time.Duration
	text  string
}

// controls are the server without a bug, under all that bugs show under: what is found in it would
// be found without them as well. What takes a secured cluster is looked at apart.
func controls() []planted.Bug {
	open := planted.Bug{Name: "no-bug", Workloads: []string{"all"}}
	secured := planted.Bug{
		Name: "no-bug-secured", Workloads: workload.Names(workload.Secured()),
		Nemeses: []string{"kill-leader", "rotate-authority", "rotate-certs", "rotate-keys", "rotate-tokens"},
	}
	for _, b := range planted.Bugs() {
		workloads, err := workload.Pick(strings.Join(b.Workloads, ","))
		if err == nil && workload.NeedSecrets(workloads) {
			secured.Nemeses = append(secured.Nemeses, b.Nemeses...)
			continue
		}
		open.Nemeses = append(open.Nemeses, b.Nemeses...)
	}
	for _, c := range []*planted.Bug{&open, &secured} {
		slices.Sort(c.Nemeses)
		c.Nemeses = slices.Compact(c.Nemeses)
	}
	return []planted.Bug{open, secured}
}

// controlMax is how long the control goes on at most; it ends when each fault has struck.
const controlMax = 10 * time.Minute

// proofMax is how long the checker may take to find a bug, from the start of the run.
const proofMax = 10 * time.Minute

// caught reports whether every invariant that claims the bug found it, in time; of the control,
// whether nothing was found.
func (p *proof) caught() bool {
	if len(p.bug.Claims) == 0 {
		return p.valid
	}
	all := func(claims []string) bool {
		return !slices.ContainsFunc(claims, func(claim string) bool { return !slices.Contains(p.found, claim) })
	}
	return p.took <= proofMax && (all(p.bug.Claims) || len(p.bug.Or) > 0 && all(p.bug.Or))
}

// What a bug takes that is found by how long a fault goes unserved or unnamed: faults that are held
// for longer than that may be, and strike a cluster that is whole.
const (
	namingTime = time.Minute
	namingHold = 24 * time.Second
	namingCalm = 4 * time.Second
)

// prove runs each planted bug and looks whether the checker finds it.
func prove(ctx context.Context, args []string, out io.Writer) error {
	base := settings{}
	flags := base.flags("prove")
	only := flags.String("bug", "", "only these bugs, separated by commas")
	beside := flags.Int("beside", 2, "how many run beside each other")
	for name, value := range map[string]string{"time": "15s", "calm": "1500ms", "hold": "3s", "pace": "20ms",
		"snapshot-bytes": "65536", "network": "loopback"} {
		if err := flags.Set(name, value); err != nil {
			return fmt.Errorf("setting --%s: %w", name, err)
		}
	}
	if err := base.parse(flags, args); err != nil {
		return err
	}
	if err := decided(flags, "workload", "nemesis", "program"); err != nil {
		return err
	}
	if base.dir == "" {
		base.dir = filepath.Join("jepsen-runs", "prove-"+time.Now().Format("20060102-150405"))
	}
	if *beside < 1 {
		return fmt.Errorf("--beside: have %d, want at least 1", *beside)
	}
	bugs, err := pickBugs(*only)
	if err != nil {
		return err
	}
	if err := emptyDir(base.dir); err != nil {
		return err
	}
	program, err := planted.Build(ctx, base.dir)
	if err != nil {
		return err
	}
	base.program = program
	proofs := make([]proof, len(bugs))
	slots := make(chan struct{}, *beside)
	var running sync.WaitGroup
	var printing sync.Mutex
	for i, b := range bugs {
		running.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			proofs[i] = proveOne(ctx, base, b)
			printing.Lock()
			defer printing.Unlock()
			fmt.Fprintf(out, "%s: %s in %.0f s (%s)\n", b.Name, strings.Join(proofs[i].found, " "), proofs[i].took.Seconds(),
				proofs[i].text)
		})
	}
	running.Wait()
	again := func(bugs []string) string {
		_ = flags.Set("bug", strings.Join(bugs, ",")) // any text will do
		return base.again(flags)
	}
	return errors.Join(sayProofs(out, proofs, again), context.Cause(ctx))
}

// pickBugs returns bugs by their names, separated by commas, or all and the control.
func pickBugs(list string) ([]planted.Bug, error) {
	all := append(planted.Bugs(), controls()...)
	if list == "" {
		return all, nil
	}
	var picked []planted.Bug
	for name := range strings.SplitSeq(list, ",") {
		i := slices.IndexFunc(all, func(b planted.Bug) bool { return b.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("--bug: there is no bug %q", name)
		}
		picked = append(picked, all[i])
	}
	return picked, nil
}

// proveOne runs the server with one bug.
func proveOne(ctx context.Context, base settings, b planted.Bug) proof {
	p := proof{bug: b}
	s := base
	s.dir = filepath.Join(base.dir, b.Name)
	if len(b.Claims) > 0 {
		s.env = []string{planted.Variable + "=" + b.Name}
	}
	s.workloads = strings.Join(b.Workloads, ",")
	s.nemeses = strings.Join(b.Nemeses, ",")
	switch {
	case len(b.Claims) == 0:
		s.time, s.rhythm.Once = controlMax, true
	case slices.Contains(b.Claims, "I39"):
		s.time, s.rhythm.Hold, s.rhythm.Calm = namingTime, namingHold, namingCalm
	case slices.Contains(b.Nemeses, "replace-node"), slices.Contains(b.Nemeses, "flip-snapshot"):
		s.time *= 4 // which replicas need to move, and before which there must be snapshots
	case slices.Contains(b.Claims, "M2"):
		s.time *= 6 // commands must be suspended while they hold jobs, and others take over meanwhile
	case len(b.Nemeses) > 0 || slices.Contains(b.Workloads, "mirror") || slices.Contains(b.Claims, "I11") ||
		slices.Contains(b.Claims, "I12"):
		s.time *= 2 // several strikes, or kills, or enough that came late
	}
	began := time.Now()
	r, err := s.run(ctx, io.Discard)
	p.took = time.Since(began)
	if err != nil {
		p.text = "could not be finished: " + err.Error()
		return p
	}
	for _, v := range r.Violations {
		if !slices.Contains(p.found, v.Invariant) {
			p.found = append(p.found, v.Invariant)
		}
	}
	slices.Sort(p.found)
	p.valid = r.Verdict == report.Valid
	switch {
	case p.caught():
		p.text = "as claimed"
	case p.valid:
		p.text = "NOT FOUND: " + claimed(&b)
	default:
		p.text = "NOT as claimed: " + claimed(&b)
	}
	return p
}

// claimed says which invariants must find a bug.
func claimed(b *planted.Bug) string {
	return strings.Join(append([]string{strings.Join(b.Claims, " ")}, b.Or...), " or ")
}

// sayProofs prints the table, in the form of the README; again is what repeats the proof of some
// bugs.
func sayProofs(out io.Writer, proofs []proof, again func(bugs []string) string) error {
	table := tabwriter.NewWriter(out, 0, 0, 1, ' ', 0)
	fmt.Fprint(table, "\n| bug\t| claimed by\t| found by\t| seconds\t|\n|---\t|---\t|---\t|---\t|\n")
	var missed []string
	for _, p := range proofs {
		fmt.Fprintf(table, "| %s\t| %s\t| %s\t| %.0f\t|\n", p.bug.Name, claimed(&p.bug), strings.Join(p.found, " "),
			p.took.Seconds())
		if !p.caught() {
			missed = append(missed, p.bug.Name)
		}
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("printing the table: %w", err)
	}
	if len(missed) > 0 {
		fmt.Fprintf(out, "repeat with: %s\nverdict: invalid: %d of %d proofs failed: a planted bug was not found by the "+
			"checks that claim it, or something was found without one\n", again(missed), len(missed), len(proofs))
		return errInvalid
	}
	fmt.Fprintf(out, "%d proofs: each planted bug was found by the checks that claim it, and nothing without "+
		"one\nverdict: valid\n", len(proofs))
	return nil
}
