package nodetest

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/node/storage/disk"
	"github.com/belfrydb/belfry/node/storage/diskfault"
)

// disks are the members' disks, in memory. A node that gives up is cut off, as if its process had
// ended.
type disks struct {
	gaveUp chan gaveUp

	mu      sync.Mutex
	byName  map[string]*diskfault.Disk
	cluster *Cluster
}

// gaveUp says which node ended its process, and why.
type gaveUp struct {
	name string
	err  error
}

// onDisks starts a cluster of three nodes on disks in memory.
func onDisks(t *testing.T, configure func(cfg *node.Config)) (*Cluster, *disks) {
	t.Helper()
	d := &disks{gaveUp: make(chan gaveUp, 8), byName: map[string]*diskfault.Disk{}}
	c := New(t, Options{Dir: "/data", Configure: func(cfg *node.Config) {
		configure(cfg)
		name := cfg.Name
		cfg.FS, cfg.Fatal = d.of(name), func(err error) { d.end(name, err) }
	}})
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cluster = c
	return c, d
}

// of returns the disk of a member, which it makes.
func (d *disks) of(name string) *diskfault.Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.byName[name] == nil {
		d.byName[name] = diskfault.New()
	}
	return d.byName[name]
}

func (d *disks) end(name string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cluster != nil {
		d.cluster.network.isolate(name)
	}
	d.gaveUp <- gaveUp{name, err}
}

// expectEnd waits until a node gives up, and fails the test unless it is m.
func (d *disks) expectEnd(t *testing.T, m *Member) error {
	t.Helper()
	late := time.NewTimer(awaitMax)
	defer late.Stop()
	select {
	case end := <-d.gaveUp:
		if end.name != m.name {
			t.Fatalf("%s gave up because of %v", end.name, end.err)
		}
		return end.err
	case <-late.C:
		t.Fatalf("%s goes on", m.name)
		return nil
	}
}

// A leader whose disk hangs sends heartbeats all the same. Its process ends, and another one takes
// puts within ten seconds.
func TestLeaderWhoseDiskHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, disks := onDisks(t, func(*node.Config) {})
		old := c.Leader(0)
		do(t, old, put("x"))
		defer disks.holdLog(old)()
		began := time.Now()
		ended := startPut(t, old, "y")
		if err := disks.expectEnd(t, old); !strings.Contains(err.Error(), "the disk hangs") {
			t.Errorf("the leader gave up because of %v", err)
		}
		do(t, c.LeaderExcept(0, old), put("z"))
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("another leader took puts after %v", took)
		}
		if err := <-ended; node.OutcomeOf(err) != node.Unknown {
			t.Errorf("the put on the disk that hangs ended with %v", err)
		}
	})
}

// holdLog has each sync of a member's log wait until release is called.
func (d *disks) holdLog(m *Member) (release func()) {
	held := make(chan struct{})
	d.of(m.name).SetHook(func(o diskfault.Op) error {
		if o.Kind == diskfault.OpSync && strings.HasSuffix(o.Path, ".wal") {
			<-held
		}
		return nil
	})
	return sync.OnceFunc(func() { close(held) })
}

// startPut puts a job in a goroutine of its own.
func startPut(t *testing.T, m *Member, body string) (ended chan error) {
	ended = make(chan error, 1)
	go func() {
		_, err := m.Node.Do(t.Context(), 0, &fsm.Request{Commands: []fsm.Command{put(body)}})
		ended <- err
	}()
	return ended
}

// A follower confirms an entry once it is durable there. So a put waits for one of two followers.
func TestFollowersWhoseDisksAreSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, disks := onDisks(t, func(*node.Config) {})
		leader, followers := c.Leader(0), c.Followers(0)
		do(t, leader, put("x"))
		c.Converge(0)
		releaseFirst, releaseSecond := disks.holdLog(followers[0]), disks.holdLog(followers[1])
		defer releaseSecond()
		defer releaseFirst()
		ended := startPut(t, leader, "y")
		pass(2 * time.Second)
		select {
		case err := <-ended:
			t.Fatalf("the put ended with %v before a follower had stored it", err)
		default:
		}
		releaseFirst()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// A former leader that has not stored all of its entries yet confirms none to the next one: it does not
// enter that one's term.
func TestFormerLeaderWhoseDiskIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, disks := onDisks(t, func(*node.Config) {})
		old := c.Leader(0)
		do(t, old, put("x"))
		c.Converge(0)
		release := disks.holdLog(old)
		defer release()
		term, ended := old.status(0).Term, startPut(t, old, "y")
		pass(100 * time.Millisecond) // the followers have it
		c.Isolate(old)
		next := c.LeaderExcept(0, old)
		c.Heal(old)
		pass(time.Second)
		if st := old.status(0); st.Term != term || next.status(0).Term <= term {
			t.Errorf("it is in term %d, and led in term %d; another one leads in term %d", st.Term, term,
				next.status(0).Term)
		}
		release()
		if err := <-ended; err != nil && node.OutcomeOf(err) != node.Unknown {
			t.Errorf("the put ended with %v", err)
		}
		c.Converge(0)
		if held := heldJobs(t, old); held != 2 { // both followers had stored y
			t.Errorf("%d jobs are held, want 2", held)
		}
	})
}

