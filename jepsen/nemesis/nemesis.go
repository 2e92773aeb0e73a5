// Package nemesis has the faults that strike a run, and decides from a seed which strike when.
package nemesis

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/belfrydb/belfry/jepsen/disk"
	"github.com/belfrydb/belfry/jepsen/lab"
	"github.com/belfrydb/belfry/jepsen/network"
	"github.com/belfrydb/belfry/jepsen/report"
)

// Fault is a kind of fault.
type Fault struct {
	// Number is that of the fault's group in jepsen/README.md.
	Number int
	Name   string
	// What says what it does.
	What string
	// Inject begins the fault and says what it did to whom; heal ends it. An error means that it could
	// not be injected, and fails the run.
	Inject func(context.Context, *Scene) (text string, heal Heal, err error)
	// HoldMin is how long it is held at least.
	HoldMin time.Duration
	// Founding says that it strikes while the cluster is founded, once, and not among the others.
	Founding bool
	// NeedsDisk says that it strikes the disk in user space.
	NeedsDisk bool
	// NeedsSecrets says that the fault needs a secured cluster.
	NeedsSecrets bool
}

// Heal ends a fault. An error fails the run.
type Heal func(context.Context) error

// Scene is what faults strike.
type Scene struct {
	Lab  *lab.Lab
	Rand *rand.Rand
	// BrokenOff is closed when the user interrupts the run; nil if that is not possible.
	BrokenOff <-chan struct{}
	// Hold is how long the fault will be held, for those that act meanwhile.
	Hold time.Duration
	// Now is the time since the start of the run.
	Now    func() time.Duration
	Logger *slog.Logger
	Clocks *ClockBook
	// Dir is a directory for what faults have to keep.
	Dir     string
	Network *network.Network
	// Clients returns the names under which the network knows clients.
	Clients func() []string
	// Disk returns the disk of a node; nil if disks are those of the system.
	Disk func(node string) *disk.Disk
	// Left is told that a node is no longer part of the cluster.
	Left func(node string, at time.Duration)
	// Flipped is told of bits that were flipped in files: how many more, how many of them the server
	// noticed, and how many it never read.
	Flipped func(injected, noticed, unread int64)
	// Later returns a program that reads one format more than the lab's.
	Later func(context.Context) (program string, err error)
	// Answered reports whether any call of a client was answered so far.
	Answered func() bool
	// Count adds to what the report says happened.
	Count func(what string, n int64)

	// effect is what the fault that is being injected leaves whole; nil if it said nothing.
	effect *report.Effect
}

// All returns every fault that processes can have; see ContainerFaults.
func All() []Fault {
	disks := diskFaults()
	for i := range disks {
		disks[i].NeedsDisk = true
	}
	return slices.Concat(foundingFaults(), networkFaults(), reachFaults(), processFaults(), momentFaults(), disks,
		damageFaults(), clockFaults(), clusterFaults(), secretFaults(), clientFaults())
}

// Pick returns faults by their names, separated by commas. "a+b" strikes with both at once; "all"
// is every one, "none" is none.
func Pick(names string) ([]Fault, error) {
	switch names {
	case "all":
		return All(), nil
	case "none", "":
		return nil, nil
	}
	var picked []Fault
	for name := range strings.SplitSeq(names, ",") {
		f, err := pickOne(name)
		if err != nil {
			return nil, err
		}
		picked = append(picked, f)
	}
	return picked, nil
}

// pickOne returns a fault, or several that strike together.
func pickOne(name string) (Fault, error) {
	var parts []Fault
	for part := range strings.SplitSeq(name, "+") {
		known := slices.Concat(All(), ContainerFaults())
		i := slices.IndexFunc(known, func(f Fault) bool { return f.Name == part })
		if i < 0 {
			return Fault{}, fmt.Errorf("there is no nemesis %q; there are %s", part, strings.Join(Names(known), ", "))
		}
		if known[i].Founding && name != part {
			return Fault{}, fmt.Errorf("%s strikes before there is a cluster, and not together with others as in %q", part, name)
		}
		parts = append(parts, known[i])
	}
	if len(parts) == 1 {
		return parts[0], nil
	}
	f := together(name, parts)
	f.NeedsDisk = slices.ContainsFunc(parts, func(part Fault) bool { return part.NeedsDisk })
	f.NeedsSecrets = slices.ContainsFunc(parts, func(part Fault) bool { return part.NeedsSecrets })
	return f, nil
}

// together is a fault that is several at once, healed in the opposite order.
func together(name string, parts []Fault) Fault {
	return Fault{Name: name, What: "all of them at once",
		Inject: func(ctx context.Context, s *Scene) (string, Heal, error) {
			var texts []string
			var heals []Heal
			heal := func(ctx context.Context) error {
				var problems []error
				for _, h := range slices.Backward(heals) {
					problems = append(problems, h(ctx))
				}
				return errors.Join(problems...)
			}
			for _, f := range parts {
				text, h, err := f.Inject(ctx, s)
				if err != nil {
					return "", nil, errors.Join(fmt.Errorf("%s: %w", f.Name, err), heal(ctx))
				}
				texts, heals = append(texts, text), append(heals, h)
			}
			s.effect = nil // each spares what another may strike
			return strings.Join(texts, "; "), heal, nil
		}}
}

// Names returns the names of faults.
func Names(list []Fault) (names []string) {
	for _, f := range list {
		names = append(names, f.Name)
	}
	return names
}

// Rhythm is how faults follow each other.
type Rhythm struct {
	// Calm is the mean time before a fault, Hold the mean time that it lasts.
	Calm, Hold time.Duration
	// Once ends the run when each fault has struck.
	Once bool
}

