package cluster

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/belfrydb/belfry/cluster/catalog"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
)

// settingsIn returns the version and the limit of jobs that each shard has of a queue, as its
// leader says.
func settingsIn(t *testing.T, through *member, name string) map[uint32][2]uint64 {
	t.Helper()
	held := map[uint32][2]uint64{}
	for shard := range uint32(testShards) {
		r, _, err := through.cluster.Router().Query(t.Context(), shard, &fsm.QueueQuery{Queue: name})
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range r.Queues {
			held[shard] = [2]uint64{q.Version, q.Settings.MaxJobs}
		}
	}
	return held
}

// TestUpdatesThroughAllNodes changes the settings of one queue through all nodes at once: no change
// is lost, and when the calls have returned every shard has the last of them.
func TestUpdatesThroughAllNodes(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		_, all := threeMembers(t, dir)
		if _, err := all[0].cluster.CreateQueue(t.Context(), "wide", testShards, fsm.Settings{MaxJobs: 100}); err != nil {
			t.Fatal(err)
		}
		const each = 4
		var calls sync.WaitGroup
		for _, m := range all {
			for range each {
				calls.Go(func() {
					_, err := m.cluster.UpdateQueue(t.Context(), "wide", func(s fsm.Settings) (fsm.Settings, error) {
						s.MaxJobs++
						return s, nil
					})
					if err != nil {
						t.Errorf("through %s: %v", m.name, err)
					}
					if done, err := m.cluster.Reconcile(t.Context(), "wide"); err != nil || len(done.Witnesses) != testShards ||
						len(done.Pending) > 0 {
						t.Errorf("reconciling through %s: %+v, %v", m.name, done, err)
					}
				})
			}
		}
		calls.Wait()
		if err := all[0].cluster.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		q, _ := all[0].cluster.Queue("wide")
		want := uint64(100 + len(all)*each)
		if q.Settings.MaxJobs != want {
			t.Errorf("the limit is %d after %d changes, want %d", q.Settings.MaxJobs, len(all)*each, want)
		}
		held := settingsIn(t, all[0], "wide")
		for shard := range uint32(testShards) {
			if held[shard] != [2]uint64{q.Version, want} {
				t.Errorf("shard %d has version and limit %v, want %d and %d", shard, held[shard], q.Version, want)
			}
		}
	})
}

// TestUpdateAndDeleteThroughAllNodes changes and deletes one queue through all nodes at once: no
// shard holds what is not recorded in the end, however late a change came.
func TestUpdateAndDeleteThroughAllNodes(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		_, all := threeMembers(t, dir)
		for i := range 10 {
			name := fmt.Sprintf("wide%d", i)
			if _, err := all[0].cluster.CreateQueue(t.Context(), name, testShards, fsm.Settings{}); err != nil {
				t.Fatal(err)
			}
			var calls sync.WaitGroup
			for _, m := range all {
				calls.Go(func() {
					if err := m.cluster.DeleteQueue(t.Context(), name); err != nil {
						t.Errorf("deleting: %v", err)
					}
				})
				for range 3 {
					calls.Go(func() {
						if _, err := m.cluster.Reconcile(t.Context(), name); err != nil && !errors.Is(err, catalog.ErrQueueGone) {
							t.Errorf("reconciling: %v", err)
						}
					})
				}
			}
			calls.Wait()
			if held := shardsWith(t, all[0], name); held != 0 {
				t.Errorf("%d shards hold %s, which is not recorded", held, name)
			}
		}
	})
}

// TestReconcileLogsNothingWhereNothingLags: a shard that has the record is asked, and not updated
// again.
func TestReconcileLogsNothingWhereNothingLags(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		_, all := threeMembers(t, dir)
		if _, err := all[0].cluster.CreateQueue(t.Context(), "wide", testShards, fsm.Settings{}); err != nil {
			t.Fatal(err)
		}
		before := logged(all)
		for _, m := range all {
			done, err := m.cluster.Reconcile(t.Context(), "wide")
			if err != nil || len(done.Witnesses) != testShards || done.Witnesses[0].Index == 0 {
				t.Errorf("through %s: %+v, %v", m.name, done, err)
			}
		}
		if after := logged(all); after != before {
			t.Errorf("%d entries were logged", after-before)
		}
	})
}

// logged counts the entries that the leaders of the shards have logged for callers.
func logged(all []*member) (entries uint64) {
	for _, m := range all {
		for _, s := range m.node.Stats().Shards {
			entries += s.Entries
		}
	}
	return entries
}

// TestRestoreQueueThroughAllNodes: a restore may come to any node, and the leader of the catalog
// opens what it done.
func TestRestoreQueueThroughAllNodes(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		_, all := threeMembers(t, dir)
		for _, m := range all {
			name := "of-" + m.name
			if err := m.cluster.RestoreQueue(t.Context(), catalog.QueueConfig{
				Name: name, Partitions: testShards, Settings: fsm.Settings{MaxJobs: 7},
			}); err != nil {
				t.Errorf("through %s: %v", m.name, err)
			}
			if q, recorded := m.cluster.Queue(name); !recorded || q.State != catalog.Active || q.Settings.MaxJobs != 7 {
				t.Errorf("%s has %+v, %v", m.name, q, recorded)
			}
			err := m.cluster.RestoreQueue(t.Context(), catalog.QueueConfig{Name: name, Partitions: 1})
			if !errors.Is(err, catalog.ErrQueueExists) || node.OutcomeOf(err) == node.Applied {
				t.Errorf("with other partitions: %v", err)
			}
		}
	})
}