// A leader sends entries to its followers while it writes them. Until they are durable on its disk,
// nobody gets an answer, and no replica applies them.
func TestLeaderWhoseDiskIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, disks := onDisks(t, func(*node.Config) {})
		leader, followers := c.Leader(0), c.Followers(0)
		do(t, leader, put("x"))
		c.Converge(0)
		release := disks.holdLog(leader)
		defer release()
		before, ended := leader.status(0), startPut(t, leader, "y")
		pass(2 * time.Second)
		for _, m := range followers {
			if st := m.status(0); st.LastIndex == before.LastIndex || st.CommitIndex > before.LastIndex {
				t.Errorf("%s has %d entries, and knows %d of them to be committed; the leader's disk has %d", m.name,
					st.LastIndex, st.CommitIndex, before.LastIndex)
			}
		}
		for _, m := range c.Members() {
			if held := heldJobs(t, m); held != 1 {
				t.Errorf("%s has applied a put that its leader has not stored", m.name)
			}
		}
		select {
		case err := <-ended:
			t.Fatalf("the put ended with %v before the leader had stored it", err)
		default:
		}
		release()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		c.Converge(0)
		if held := heldJobs(t, followers[0]); held != 2 {
			t.Errorf("%d jobs are held, want 2", held)
		}
	})
}

// A leader that finds its snapshot rotten when a follower needs it would try to send it for ever
// (hashicorp/raft issue 522), and keep the follower out. Its process ends, and one that has what
// the follower lacks leads.
func TestLeaderWhoseSnapshotIsRotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, disks := onDisks(t, func(cfg *node.Config) { cfg.TrailingBytes = 1 })
		lagging := c.Followers(0)[0]
		c.Isolate(lagging)
		const jobs = 200 // more than the least number of entries that a leader keeps
		for range jobs {
			do(t, c.Leader(0), put("x"))
		}
		leader := c.Leader(0)
		if err := leader.Node.Snapshot(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		faulty := disks.of(leader.name)
		files := faulty.Files()
		at := slices.IndexFunc(files, func(name string) bool { return filepath.Ext(name) == ".snap" })
		faulty.Flip(files[at], int64(len(faulty.Contents(files[at]))/2), 3)
		c.Heal(lagging)
		err := disks.expectEnd(t, leader)
		if corrupt, ok := errors.AsType[*disk.CorruptError](err); !ok || corrupt.File != files[at] {
			t.Errorf("the leader gave up because of %v", err)
		}
		c.Stop(leader)
		c.Converge(0)
		if held := heldJobs(t, lagging); held != jobs {
			t.Errorf("the follower that lagged holds %d jobs, want %d", held, jobs)
		}
	})
}

// TestFollowersLeaveCallsToTheLeader: a replica that names another leader says so, whatever it has
// to say itself; one that names none, leads or stops does not.
func TestFollowersLeaveCallsToTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := onDisks(t, func(cfg *node.Config) { cfg.DiskLowBytes = 1 << 20 })
		leader, followers := c.Leader(0), c.Followers(0)
		follower := followers[0]
		expect := func(what string, m *Member, follows bool, want error) {
			t.Helper()
			_, err := m.Node.Do(t.Context(), 0, &fsm.Request{Commands: []fsm.Command{put("x")}})
			if m.Node.Follows(0) != follows || !errors.Is(err, want) {
				t.Errorf("%s: follows %v, and a put is answered %v, want %v", what, m.Node.Follows(0), err, want)
			}
		}
		expect("it leads", leader, false, nil)
		expect("it follows", follower, true, node.ErrNotLeader)
		for _, m := range []*Member{leader, follower} {
			d.of(m.name).SetFree(0)
		}
		pass(time.Minute)
		expect("it leads on a full disk", leader, false, node.ErrDiskFull)
		expect("it follows on a full disk", follower, true, node.ErrNotLeader)
		c.Isolate(follower)
		pass(10 * time.Second)
		expect("it hears nobody, on a full disk", follower, false, node.ErrNoLeader)
		followers[1].Node.Drain()
		expect("it follows, and stops", followers[1], false, node.ErrShuttingDown)
		if follower.Node.Follows(99) {
			t.Error("it follows in a shard that there is not")
		}
	})
}

// A follower whose disk fills takes no entries before a write fails: its process goes on, votes and
// hears its leader, and the others serve. When there is room again it has everything soon.
func TestFollowerWhoseDiskFills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, disks := onDisks(t, func(*node.Config) {})
		leader, full := c.Leader(0), c.Followers(0)[0]
		do(t, leader, put("x"))
		c.Converge(0)
		disk := disks.of(full.name)
		disk.SetFree(1 << 20)
		disk.SetHook(func(o diskfault.Op) error {
			if o.Kind == diskfault.OpWrite && strings.HasSuffix(o.Path, ".wal") {
				return syscall.ENOSPC
			}
			return nil
		})
		time.Sleep(2 * time.Second)
		for range 20 {
			do(t, c.Leader(0), put("x"))
			time.Sleep(time.Second)
		}
		if now := c.Leader(0); now != leader {
			t.Errorf("%s leads instead of %s", now.name, leader.name)
		}
		if st := full.Node.Status(); len(st.Conditions) != 1 || st.Conditions[0].Kind != node.DiskPressure ||
			st.Shards[0].Leader != leader.ServerID {
			t.Errorf("it says %+v", st)
		}
		disk.SetHook(nil)
		disk.SetFree(diskfault.FreeDefault)
		c.Converge(0)
		select {
		case end := <-disks.gaveUp:
			t.Errorf("%s gave up because of %v", end.name, end.err)
		default:
		}
	})
}
