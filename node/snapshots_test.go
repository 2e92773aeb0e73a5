package node

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/raft"

	"github.com/belfrydb/belfry/node/founding"
	"github.com/belfrydb/belfry/node/storage"
	"github.com/belfrydb/belfry/node/storage/diskfault"
)

// A shard whose leader's snapshot cannot be restored has no state any more, and its log not what it
// lacks: it serves and votes no more, and the process goes on.
func TestShardThatCannotBeRestoredIsSetAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openNode(t, testConfig(t, t.TempDir()))
		do(t, n, 1, put("orders", "x", 0))
		s := n.shards[1].Load()
		if err := s.Replica().Restore(io.NopCloser(strings.NewReader("rot"))); err == nil {
			t.Fatal("it was restored")
		}
		if s.Replica().Apply(&raft.Log{Index: 9}); s.Replica().AppliedIndex() != 0 {
			t.Error("an entry was applied to nothing")
		}
		synctest.Wait()
		expectHere(t, n, 0)
		if got := n.Status().Quarantined; !slices.Equal(got, []string{s.Name()}) {
			t.Errorf("%v are set aside", got)
		}
		do(t, n, 0, put("orders", "y", 0))
		// A restart of the group that fails now must not end the process; see
		// TestRestartWithWhatCannotBeRestored of raftgroup.
		for shard, want := range []bool{false, true} {
			if got := n.groupConfig(founding.ShardGroup(uint32(shard)), "").SetAside(); got != want {
				t.Errorf("the group of shard %d is told that it is set aside: %v, want %v", shard, got, want)
			}
		}
	})
}

// TestDrainingNodeRemembersWhatCannotBeRestored: the next start would fail at the snapshot.
func TestDrainingNodeRemembersWhatCannotBeRestored(t *testing.T) {
	n := openNode(t, testConfig(t, t.TempDir()))
	do(t, n, 1, put("orders", "x", 0))
	s := n.shards[1].Load()
	n.Drain()
	if err := s.Replica().Restore(io.NopCloser(strings.NewReader("rot"))); err == nil {
		t.Fatal("it was restored")
	}
	if got := n.Status().Quarantined; !slices.Equal(got, []string{s.Name()}) {
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
		if err := s.Replica().Restore(io.NopCloser(strings.NewReader("rot"))); err == nil {
			t.Fatal("it was restored")
		}
		synctest.Wait()
		expectHere(t, n)
		closeNode(t, n)
		install(t, s, 10)
		n = openJoined(t, dir)
		expectHere(t, n)
		if got := n.Status().Quarantined; !slices.Equal(got, []string{s.Name()}) {
			t.Errorf("%v are set aside", got)
		}
	})
}

// install stores an empty snapshot in the files of a shard that is stopped.
func install(t *testing.T, s *shard, index uint64) {
	t.Helper()
	stores, err := storage.Open(s.Dir(), s.StoreConfig())
	if err != nil {
		t.Fatal(err)
	}
	sink, err := stores.Snapshots.Create(1, index, 1, raft.Configuration{}, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(sink.Close(), stores.Close()); err != nil {
		t.Fatal(err)
	}
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
			if err := s.Replica().Restore(io.NopCloser(strings.NewReader("rot"))); err == nil {
				t.Error("it was restored")
			}
			return refused
		})
		if !errors.Is(err, refused) || !errors.Is(err, errQuarantined) {
			t.Errorf("the stop ended with %v", err)
		}
		expectAside(s.Name())
		closeNode(t, n)
		n = openJoined(t, dir)
		expectAside(s.Name())
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
		for round := range int64(cfg.Shards) {
			synctest.Wait()
			if got := begun.Load(); got != round+1 {
				t.Errorf("when %d snapshots are stored %d were begun", round, got)
			}
			finish <- struct{}{}
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
}

// The removal of old snapshots is not part of a snapshot: the caller does not wait for it, and its
// time does not count.
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

// TestRemovalFollowsASnapshotByVolume: no call asks for these snapshots, and what they replace is
// removed as well.
func TestRemovalFollowsASnapshotByVolume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := diskfault.New()
		cfg := testConfig(t, "/data")
		cfg.FS, cfg.SnapshotBytes = disk, 5000
		n := openNode(t, cfg)
		for range 60 { // a snapshot is due when as much was logged as the last one has
			do(t, n, 0, put("orders", strings.Repeat("x", 1000), 0))
			synctest.Wait()
		}
		if taken := n.Stats().Shards[0].Snapshot.Taken; taken < 3 {
			t.Fatalf("%d snapshots were taken, want 3 or more", taken)
		}
		for _, name := range disk.Files() {
			if strings.HasSuffix(name, ".snap.tmp") {
				t.Errorf("%s is there", name)
			}
		}
		closeNode(t, n)
	})
}
