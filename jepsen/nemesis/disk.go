package nemesis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/belfrydb/belfry/jepsen/disk"
	"github.com/belfrydb/belfry/jepsen/lab"
)

// diskFaults need the disk in user space.
func diskFaults() []Fault {
	return []Fault{
		{Number: 21, Name: "kill-at-step", What: "a node killed before or after a certain step of its disk",
			Inject: killAtStep(ofRunning)},
		{Number: 21, Name: "kill-at-snapshot", What: "a node killed while it makes or forgets a snapshot",
			Inject: killAtStep(ofSnapshots)},
		{Number: 33, Name: "flip-log-at-snapshot", What: "a node killed while it makes or forgets a snapshot, and bits " +
			"flipped in its log", Inject: flipAtSnapshot},
		{Number: 26, Name: "power-one", What: "the power of one node fails: what was not synced is lost",
			Inject: powerCut(1, disk.LoseAll, disk.LoseNames)},
		{Number: 27, Name: "power-all", What: "the power of all nodes fails at once: what was not synced is lost",
			Inject: powerCut(0, disk.LoseAll, disk.LoseNames)},
		{Number: 28, Name: "power-torn", What: "the power of all nodes fails at once: of what was not synced each sector " +
			"and each name is kept or lost by chance", Inject: tornCut},
		{Number: 29, Name: "disk-full", What: "no space is left on one node", Inject: diskFull},
		{Number: 61, Name: "disk-low", What: "the node that leads most has so little space left that it refuses puts, or " +
			"all that does not free space; others have enough", Inject: diskLow, HoldMin: namingHold},
		{Number: 30, Name: "disk-errors", What: "writes or syncs of one node fail", Inject: diskErrors},
		{Number: 31, Name: "disk-slow", What: "each sync of one node takes up to 200 ms",
			Inject: diskHook("slow", slowSyncs, false)},
		{Number: 32, Name: "disk-hung", What: "the disk of the node that leads most hangs", Inject: diskHung},
		{Number: 39, Name: "disk-read-only", What: "the disk of one node lets nothing be changed",
			Inject: diskHook("read-only", func(*Scene) disk.Hook { return disk.ReadOnly() }, true)},
	}
}

// kills kills nodes at once, and returns what starts them again.
func killAtOnce(nodes []*lab.Node) Heal {
	for _, n := range nodes {
		n.KillSoon()
	}
	for _, n := range nodes {
		n.Kill()
	}
	return func(ctx context.Context) error { return lab.Start(ctx, nodes) }
}

// powerCut cuts the power of count nodes, or of all if it is 0.
func powerCut(count int, fate disk.Fate, names disk.Names) func(context.Context, *Scene) (string, Heal, error) {
	return func(_ context.Context, s *Scene) (string, Heal, error) {
		return s.powerCut(count, fate, names)
	}
}

func (s *Scene) powerCut(count int, fate disk.Fate, names disk.Names) (string, Heal, error) {
	nodes := s.remaining() // also those that are down already: what the system of a killed process still held is lost
	if count > 0 {
		var err error
		if nodes, err = s.several(count); err != nil {
			return "", nil, err
		}
	}
	heal := killAtOnce(nodes)
	var lost disk.Losses
	for _, n := range nodes {
		one, err := s.Disk(n.Name).Crash(fate, names)
		if err != nil {
			return "", nil, err
		}
		lost.Bytes += one.Bytes
		lost.Names += one.Names
	}
	s.Count("power cuts", 1)
	s.Count("nodes that lost their power", int64(len(nodes)))
	s.Count("bytes lost in power cuts", lost.Bytes)
	s.Count("names lost in power cuts", int64(lost.Names))
	return fmt.Sprintf("cut the power of %s: %d bytes and %d names were lost", namesOf(nodes), lost.Bytes, lost.Names),
		heal, nil
}

func tornCut(_ context.Context, s *Scene) (string, Heal, error) {
	return s.powerCut(0, func(string, int64) bool { return s.Rand.IntN(2) == 0 }, func(disk.Step) bool {
		return s.Rand.IntN(2) == 0
	})
}

// siteOf returns a random site of some.
func (s *Scene) siteOf(wanted func(disk.Site) bool) disk.Site {
	sites := slices.DeleteFunc(disk.Sites(), func(site disk.Site) bool { return !wanted(site) })
	return sites[s.Rand.IntN(len(sites))]
}

// ofRunning says which sites a node comes by that runs: not those at which its directory is made,
// once.
func ofRunning(site disk.Site) bool {
	return !slices.ContainsFunc([]string{"manifest", "node-identity", "reserve", "make-shard"}, func(step string) bool {
		return strings.HasSuffix(site.Name, step)
	})
}

