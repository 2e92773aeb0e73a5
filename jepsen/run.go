package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/belfrydb/belfry/jepsen/checker/access"

	"github.com/belfrydb/belfry/jepsen/checker"
	"github.com/belfrydb/belfry/jepsen/history"
	"github.com/belfrydb/belfry/jepsen/lab"
	"github.com/belfrydb/belfry/jepsen/nemesis"
	"github.com/belfrydb/belfry/jepsen/redisson"
	"github.com/belfrydb/belfry/jepsen/report"
	"github.com/belfrydb/belfry/jepsen/workload"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

const (
	// healthyMax is how long the cluster may take to be whole again after the last fault, drainMax how
	// long its queues may take to be empty: jobs that are due by then, leases that have to lapse.
	healthyMax = 2 * time.Minute
	drainMax   = 2 * time.Minute
)

// experiment is one run while it goes on.
type experiment struct {
	*settings
	out       io.Writer // of what goes on
	log       *slog.Logger
	logFile   *os.File
	version   string
	server    string
	wires     *wires
	disks     *disks
	cluster   *compose // in the place of wires and disks
	lab       *lab.Lab
	redisson  *redisson.Side // nil without the workload mirror
	history   *history.History
	workloads []workload.Workload
	faults    []nemesis.Fault
	struck    nemesis.Log
	clocks    nemesis.ClockBook
	tally     tally
	kept      record
	prober    *workload.Prober
	// laterProgram reads one format more than the lab's; empty until it is needed.
	laterProgram string
}

// run carries out the run that arguments describe.
func run(ctx context.Context, args []string, out io.Writer) error {
	s, err := parse(args)
	if err != nil {
		return err
	}
	r, err := s.run(ctx, out)
	if err != nil {
		return err
	}
	return say(out, r, s.dir)
}

// run carries out one run and returns what it says. An error means that there is nothing to be
// said.
func (s *settings) run(ctx context.Context, out io.Writer) (*report.Report, error) {
	e := &experiment{settings: s, version: version(ctx), out: out}
	e.struck.Healed = func(f report.Fault) {
		fmt.Fprintf(out, "%7.1f s  %s, for %.1f s: %s\n", f.From, f.Name, f.To-f.From, f.Text)
	}
	var err error
	if e.workloads, err = workload.Pick(s.workloads); err != nil {
		return nil, err
	}
	if e.faults, err = nemesis.Pick(s.nemeses); err != nil {
		return nil, err
	}
	if err := s.secure(e.workloads, e.faults); err != nil { // a plan may have chosen them
		return nil, err
	}
	if e.workloads, err = workload.Pick(s.workloads); err != nil {
		return nil, err
	}
	if err := s.composable(ctx, e.faults); err != nil {
		return nil, err
	}
	fmt.Fprintln(out, s.command()) // with the seed, also if it is all that is said
	if err := e.prepare(ctx); err != nil {
		return nil, errors.Join(err, e.release(ctx))
	}
	fmt.Fprintf(out, "everything about the run is in %s\n", s.dir)
	err = e.play(ctx)
	ended := e.release(ctx)
	if e.history == nil {
		return nil, errors.Join(err, ended)
	}
	// From here on there is something to be judged, also if the run broke off; but it is not valid
	// then.
	if err := errors.Join(err, context.Cause(ctx), ended); err != nil {
		e.kept.fail(itself, e.history.Now(), "the run could not be finished: %v", err)
	}
	r, err := e.judge()
	if err == nil && r.Verdict == report.Valid && !s.keep {
		err = errors.Join(os.RemoveAll(filepath.Join(s.dir, "data")), os.RemoveAll(filepath.Join(s.dir, "backing")))
	}
	return r, err
}

