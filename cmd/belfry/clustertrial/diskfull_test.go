//go:build tmpfs

package clustertrial

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/belfrydb/belfry/client/admin"
	"github.com/belfrydb/belfry/cmd/belfry/processtest"
)

const (
	// The file system of the node whose disk fills, and what is left of it in each step: under the
	// low-water mark of 256 MiB, and so little that a leader accepts only acks.
	volumeBytes = 900 << 20
	leftLow     = 100 << 20
	leftScarce  = 24 << 20
	// fullServed and fullNamed are aims: for the time until every queue takes puts through every
	// healthy node, and until the status names the cause.
	fullServed = 5 * time.Second
	fullNamed  = 10 * time.Second
	// fullPhase is how long the disk stays as full as in each step.
	fullPhase = 20 * time.Second
)

// TestDiskFull fills the disk of one node of three under load: first so far that it refuses puts,
// then so far that it takes acks only, and frees it again.
func TestDiskFull(t *testing.T) {
	dir := t.TempDir()
	v := newVolume(t, filepath.Join(dir, "n1"))
	c := newClusterIn(t, map[string]string{
		"n1": filepath.Join(v.mount, "data"), "n2": filepath.Join(dir, "n2"), "n3": filepath.Join(dir, "n3"),
	})
	t.Cleanup(func() { c.member("n1").server.Kill() }) // before its volume is unmounted
	c.start("n1", "n2", "n3")
	c.awaitHealthy()
	probes := c.queues("probe")
	l := startLoad(c, quietRate)
	sick, healthy := c.member("n1"), []*member{c.member("n2"), c.member("n3")}

	f := &figures{trial: "disk full"}
	ready := watchReady(t, c)
	var watches, own []*watch
	for _, queue := range probes {
		own = append(own, startWatch(c, sick, queue))
		for _, m := range healthy {
			watches = append(watches, startWatch(c, m, queue))
		}
	}
	pause(time.Second)
	began := time.Now()
	v.fill(leftLow)
	leads := watchLeads(t, healthy[0], sick.name)
	var named time.Duration
	var naming sync.WaitGroup
	naming.Go(func() { named = untilNamed(t.Context(), healthy[0], sick.name, began) })
	naming.Wait()
	pause(fullPhase)
	var usual, gaps, ownGaps processtest.Durations
	for _, w := range watches {
		gaps = append(gaps, w.end(began, &usual))
	}
	for _, w := range own {
		ownGaps = append(ownGaps, w.end(began, &usual))
	}
	f.durations("longest time between two puts of a queue in the second before", usual)
	f.durations("longest time between two puts of a queue through a healthy node", gaps, fullServed)
	f.durations("longest time between two puts of a queue through the node itself", ownGaps)
	f.milliseconds("until the status names the node and its disk", named, fullNamed)

	puts, acked := l.ledger.Puts(), time.Now()
	v.fill(leftScarce)
	pause(fullPhase)
	f.count("jobs put a second while 24 MiB are free", int(float64(l.ledger.Puts()-puts)/time.Since(acked).Seconds()))
	given, last := leads.finish()
	f.milliseconds("until it led nothing", last)
	f.count("looks that found it leading again", given, 0)
	none, sickDown := ready.finish()
	f.count("looks that found no healthy node ready", none, 0)
	f.count("looks that found the node itself not ready", sickDown)
	select {
	case <-sick.server.Ended():
		t.Error("the node whose disk was full ended")
	default:
	}
	freed := time.Now()
	v.free()
	c.awaitHealthy()
	f.milliseconds("from the time that there was room until all is healthy and even", time.Since(freed))
	f.account(l.finish())
	f.print(t)
	for _, row := range f.rows {
		if row.Aim != nil && row.Value > *row.Aim {
			t.Errorf("%s: %g, at most %g", row.Name, row.Value, *row.Aim)
		}
	}
}