// ofSnapshots says which sites are steps of making and forgetting snapshots.
func ofSnapshots(site disk.Site) bool { return strings.Contains(site.Path, "snap") }

// stepMax is how long a step of a snapshot is waited for.
const stepMax = 10 * time.Second

// flipAtSnapshot has one node die at a step of a snapshot, and flips bits in its log before it
// starts again: what a torn snapshot leaves has to come from there.
func flipAtSnapshot(ctx context.Context, s *Scene) (string, Heal, error) {
	dies := func(n *lab.Node) (bool, error) {
		site, d, met := s.siteOf(ofSnapshots), s.Disk(n.Name), make(chan struct{})
		d.SetHook(d.KillAt(site, 1, func() {
			close(met)
			n.KillSoon()
		}))
		waiting, cancel := context.WithTimeout(ctx, stepMax)
		defer cancel()
		select {
		case <-met:
			s.Count("killed "+site.Name, 1)
			return true, nil
		case <-waiting.Done():
			d.SetHook(nil)
			return false, nil
		}
	}
	return s.strikeDisk(ctx, "a snapshot being made", dies, func(n *lab.Node) (string, error) {
		if err := s.makeDurable(n); err != nil { // until then nothing can be changed on it
			return "", err
		}
		return s.damageFiles(filesLike, n.Data, "log/*.wal", flipBits)
	})
}

// killAtStep lets one node die at a step of its disk. If the step does not come while the fault is
// held, the node is killed at its end.
func killAtStep(wanted func(disk.Site) bool) func(context.Context, *Scene) (string, Heal, error) {
	return func(_ context.Context, s *Scene) (string, Heal, error) {
		n, err := s.anyone()
		if err != nil {
			return "", nil, err
		}
		site := s.siteOf(wanted)
		d := s.Disk(n.Name)
		var met atomic.Bool // another fault may kill it as well
		d.SetHook(d.KillAt(site, 1+s.Rand.IntN(3), func() {
			met.Store(true)
			n.KillSoon()
		}))
		return fmt.Sprintf("%s is killed %s", n.Name, site.Name), func(ctx context.Context) error {
			if met.Load() {
				s.Count("killed "+site.Name, 1)
			} else {
				s.Count("sites that were not met", 1)
			}
			n.Kill()
			// The disk stays as the dead process left it: the system has all that was written, and not
			// synced what was not.
			if _, err := d.Crash(nil, nil); err != nil {
				return err
			}
			return n.Start(ctx)
		}, nil
	}
}

func diskFull(_ context.Context, s *Scene) (string, Heal, error) {
	n, err := s.anyone()
	if err != nil {
		return "", nil, err
	}
	n.MayEnd()
	d := s.Disk(n.Name)
	left := uint64(s.Rand.Int64N(64 << 20))
	s.spares(n.Name)
	d.SetFree(left)
	return fmt.Sprintf("%d bytes left for %s", left, n.Name), func(ctx context.Context) error {
		defer n.MustLive()
		d.SetFree(freeDefault)
		return errors.Join(endedClearly(n), n.Start(ctx))
	}, nil
}

// diskLow leaves the node that leads most less space than puts need, and half of the time less than
// anything needs that does not free some. There is always enough for the node to go on.
func diskLow(ctx context.Context, s *Scene) (string, Heal, error) {
	if err := s.awaitSteady(ctx); err != nil {
		return "", nil, err
	}
	n, err := s.Lab.Leader(ctx)
	if err != nil {
		return "", nil, err
	}
	least, span, what := int64(96<<20), int64(128<<20), "for puts"
	if s.Rand.IntN(2) == 0 {
		least, span, what = 32<<20, 24<<20, "for all that frees none"
	}
	left := least + s.Rand.Int64N(span)
	d := s.Disk(n.Name)
	s.spares(n.Name)
	d.SetFree(uint64(left)) //nolint:gosec // it is positive
	return fmt.Sprintf("%d bytes left for %s, too few %s", left, n.Name, what), func(context.Context) error {
		d.SetFree(freeDefault)
		return nil
	}, nil
}

// freeDefault is more than any run needs.
const freeDefault = 1 << 40

func slowSyncs(s *Scene) disk.Hook {
	return disk.Slow(s.between(20*time.Millisecond, 200*time.Millisecond), disk.OpSync)
}

