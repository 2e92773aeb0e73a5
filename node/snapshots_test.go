package node

import (
	"bytes"
	"context"
	"errors"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"weak"

	"github.com/belfrydb/belfry/node/storage"
	"github.com/belfrydb/belfry/node/storage/diskfault"
	"github.com/hashicorp/raft"
)

// Whatever is wrong with a snapshot, and wherever that is noticed, a machine that cannot be made
// anew goes on as it was: Raft does not end over it.
func TestRestoreThatFailsChangesNothing(t *testing.T) {
	rotten := errors.New("the last block is rotten")
	tests := []struct {
		name    string
		source  io.Reader
		problem string
	}{
		{"it ends early", strings.NewReader(""), "restoring a snapshot"},
		{"its end is rotten", io.MultiReader(strings.NewReader("9 "), iotest.ErrReader(rotten)), rotten.Error()},
		{"it holds another state", strings.NewReader("8"),
			"its digest is 0000000000000009, the restored state has 0000000000000008"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := IndexDigest{Index: 5, Digest: 5}
			r := &replica{
				cfg: groupConfig{Grown: func() {}}, machine: &counter{count: 6}, index: 6, term: 2,
				digests: []IndexDigest{before},
			}
			r.replacement.Store(&snapshotDigest{id: "s", index: 30, term: 4, digest: 9, known: true})
			if err := r.Restore(io.NopCloser(tt.source)); err == nil || !strings.Contains(err.Error(), tt.problem) {
				t.Errorf("error is %v, want one that says %q", err, tt.problem)
			}
			if got := r.machine.Digest(); got != 6 || r.index != 6 || r.term != 2 || !slices.Contains(r.digests, before) {
				t.Errorf("the replica stands at %d in term %d with %d, digests %v", r.index, r.term, got, r.digests)
			}
			if err := r.Restore(io.NopCloser(strings.NewReader("9"))); err != nil || r.machine.Digest() != 9 || r.index != 30 {
				t.Errorf("a sound snapshot ended with %v; the replica stands at %d with %d", err, r.index, r.machine.Digest())
			}
		})
	}
}

// witness is a machine whose Restore, of whatever source, runs a function first.
type witness struct {
	counter
	before func()
}

func (w *witness) Restore(r io.Reader) (Machine, error) {
	w.before()
	return w.counter.Restore(r)
}

// While the state of a leader's snapshot is built nothing keeps the one that it replaces.
func TestRestoreMakesRoomFirst(t *testing.T) {
	released := 0
	old := &counter{count: 6, released: &released}
	was := weak.Make(old)
	renewal := &renewal{Restores: new(atomic.Int32), Restored: func(Machine) {}}
	r := &replica{cfg: groupConfig{Grown: func() {}, Renewal: renewal}, machine: old, index: 6, term: 2}
	own, err := r.Snapshot() // Raft writes it when the restore has ended
	if err != nil {
		t.Fatal(err)
	}
	asked := false
	renewal.Fresh = func() Machine {
		return &witness{before: func() {
			asked = true
			runtime.GC()
			if was.Value() != nil {
				t.Error("the old state is in memory beside the new one")
			}
			if r.appliedIndex() != 0 {
				t.Error("the replica claims to have applied something")
			}
		}}
	}
	if err := r.Restore(io.NopCloser(strings.NewReader("9"))); err != nil || r.machine.Digest() != 9 || !asked {
		t.Errorf("it ended with %v, and has %d", err, r.machine.Digest())
	}
	if err := own.Persist(&slowSink{}); !errors.Is(err, storage.ErrSnapshotOlder) {
		t.Errorf("the snapshot of the old state ended with %v", err)
	}
	if own.Release(); released != 1 {
		t.Errorf("it was released %d times", released)
	}
}

// A shard whose leader's snapshot cannot be restored has no state any more, and its log not what it
// lacks: it serves and votes no more, and the process goes on.
func TestShardThatCannotBeRestoredIsSetAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openNode(t, testConfig(t, t.TempDir()))
		do(t, n, 1, put("orders", "x", 0))
		s := n.shards[1].Load()
		if err := s.replica.Restore(io.NopCloser(strings.NewReader("rot"))); err == nil {
			t.Fatal("it was restored")
		}
		if out := s.replica.Apply(&raft.Log{Index: 9}).(*appliedEntry); out.err == nil {
			t.Error("an entry was applied to nothing")
		}
		synctest.Wait()
		expectHere(t, n, 0)
		if got := n.Status().Quarantined; !slices.Equal(got, []string{s.name()}) {
			t.Errorf("%v are set aside", got)
		}
		do(t, n, 0, put("orders", "y", 0))
	})
}