// prepare makes the directory, the server and the lab.
func (e *experiment) prepare(ctx context.Context) error {
	if e.dir == "" {
		e.dir = filepath.Join("jepsen-runs", fmt.Sprintf("%s-%d", time.Now().Format("20060102-150405"), e.seed%1000))
	}
	dir, err := filepath.Abs(e.dir)
	if err != nil {
		return fmt.Errorf("finding the directory of the run: %w", err)
	}
	if err := emptyDir(dir); err != nil {
		return err
	}
	e.dir = dir
	if e.logFile, err = os.Create(filepath.Join(dir, "harness.log")); err != nil {
		return fmt.Errorf("making the log of the run: %w", err)
	}
	e.log = slog.New(slog.NewTextHandler(e.logFile, nil))
	e.server = cmp.Or(e.program, e.built)
	if e.server == "" {
		if e.server, err = build(ctx, dir); err != nil {
			return err
		}
	}
	var names []string
	for i := range e.nodes {
		names = append(names, fmt.Sprintf("n%d", i+1))
	}
	if e.compose {
		return e.prepareContainers(ctx, names)
	}
	if e.wires, err = newWires(ctx, e.settings.network, names, e.seed, e.log); err != nil {
		return err
	}
	e.disks = newDisks(dir, slices.ContainsFunc(e.faults, func(f nemesis.Fault) bool { return f.NeedsDisk }), e.log)
	flags, err := e.startRedis(ctx)
	if err != nil {
		return err
	}
	e.lab, err = lab.New(lab.Config{
		Dir: dir, Flags: flags, Program: e.server, Names: names, Network: e.wires, Shards: e.shards,
		SnapshotBytes: e.snapshot, Env: append(os.Environ(), e.env...), Logger: e.log, Secured: e.secured,
		Data: func(node string) (string, error) { return e.disks.open(ctx, node) },
	})
	return err
}

// target is what clients talk to. Those of the load ask also nodes that were removed, which must
// not answer.
func (e *experiment) target(asked func(*lab.Node) bool) workload.Target {
	nodes := func() (names []string) {
		for _, n := range e.lab.Nodes() {
			if asked(n) {
				names = append(names, n.Name)
			}
		}
		return names
	}
	t := workload.Target{History: e.history, Nodes: nodes, URL: e.lab.URL, Redisson: e.redisson}
	if secrets := e.lab.Secrets(); secrets != nil {
		t.Secrets = secrets
	}
	return t
}

// all asks every node, members those that are part of the cluster now.
func all(*lab.Node) bool       { return true }
func members(n *lab.Node) bool { return !n.Removed() }

// play starts the cluster, lets clients work while faults strike, heals, and empties the queues.
func (e *experiment) play(ctx context.Context) error {
	if err := e.startCluster(ctx); errors.Is(err, errNotFounded) {
		return nil
	} else if err != nil {
		return err
	}
	if err := e.prepareLoad(ctx); err != nil {
		return err
	}
	err := e.load(ctx)
	if ctx.Err() != nil {
		e.kept.Loaded = e.history.Now()
		return nil // the user is told of the interrupt, and not what the cluster did then
	}
	if lasting, ok := errors.AsType[*nemesis.HealError](err); ok {
		e.kept.Loaded = e.history.Now()
		e.kept.fail("I35", e.history.Now(), "%v", lasting)
		return nil
	}
	if err != nil {
		return err
	}
	e.kept.Loaded = e.history.Now()
	fmt.Fprintf(e.out, "%7.1f s  clients have stopped; the cluster has to be whole and to give out all its jobs\n",
		e.kept.Loaded.Seconds())
	healthy := e.awaitHealthy(ctx)
	e.probe("the cluster is whole again", e.kept.Loaded, healthyMax, healthy)
	if healthy != nil {
		return nil
	}
	began := e.history.Now()
	served := workload.ProbeAll(ctx, e.target(members), e.shards, healthyMax)
	e.probe("every node takes jobs of every shard through their lives", began, healthyMax, served)
	if served != nil {
		return nil
	}
	began = e.history.Now()
	if err := workload.TasksEnd(ctx, e.target(members), healthyMax); err != nil {
		e.kept.fail("I42", e.history.Now(), "%v", err)
	}
	e.log.Info("tasks have ended", slog.Duration("took", e.history.Now()-began))
	e.endSchedules(ctx)
	if e.redisson != nil {
		if err := workload.DrainMirror(ctx, e.target(members), drainMax); err != nil {
			e.kept.fail("M1", e.history.Now(), "the drain: %v", err)
		}
	}
	if err := workload.DrainAll(ctx, e.target(members), e.queues(), drainMax); err != nil {
		e.kept.fail("I1", e.history.Now(), "the drain: %v", err)
	} else {
		e.kept.Drained = e.history.Now()
	}
	e.ring(ctx, "I11", workload.Due)
	e.ring(ctx, "I12", workload.Put)
	converge, cancel := context.WithTimeout(ctx, healthyMax)
	defer cancel()
	began = e.history.Now()
	e.probe("all replicas are equal", began, healthyMax,
		e.lab.Await(converge, "replicas that are equal", func(status *belfryv1.GetClusterResponse) bool {
			if !lab.Converged(status) {
				return false
			}
			e.kept.Replicas = replicasOf(status)
			return true
		}))
	began = e.history.Now()
	e.probe("every node stops in peace", began, healthyMax, e.lab.Stop())
	return nil
}