// diskHook gives the disk of one node a hook; mayEnd says that the node may end because of it.
func diskHook(what string, hook func(*Scene) disk.Hook, mayEnd bool) func(context.Context, *Scene) (string,
	Heal, error) {
	return func(_ context.Context, s *Scene) (string, Heal, error) {
		n, err := s.anyone()
		if err != nil {
			return "", nil, err
		}
		if mayEnd {
			n.MayEnd()
			s.spares(n.Name)
		}
		d := s.Disk(n.Name)
		var struck atomic.Int64
		d.SetHook(counting(hook(s), &struck))
		return fmt.Sprintf("the disk of %s is %s", n.Name, what), func(ctx context.Context) error {
			defer n.MustLive()
			d.SetHook(nil)
			s.Count("steps of a disk that was "+what, struck.Load())
			return errors.Join(endedClearly(n), n.Start(ctx))
		}, nil
	}
}

// endedClearly fails if a node that could not go on with its disk ended otherwise than by saying
// so: a panic or a usage error is no refusal.
func endedClearly(n *lab.Node) error {
	// it runs on, says that its storage failed, or was killed
	if code := n.ExitCode(); !n.Running() && code != exitStorage && code != -1 {
		return fmt.Errorf("%s ended with %d because of its disk, not with %d", n.Name, code, exitStorage)
	}
	return nil
}

func diskErrors(ctx context.Context, s *Scene) (string, Heal, error) {
	kinds := []disk.Kind{disk.OpSync}
	if s.Rand.IntN(2) == 0 {
		kinds = []disk.Kind{disk.OpWrite, disk.OpSync, disk.OpSyncDir}
	}
	after := s.Rand.IntN(20)
	fail := disk.Fail(syscall.EIO, kinds...)
	return diskHook(fmt.Sprintf("failing (%v)", kinds), func(*Scene) disk.Hook {
		return func(op disk.Op) disk.Verdict {
			if op.Count <= after {
				return disk.Verdict{}
			}
			return fail(op)
		}
	}, true)(ctx, s)
}

const (
	// hungAllowed is how much longer than after other faults the service may be interrupted by a disk
	// that hangs: others lead after 8.9 s at most.
	hungAllowed = 4 * time.Second
	// hungMax is how long a node may take to notice that its disk hangs: several times the limit of
	// its watchdog.
	hungMax = 30 * time.Second
	// storageFailed is what a server says when it ends because of its disk.
	storageFailed = "storage failed, and this node stops"
)

// diskHung has the disk of a leader hang. The node must notice and end, however short the fault is
// held; it is started again when the disk goes on.
func diskHung(ctx context.Context, s *Scene) (string, Heal, error) {
	n, err := s.Lab.Leader(ctx)
	if err != nil {
		return "", nil, err
	}
	said, err := logSize(n)
	if err != nil {
		return "", nil, err
	}
	n.MayEnd()
	d := s.Disk(n.Name)
	var held atomic.Int64
	allow(s.spares(n.Name), hungAllowed, "the watchdog gives a disk 6 s before it takes it for hung, and then the "+
		"others elect")
	d.SetHook(counting(disk.Hang(), &held))
	return "the disk of " + n.Name + " hangs", func(ctx context.Context) error {
		defer n.MustLive()
		waiting, cancel := context.WithTimeout(ctx, hungMax)
		defer cancel()
		err := s.noticesHang(waiting, n, said, &held, n.Running)
		d.SetHook(nil)
		d.Release()
		// What ended because of the disk ends for good only now that the disk lets it.
		n.Kill()
		return errors.Join(err, n.Start(ctx))
	}, nil
}

// noticesHang waits until a node has written, behind a place in its log, that its disk failed. One
// that wrote nothing to its disk, or was killed, had nothing to notice.
func (s *Scene) noticesHang(ctx context.Context, n *lab.Node, said int64, held *atomic.Int64,
	running func() bool) error {
	for {
		text, err := logSince(n, said)
		switch {
		case err != nil:
			return err
		case strings.Contains(text, storageFailed):
			s.Count("hung disks that were noticed", 1)
			return nil
		case !running():
			return nil
		case pause(ctx, 50*time.Millisecond):
		case held.Load() == 0:
			s.Count("hung disks that were not written to", 1)
			return nil
		default:
			return fmt.Errorf("%s did not notice within %v that its disk hangs", n.Name, hungMax)
		}
	}
}

// counting counts the steps that a hook does something to.
func counting(hook disk.Hook, n *atomic.Int64) disk.Hook {
	return func(op disk.Op) disk.Verdict {
		v := hook(op)
		if v.Delay > 0 || v.Hang || v.Err != 0 {
			n.Add(1)
		}
		return v
	}
}
