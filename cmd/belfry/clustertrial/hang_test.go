package clustertrial

import (
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

var hangDisk = flag.Bool("trial.freeze", false,
	"TestHang stops a leader's disk instead of the leader: its data is in a file system of its own, which is frozen. "+
		"Needs root and loop devices")

const (
	// hangOutage is the aim for the time until a new leader serves.
	hangOutage = 10 * time.Second
	// imageBytes is the size of the file system that is frozen; the file has holes.
	imageBytes = 8 << 30
	// storageFailed is what a server says as the last thing when its disk hangs.
	storageFailed = "storage failed"
)

// TestHang makes a leader hang, waits until others lead its shards, and lets it come back. With
// -trial.freeze its disk hangs: every write waits in the kernel, the process runs on, its
// heartbeats too. Otherwise the whole process is stopped.
func TestHang(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	dirs := map[string]string{}
	for _, name := range []string{"n1", "n2", "n3"} {
		dirs[name] = filepath.Join(dir, name)
	}
	var disk *frozenDisk
	if *hangDisk {
		disk = newDisk(t, filepath.Join(dir, "disk"))
		dirs["n1"] = filepath.Join(disk.mount, "n1")
	}
	c := newClusterIn(t, dirs)
	if disk != nil {
		t.Cleanup(disk.thaw) // before the servers are killed: what waits in the kernel cannot be
	}
	c.start("n1", "n2", "n3")
	status := c.awaitHealthy()
	probes := c.queues("probe")
	var led []string
	victim := c.member("n1")
	for _, s := range status.Shards {
		if s.Leader == victim.name {
			led = append(led, probes[s.Number])
		}
	}
	l := startLoad(c, quietRate)
	hang(t, c, disk, led, l)
}

// hang is the trial proper.
func hang(t *testing.T, c *cluster, disk *frozenDisk, led []string, l *load) {
	t.Helper()
	victim := c.member("n1")
	f := &figures{trial: "hang"}
	release := func() { victim.server.Signal(syscall.SIGCONT) }
	if disk == nil {
		victim.server.Signal(syscall.SIGSTOP)
	} else {
		f.trial = "hang of a disk"
		disk.freeze()
		release = disk.thaw
	}
	began := time.Now()
	victim.up = false
	var noticed time.Duration
	var watching sync.WaitGroup
	if disk != nil {
		watching.Go(func() { noticed = victim.saysWhy(t.Context(), began) })
	}
	o := &outage{}
	o.measure(c, c.running()[0], led)
	watching.Wait()
	release()
	thawed := time.Now()
	if disk != nil {
		<-victim.server.Ended()
		f.milliseconds("until the node noticed and ended its process", noticed)
		f.milliseconds("from the thaw until the process was gone", time.Since(thawed))
		if !strings.Contains(victim.server.Log(), storageFailed) {
			t.Error("the node did not say why it ended")
		}
		victim.server.Start()
	}
	victim.up = true
	c.awaitHealthy()
	f.milliseconds("from the thaw until all is healthy and even", time.Since(thawed))
	f.account(l.finish())
	f.count("shards that lost their leader", len(led))
	f.durations("until a shard takes puts, plain calls", o.plain, hangOutage)
	f.durations("until a shard takes puts, SDK", o.sdk)
	f.print(t)
}

// saysWhy waits until the node has said that its storage failed, and returns how long after began
// that was.
func (m *member) saysWhy(ctx context.Context, began time.Time) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, waitMax)
	defer cancel()
	tick := time.NewTicker(lookPause)
	defer tick.Stop()
	for !strings.Contains(m.server.Log(), storageFailed) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return time.Since(began)
		}
	}
	return time.Since(began)
}

// frozenDisk is a file system in a file, which can be frozen: writes to it wait in the kernel, and
// nothing can kill the processes that wait.
type frozenDisk struct {
	t      *testing.T
	mount  string
	frozen bool
}

// newDisk makes and mounts a file system of its own.
func newDisk(t *testing.T, dir string) *frozenDisk {
	t.Helper()
	d := &frozenDisk{t: t, mount: dir}
	image := dir + ".img"
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, imageBytes); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	d.run("mkfs.ext4", "-q", "-E", "lazy_itable_init=1", image)
	d.run("mount", "-o", "loop", image, dir)
	t.Cleanup(func() { d.run("umount", dir) })
	return d
}

func (d *frozenDisk) freeze() {
	d.t.Helper()
	d.run("fsfreeze", "-f", d.mount)
	d.frozen = true
}

// thaw lets the writes go on, if they were stopped.
func (d *frozenDisk) thaw() {
	d.t.Helper()
	if d.frozen {
		d.frozen = false
		d.run("fsfreeze", "-u", d.mount)
	}
}

// run runs a program of the system, as root.
func (d *frozenDisk) run(name string, args ...string) {
	d.t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput() //nolint:noctx // also when the test has ended
	if err != nil {
		d.t.Fatalf("%s %v: %v\n%s\nthis trial needs root and loop devices", name, args, err, out)
	}
}