// TestDrainingNodeRemembersWhatCannotBeRestored: the next start would fail at the snapshot.
func TestDrainingNodeRemembersWhatCannotBeRestored(t *testing.T) {
	n := openNode(t, testConfig(t, t.TempDir()))
	do(t, n, 1, put("orders", "x", 0))
	s := n.shards[1].Load()
	n.Drain()
	if err := s.replica.Restore(io.NopCloser(strings.NewReader("rot"))); err == nil {
		t.Fatal("it was restored")
	}
	if got := n.Status().Quarantined; !slices.Equal(got, []string{s.name()}) {
		t.Errorf("%v are set aside", got)
	}
	closeNode(t, n)
	n = openNode(t, testConfig(t, n.cfg.Dir))
	expectHere(t, n, 0)
}

// TestFirstSnapshotThatCannotBeRestoredSetsAside a replica that had no state before: it is on the
// disk, and the next start would begin with it.
func TestFirstSnapshotThatCannotBeRestoredSetsAside(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := openJoined(t, dir)
		if err := n.StartShard(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		s := n.shards[1].Load()
		install(t, s.group, 10)
		if err := s.replica.Restore(io.NopCloser(strings.NewReader("rot"))); err == nil {
			t.Fatal("it was restored")
		}
		synctest.Wait()
		expectHere(t, n)
		closeNode(t, n)
		n = openJoined(t, dir)
		expectHere(t, n)
		if got := n.Status().Quarantined; !slices.Equal(got, []string{s.name()}) {
			t.Errorf("%v are set aside", got)
		}
	})
}

// TestRestartWithWhatCannotBeRestoredSetsAside the shard, and the process goes on: Raft may be
// stopped for the restart before it has restored what it installed.
func TestRestartWithWhatCannotBeRestoredSetsAside(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := openNode(t, testConfig(t, dir))
		do(t, n, 1, put("orders", "x", 0))
		s := n.shards[1].Load()
		install(t, s.group, s.replica.appliedIndex()+10) // with nothing in it
		s.wedged <- struct{}{}
		synctest.Wait()
		expectHere(t, n, 0)
		do(t, n, 0, put("orders", "y", 0))
		closeNode(t, n)
		n = openNode(t, testConfig(t, dir))
		expectHere(t, n, 0)
		if got := n.Status().Quarantined; !slices.Equal(got, []string{s.name()}) {
			t.Errorf("%v are set aside", got)
		}
	})
}

// TestStoppingShardThatCannotBeRestoredIsSetAside: also if the stop is taken back. The next start
// would fail at the snapshot; the next stop removes the replica.
func TestStoppingShardThatCannotBeRestoredIsSetAside(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := openJoined(t, dir)
		if err := n.StartShard(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		s := n.shards[1].Load()
		refused := errors.New("not removed")
		expectAside := func(want ...string) {
			t.Helper()
			synctest.Wait()
			expectHere(t, n)
			if got := n.Status().Quarantined; !slices.Equal(got, want) {
				t.Errorf("%v are set aside, want %v", got, want)
			}
		}
		err := n.StopShard(t.Context(), 1, func(context.Context) error { // it has been taken off the node
			s.replica.cfg.Renewal.Stateless(errors.New("the snapshot is rotten"))
			return refused
		})
		if !errors.Is(err, refused) || !errors.Is(err, errQuarantined) {
			t.Errorf("the stop ended with %v", err)
		}
		expectAside(s.name())
		closeNode(t, n)
		n = openJoined(t, dir)
		expectAside(s.name())
		if err := n.StopShard(t.Context(), 1, wasRemoved); err != nil {
			t.Error(err)
		}
		expectAside()
	})
}