// endSchedules has schedules put no more jobs, so that their queues can be emptied.
func (e *experiment) endSchedules(ctx context.Context) {
	if !slices.Contains(workload.Names(e.workloads), "schedules") {
		return
	}
	if err := workload.SchedulesEnd(ctx, e.target(members), healthyMax); err != nil {
		e.kept.fail("I47", e.history.Now(), "%v", err)
	}
}

// prepareLoad makes what clients need before the first fault.
func (e *experiment) prepareLoad(ctx context.Context) error {
	err := errors.Join(workload.PrepareProbe(ctx, e.target(members), e.shards),
		workload.Prepare(ctx, e.target(members), e.workloads, e.seed))
	if err != nil {
		return err
	}
	e.prober, err = workload.NewProber(ctx, e.target(members), e.shards, e.seed)
	return err
}

// queues are all in which jobs may be left.
func (e *experiment) queues() []string {
	return slices.Concat(workload.Queues(e.workloads), e.prober.Queues(), []string{workload.Founding})
}

// ringMax is the longest time until a waiting consumer gets a job, with no other load.
const ringMax = 2500 * time.Millisecond

// ring measures how soon waiting consumers at every node get a job.
func (e *experiment) ring(ctx context.Context, invariant string, by workload.Ring) {
	took, err := workload.RingAll(ctx, e.target(members), by)
	if err == nil && took > ringMax {
		err = fmt.Errorf("with nothing else going on a consumer who waited had a job (%s) after %v at best, %v is allowed",
			by, took, ringMax)
	}
	if err != nil {
		e.kept.fail(invariant, e.history.Now(), "%v", err)
	}
	e.log.Info("ring", slog.String("by", string(by)), slog.Duration("took", took))
}

// left notes that a node is no longer part of the cluster.
func (e *experiment) left(node string, at time.Duration) {
	e.kept.Removals = append(e.kept.Removals, checker.Removal{Node: node, From: at})
}

// flipped notes what became of bits that were flipped.
func (e *experiment) flipped(injected, noticed, unread int64) {
	f := &e.kept.Flips
	f.Injected, f.Noticed, f.Unread = f.Injected+injected, f.Noticed+noticed, f.Unread+unread
}

// later returns the program that reads one format more, which is built when it is first needed.
func (e *experiment) later(ctx context.Context) (string, error) {
	if e.laterProgram == "" {
		program, err := buildLater(ctx, e.dir)
		if err != nil {
			return "", err
		}
		e.laterProgram = program
	}
	return e.laterProgram, nil
}

// probe notes what was tried after the last fault.
func (e *experiment) probe(name string, began, limit time.Duration, err error) {
	p := checker.Probe{Name: name, Took: e.history.Now() - began, Limit: limit}
	if err != nil {
		p.Failure = err.Error()
	}
	e.kept.Probes = append(e.kept.Probes, p)
	e.log.Info("probe", slog.String("what", name), slog.Duration("took", p.Took), slog.String("failure", p.Failure))
}