// untilNamed returns how long after began the status at a node said that another has DISK_PRESSURE.
func untilNamed(ctx context.Context, at *member, name string, began time.Time) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, waitMax)
	defer cancel()
	for ctx.Err() == nil {
		if s, err := at.client.Admin().Cluster(ctx); err == nil &&
			slices.ContainsFunc(s.Problems, func(p string) bool {
				return strings.HasPrefix(p, "node "+name+" has DISK_PRESSURE")
			}) {
			break
		}
		pause(lookPause)
	}
	return time.Since(began)
}

// leadsWatch looks at what a node leads.
type leadsWatch struct {
	stop    context.CancelFunc
	running sync.WaitGroup
	again   int           // looks that found it leading after it had led nothing
	last    time.Duration // until it led nothing
}

func watchLeads(t *testing.T, at *member, name string) *leadsWatch {
	ctx, stop := context.WithCancel(t.Context())
	w, began := &leadsWatch{stop: stop}, time.Now()
	w.running.Go(func() {
		for ; ctx.Err() == nil; pause(lookPause) {
			s, err := at.client.Admin().Cluster(ctx)
			switch {
			case err != nil:
			case leadsAny(&s, name) && w.last > 0:
				w.again++
			case !leadsAny(&s, name) && w.last == 0:
				w.last = time.Since(began)
			}
		}
	})
	return w
}

func leadsAny(s *admin.Cluster, name string) bool {
	return s.Catalog.Leader == name || slices.ContainsFunc(s.Shards, func(sh admin.Shard) bool {
		return sh.Leader == name
	})
}

func (w *leadsWatch) finish() (again int, last time.Duration) {
	w.stop()
	w.running.Wait()
	return w.again, w.last
}

// readyWatch looks at whether the nodes are ready. The first of them is the one whose disk fills.
type readyWatch struct {
	stop       context.CancelFunc
	running    sync.WaitGroup
	none, sick int
}

func watchReady(t *testing.T, c *cluster) *readyWatch {
	ctx, stop := context.WithCancel(t.Context())
	w := &readyWatch{stop: stop}
	w.running.Go(func() {
		for ; ctx.Err() == nil; pause(lookPause) {
			up := 0
			for i, m := range c.members {
				ready := isReady(ctx, m)
				if ready && i > 0 {
					up++
				}
				if i == 0 && !ready && ctx.Err() == nil {
					w.sick++
				}
			}
			if up == 0 && ctx.Err() == nil {
				w.none++
			}
		}
	})
	return w
}

func (w *readyWatch) finish() (none, sick int) {
	w.stop()
	w.running.Wait()
	return w.none, w.sick
}

// volume is a file system of its own, in memory, with a file beside the data that takes the room.
type volume struct {
	t     *testing.T
	mount string
}

func newVolume(t *testing.T, dir string) *volume {
	t.Helper()
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", volumeBytes)); err != nil {
		t.Fatalf("mounting: %v; this trial needs root", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return &volume{t, dir}
}

// fill leaves so much room.
func (v *volume) fill(left uint64) {
	v.t.Helper()
	f, err := os.OpenFile(v.ballast(), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		v.t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		v.t.Fatal(err)
	}
	var st syscall.Statfs_t
	if err := syscall.Statfs(v.mount, &st); err != nil {
		v.t.Fatal(err)
	}
	free := st.Bavail * uint64(st.Bsize) //nolint:gosec // a size
	if free <= left {
		return
	}
	if err := syscall.Fallocate(int(f.Fd()), 0, info.Size(), int64(free-left)); err != nil { //nolint:gosec // sizes
		v.t.Fatal(err)
	}
}

// free gives the room back.
func (v *volume) free() {
	v.t.Helper()
	if err := os.Remove(v.ballast()); err != nil {
		v.t.Fatal(err)
	}
}

func (v *volume) ballast() string { return filepath.Join(v.mount, "ballast") }
