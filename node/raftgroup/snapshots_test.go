package raftgroup

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/belfrydb/belfry/node/storage/diskfault"
	"github.com/belfrydb/belfry/wakeup"
)

func TestSnapshotFailureIsNamedAndHarmless(t *testing.T) {
	broken := errors.New("no paper left")
	released := 0
	g := openCounter(t, &counter{writeErr: broken, released: &released})
	propose(t, g, "x")
	if err := g.TakeSnapshot(); !errors.Is(err, broken) {
		t.Errorf("error is %v, want the writer's own", err)
	}
	if st := g.SnapshotStats(); st.Failed != 1 || st.Taken != 0 || released != 1 || g.SnapshotDue(time.Now()) {
		t.Errorf("after a failure the stats are %+v, released %d", st, released)
	}
	if covered := g.replica.captured; covered != (volume{}) {
		t.Errorf("the snapshot that failed covers %+v", covered)
	}
	if reply := propose(t, g, "x"); reply.Value != uint64(2) {
		t.Errorf("after a failed snapshot an entry was answered %+v", reply)
	}
}

// A restart of the group that ends a snapshot is no trouble: the next may begin at once.
func TestRestartDuringASnapshotIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := diskfault.New()
		cfg := testConfig(t, "/data", &counter{})
		cfg.FS, cfg.SnapshotBytes = disk, 2*pieceBytes
		cfg.Renewal = &Renewal{
			Fresh: func() Machine { return &counter{} }, Restores: new(atomic.Int32), Restored: func(Machine) {},
			Stateless: func(err error) { t.Error(err) },
		}
		grown := wakeup.New()
		cfg.Grown = grown.Send
		g := openGroup(t, cfg)
		defer takeSnapshots(g, grown)()
		goOn := make(chan struct{})
		onSnapshot(disk, func() {
			g.wedged.Send()
			<-goOn
		})
		for range 10 {
			propose(t, g, strings.Repeat("x", pieceBytes/4))
			if synctest.Wait(); g.replica.stopped.Load() {
				break
			}
		}
		close(goOn)
		synctest.Wait()
		if st := g.SnapshotStats(); st.Failed != 0 {
			t.Errorf("the stats are %+v", st)
		}
		if trouble := g.lastError.Load(); trouble != nil {
			t.Errorf("the group is in trouble: %s", *trouble)
		}
		propose(t, g, "x")
		if synctest.Wait(); g.SnapshotStats().Taken != 1 {
			t.Errorf("after the restart the stats are %+v", g.SnapshotStats())
		}
		closeGroup(t, g)
	})
}

// A snapshot that is installed while an own one is written takes its place.
func TestSnapshotThatIsOvertakenIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := diskfault.New()
		cfg := testConfig(t, "/data", &counter{})
		cfg.FS = disk
		g := openGroup(t, cfg)
		propose(t, g, "x")
		onSnapshot(disk, func() { install(t, g, g.replica.AppliedIndex()+10) })
		if err := g.TakeSnapshot(); err != nil {
			t.Error(err)
		}
		if st := g.SnapshotStats(); st.Failed != 0 || st.Taken != 0 || st.Index != g.replica.AppliedIndex()+10 {
			t.Errorf("the stats are %+v", st)
		}
		closeGroup(t, g)
	})
}

// Nor does it fail if the leader's snapshot is stored already, and the state still the one before.
func TestSnapshotThatComesTooLateIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := openCounter(t, &counter{})
		propose(t, g, "x")
		install(t, g, g.replica.AppliedIndex()+10)
		if err := g.TakeSnapshot(); err != nil {
			t.Error(err)
		}
		if st := g.SnapshotStats(); st.Failed != 0 || st.Taken != 0 {
			t.Errorf("the stats are %+v", st)
		}
	})
}

// install stores an empty snapshot, as an install does before it is restored.
func install(t *testing.T, g *Group, index uint64) {
	t.Helper()
	sink, err := g.instance().stores.Snapshots.Create(1, index, 1, raft.Configuration{}, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := sink.Close(); err != nil {
		t.Fatal(err)
	}
}

// What an installed snapshot has replaced is removed at once.
func TestInstallIsFollowedByTheRemoval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := diskfault.New()
		cfg := testConfig(t, "/data", &counter{})
		cfg.FS = disk
		grown := wakeup.New()
		cfg.Grown = grown.Send
		g := openGroup(t, cfg)
		defer takeSnapshots(g, grown)()
		var state bytes.Buffer
		g.replica.View(func(m Machine, _ Position) {
			if _, err := m.Snapshot().WriteTo(&state); err != nil {
				t.Error(err)
			}
		})
		for index := range uint64(3) {
			install(t, g, 100+index)
		}
		if err := g.replica.Restore(io.NopCloser(&state)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for _, name := range disk.Files() {
			if strings.HasSuffix(name, ".snap.tmp") {
				t.Errorf("%s is there", name)
			}
		}
		closeGroup(t, g)
	})
}

// onSnapshot calls f once, with a disk that does as ever again, when a snapshot begins to be
// written.
func onSnapshot(disk *diskfault.Disk, f func()) {
	disk.SetHook(func(o diskfault.Op) error {
		if o.Kind == diskfault.OpCreate && strings.HasSuffix(o.Path, ".snap.tmp") {
			disk.SetHook(nil)
			f()
		}
		return nil
	})
}

// takeSnapshots takes due snapshots and removes old files whenever the log has grown, as a node
// does, until stop is called.
func takeSnapshots(g *Group, grown wakeup.Signal) (stop func()) {
	done := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		for {
			select {
			case <-grown:
			case <-done:
				return
			}
			if g.SnapshotDue(time.Now()) {
				_ = g.TakeSnapshot() // the test asks for the stats
			}
			g.Tidy()
		}
	})
	return func() {
		close(done)
		running.Wait()
	}
}