// Snapshots of several groups do not share the disk.
func TestSnapshotsAreTakenOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := diskfault.New()
		cfg := testConfig(t, "/data")
		cfg.FS = disk
		n := openNode(t, cfg)
		var begun atomic.Int64
		finish := make(chan struct{})
		disk.SetHook(func(o diskfault.Op) error {
			if o.Kind == diskfault.OpCreate && strings.HasSuffix(o.Path, ".snap.tmp") {
				begun.Add(1)
				<-finish
			}
			return nil
		})
		ended := make(chan error)
		for shard := range uint32(cfg.Shards) {
			do(t, n, shard, put("orders", "x", 0))
			go func() { ended <- n.Snapshot(t.Context(), shard) }()
		}
		for turn := range int64(cfg.Shards) {
			synctest.Wait()
			if got := begun.Load(); got != turn+1 {
				t.Errorf("when %d snapshots are stored %d were begun", turn, got)
			}
			finish <- struct{}{}
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
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

// What is removed behind a snapshot is no part of it: who asked for it does not wait, and it did
// not take that long.
func TestRemovalFollowsTheSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := diskfault.New()
		cfg := testConfig(t, "/data")
		cfg.FS = disk
		n := openNode(t, cfg)
		var taken []uint64
		disk.SetHook(func(o diskfault.Op) error {
			if o.Kind == diskfault.OpRemove && strings.HasSuffix(o.Path, ".snap.tmp") {
				taken = append(taken, n.Stats().Shards[0].Snapshot.Taken)
			}
			return nil
		})
		for range 3 {
			do(t, n, 0, put("orders", "x", 0))
			if err := n.Snapshot(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if !slices.Equal(taken, []uint64{3}) {
			t.Errorf("snapshots were removed when %v had been taken, want one after the third", taken)
		}
		disk.SetHook(nil)
		closeNode(t, n)
	})
}

// A restart of the group that ends a snapshot is no trouble: the next may begin at once.
func TestRestartDuringASnapshotIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := diskfault.New()
		cfg := testConfig(t, "/data")
		cfg.FS, cfg.SnapshotBytes = disk, 2*pieceBytes
		n := openNode(t, cfg)
		g := n.shards[0].Load().group
		goOn := make(chan struct{})
		onSnapshot(disk, func() {
			g.wedged <- struct{}{}
			<-goOn
		})
		for range 10 {
			do(t, n, 0, put("orders", strings.Repeat("x", pieceBytes/4), 0))
			if synctest.Wait(); g.replica.stopped.Load() {
				break
			}
		}
		close(goOn)
		synctest.Wait()
		if st := g.snapshotStats(); st.Failed != 0 {
			t.Errorf("the stats are %+v", st)
		}
		if trouble := g.lastError.Load(); trouble != nil {
			t.Errorf("the group is in trouble: %s", *trouble)
		}
		do(t, n, 0, put("orders", "x", 0))
		if synctest.Wait(); g.snapshotStats().Taken != 1 {
			t.Errorf("after the restart the stats are %+v", g.snapshotStats())
		}
		closeNode(t, n)
	})
}

// A snapshot that is installed while an own one is written takes its place.
func TestSnapshotThatIsOvertakenIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := diskfault.New()
		cfg := testConfig(t, "/data")
		cfg.FS = disk
		n := openNode(t, cfg)
		do(t, n, 0, put("orders", "x", 0))
		g := n.shards[0].Load().group
		onSnapshot(disk, func() { install(t, g, g.replica.appliedIndex()+10) })
		if err := n.Snapshot(t.Context(), 0); err != nil {
			t.Error(err)
		}
		if st := g.snapshotStats(); st.Failed != 0 || st.Taken != 0 || st.Index != g.replica.appliedIndex()+10 {
			t.Errorf("the stats are %+v", st)
		}
		closeNode(t, n)
	})
}

// Nor does it fail if the leader's snapshot is stored already, and the state still the one before.
func TestSnapshotThatComesTooLateIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openNode(t, testConfig(t, t.TempDir()))
		do(t, n, 0, put("orders", "x", 0))
		g := n.shards[0].Load().group
		install(t, g, g.replica.appliedIndex()+10)
		if err := n.Snapshot(t.Context(), 0); err != nil {
			t.Error(err)
		}
		if st := g.snapshotStats(); st.Failed != 0 || st.Taken != 0 {
			t.Errorf("the stats are %+v", st)
		}
	})
}

// install stores an empty snapshot, as an install does before it is restored.
func install(t *testing.T, g *group, index uint64) {
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
		cfg := testConfig(t, "/data")
		cfg.FS = disk
		n := openNode(t, cfg)
		g := n.shards[0].Load().group
		var state bytes.Buffer
		g.replica.view(func(m Machine, _, _ uint64) {
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
		closeNode(t, n)
	})
}