// judge keeps what is known of the run, and judges it.
func (e *experiment) judge() (*report.Report, error) {
	for _, s := range e.lab.Surprises() {
		e.kept.fail("I35", 0, "%s", s)
	}
	k := &e.kept
	k.Command, k.Commit, k.Started, k.Seed, k.Nodes = e.command(), e.version, e.history.Start, e.seed, e.nodes
	k.Workloads, k.Nemeses, k.Faults, k.Counts = workload.Names(e.workloads), nemesis.Names(e.faults), e.struck.Faults(),
		e.tally.counts()
	if secrets := e.lab.Secrets(); secrets != nil {
		k.Secured = true
		for _, r := range secrets.Roots() {
			k.Roots = append(k.Roots, access.Root{ID: r.ID, Known: r.Known, Ending: r.Ending, Ended: r.Ended})
		}
	}
	k.Calls, k.Passages, k.Statuses = e.history.Len(), len(e.history.Passages()), len(e.history.Statuses())
	var err error
	if k.Journals, err = sizeJournals(filepath.Join(e.dir, lab.JournalsDir)); err != nil {
		return nil, err
	}
	for _, c := range e.clocks.Errors() {
		k.Clocks = append(k.Clocks, checker.Clock(c))
	}
	err = errors.Join(k.write(e.dir), writeFile(filepath.Join(e.dir, historyName), e.history.Write))
	if k.Statuses > 0 {
		err = errors.Join(err, writeFile(filepath.Join(e.dir, statusName), e.history.WriteStatuses))
	}
	if k.Passages > 0 {
		err = errors.Join(err, writeFile(filepath.Join(e.dir, passageName), e.history.WritePassages))
	}
	if err != nil {
		return nil, err
	}
	return judge(e.dir, k, e.history)
}

// calmEnd is how long clients go on after the last fault, so that there is a time in which nothing
// has been wrong for a while.
const calmEnd = 8 * time.Second

// The streams of random numbers by which faults choose.
const (
	choices         = 1
	foundingChoices = 4
)

// scene is what faults strike.
func (e *experiment) scene(ctx context.Context, stream uint64) *nemesis.Scene {
	scene := &nemesis.Scene{
		Lab: e.lab, Rand: rand.New(rand.NewPCG(e.seed, stream)), Now: e.history.Now, Logger: e.log, Clocks: &e.clocks,
		Dir: e.dir, Count: e.tally.add, Left: e.left, Flipped: e.flipped, Later: e.later, Answered: e.answered,
		BrokenOff: ctx.Done(),
	}
	if e.cluster == nil {
		scene.Network, scene.Clients, scene.Disk = e.wires.Network, e.wires.clients, e.disks.faulty()
	}
	return scene
}

// answered reports whether any call was answered so far.
func (e *experiment) answered() bool { return slices.ContainsFunc(e.history.Ops(), (*history.Op).OK) }

// load has clients work while faults strike, and for a while after the last.
func (e *experiment) load(ctx context.Context) error {
	working, stop := context.WithCancel(ctx)
	defer stop()
	scene := e.scene(ctx, choices)
	faults := slices.DeleteFunc(slices.Clone(e.faults), func(f nemesis.Fault) bool { return f.Founding })
	struck := make(chan error, 1)
	go func() {
		striking, cancel := context.WithTimeout(working, e.time)
		defer cancel()
		err := nemesis.Run(striking, scene, faults, e.rhythm, &e.struck)
		e.kept.Healed = e.history.Now()
		if err == nil {
			calm, cancel := context.WithTimeout(working, calmEnd)
			defer cancel()
			<-calm.Done()
		}
		stop()
		struck <- err
	}()
	beside := make(chan error, 1)
	go func() { beside <- e.watch(working) }()
	err := workload.Run(working, e.target(all), e.workloads, workload.Load{Seed: e.seed, Pace: e.pace})
	stop() // without clients there is nothing to break
	return errors.Join(err, <-struck, <-beside)
}

// awaitHealthy waits until the cluster is whole.
func (e *experiment) awaitHealthy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, healthyMax)
	defer cancel()
	return e.lab.Await(ctx, "a healthy cluster", lab.Healthy)
}

// release kills what still runs and gives back what the run took from the system, also when ctx has
// ended. What cannot be given back is an error, or it would be missing in the next run.
func (e *experiment) release(ctx context.Context) error {
	var problems []error
	if e.lab != nil {
		e.lab.KillSoon()
	}
	if e.disks != nil { // before the wait: a process that hangs in its disk ends with that
		problems = append(problems, e.disks.close())
	}
	if e.lab != nil {
		e.lab.Kill()
	}
	if e.redisson != nil {
		problems = append(problems, e.redisson.Close())
	}
	if e.wires != nil {
		problems = append(problems, e.wires.Close()) //nolint:contextcheck // it is closed also when ctx has ended
	}
	if e.cluster != nil {
		problems = append(problems, e.cluster.removeAll(ctx, e.lab))
	}
	if e.logFile != nil {
		problems = append(problems, e.logFile.Close())
	}
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("cleaning up: %w", err)
	}
	return nil
}