// The rhythm of a run that does not say otherwise.
const (
	CalmDefault = 3 * time.Second
	HoldDefault = 5 * time.Second
)

// Log is what struck, and when.
type Log struct {
	// Healed, if not nil, is told of each fault that has been healed.
	Healed func(report.Fault)

	mu     sync.Mutex
	faults []report.Fault
}

// Faults returns what struck so far.
func (l *Log) Faults() []report.Fault {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.faults)
}

func (l *Log) add(f report.Fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faults = append(l.faults, f)
	if l.Healed != nil {
		l.Healed(f)
	}
}

// Run strikes with faults, each in turn in a random order, until ctx ends or each has struck once,
// if that is the rhythm. When it returns all is healed. An error means that a fault could not be
// injected, a *HealError that the cluster did not come back from one.
func Run(ctx context.Context, s *Scene, faults []Fault, rhythm Rhythm, log *Log) error {
	for len(faults) > 0 {
		for _, i := range s.Rand.Perm(len(faults)) {
			if !pause(ctx, s.around(rhythm.Calm)) {
				return nil
			}
			if err := s.strike(ctx, faults[i], s.around(rhythm.Hold), log); err != nil {
				return fmt.Errorf("the nemesis %s: %w", faults[i].Name, err)
			}
		}
		if rhythm.Once {
			return nil
		}
	}
	if !rhythm.Once {
		<-ctx.Done()
	}
	return nil
}

// namedShare: of the faults that spare a majority one in so many is held until status must have
// named it.
const namedShare = 4

// brokenOffMax is how long a fault and its end may go on when the run is broken off: enough to take
// back what the system has, not to wait for the cluster.
const brokenOffMax = 5 * time.Second

// goingOn returns a context that outlives ctx, but not for long the run.
func (s *Scene) goingOn(ctx context.Context) (context.Context, context.CancelFunc) {
	going, cancel := context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		select {
		case <-s.BrokenOff:
			pause(going, brokenOffMax)
			cancel()
		case <-going.Done():
		}
	}()
	return going, cancel
}

// strike injects one fault, holds it and heals it. What has begun is healed also when ctx ends.
func (s *Scene) strike(ctx context.Context, f Fault, hold time.Duration, log *Log) error {
	hold = max(hold, f.HoldMin)
	s.Hold, s.effect = hold, nil
	from := s.Now()
	going, cancel := s.goingOn(ctx)
	defer cancel()
	text, heal, err := f.Inject(going, s)
	if err != nil {
		return err
	}
	s.Logger.Info("fault", slog.String("nemesis", f.Name), slog.String("what", text))
	effect := s.effect
	if effect != nil {
		effect.Struck = s.Now().Seconds()
		if s.Rand.IntN(namedShare) == 0 {
			hold = max(hold, namingHold)
		}
	}
	pause(ctx, hold)
	if effect != nil {
		effect.Healing = s.Now().Seconds()
	}
	err = heal(going)
	log.add(report.Fault{Name: f.Name, Text: text, From: from.Seconds(), To: s.Now().Seconds(), Effect: effect})
	s.Logger.Info("healed", slog.String("nemesis", f.Name), slog.Duration("after", s.Now()-from))
	if err != nil {
		return &HealError{err}
	}
	return nil
}

// HealError says that the cluster did not come back when a fault had ended: a node did not start,
// or the cluster did not become whole.
type HealError struct{ err error }

func (e *HealError) Error() string { return "after the fault had ended: " + e.err.Error() }

// Unwrap returns what went wrong.
func (e *HealError) Unwrap() error { return e.err }

// around returns a random duration between a half and three halves of d.
func (s *Scene) around(d time.Duration) time.Duration {
	return d/2 + time.Duration(s.Rand.Int64N(int64(d)+1))
}

// between returns a random duration.
func (s *Scene) between(least, most time.Duration) time.Duration {
	return least + time.Duration(s.Rand.Int64N(int64(most-least)+1))
}

// pause waits; false when ctx ended.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// apart returns the scene for what goes on beside other faults: what it chooses comes from the
// seed, and not from when it does.
func (s *Scene) apart() *Scene {
	own := *s
	own.Rand = rand.New(rand.NewPCG(s.Rand.Uint64(), 0))
	return &own
}

// anyone returns a random running node.
func (s *Scene) anyone() (*lab.Node, error) {
	up := s.Lab.Running()
	if len(up) == 0 {
		return nil, errors.New("no node runs")
	}
	return up[s.Rand.IntN(len(up))], nil
}

// anyoneOfWhole waits until the cluster has all that it should have, and returns a random running
// node.
func (s *Scene) anyoneOfWhole(ctx context.Context) (*lab.Node, error) {
	if err := s.awaitWhole(ctx); err != nil {
		return nil, err
	}
	return s.anyone()
}

// several returns n random running nodes.
func (s *Scene) several(n int) ([]*lab.Node, error) {
	up := s.Lab.Running()
	if len(up) < n {
		return nil, fmt.Errorf("%d nodes run, not %d", len(up), n)
	}
	s.Rand.Shuffle(len(up), func(i, j int) { up[i], up[j] = up[j], up[i] })
	return up[:n], nil
}

// remaining returns the nodes that are part of the cluster, whether they run or not.
func (s *Scene) remaining() []*lab.Node {
	return slices.DeleteFunc(s.Lab.Nodes(), (*lab.Node).Removed)
}

// namesOf joins the names of nodes.
func namesOf(nodes []*lab.Node) string { return strings.Join(names(nodes), ", ") }

func names(nodes []*lab.Node) (all []string) {
	for _, n := range nodes {
		all = append(all, n.Name)
	}
	return all
}
