package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/cluster/catalog"
	"github.com/belfrydb/belfry/cluster/routing"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
)

// TestDeleteThroughANodeThatLags deletes queues through a node that does not know of them yet.
func TestDeleteThroughANodeThatLags(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		_, all := threeMembers(t, dir)
		leader, others := leads(t, catalog.GroupName, all)
		for i := range 5 {
			name := fmt.Sprintf("wide%d", i)
			if _, err := leader.cluster.CreateQueue(t.Context(), name, testShards, fsm.Settings{}); err != nil {
				t.Fatal(err)
			}
			if err := others[0].cluster.DeleteQueue(t.Context(), name); err != nil {
				t.Errorf("deleting %s: %v", name, err)
			}
			for _, m := range []*member{leader, others[0]} {
				if q, recorded := m.cluster.Queue(name); recorded {
					t.Errorf("after its end node %s has %+v", m.name, q)
				}
			}
			if held := shardsWith(t, leader, name); held != 0 {
				t.Errorf("%d shards hold %s", held, name)
			}
		}
	})
}

// TestCreateThroughAFollowerOfAnIdleCatalog does not wait until the leader happens to say how far
// it has committed.
func TestCreateThroughAFollowerOfAnIdleCatalog(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		_, all := threeMembers(t, dir)
		_, others := leads(t, catalog.GroupName, all)
		for i := range 5 {
			time.Sleep(5 * time.Second) // nothing else happens
			began := time.Now()
			if _, err := others[0].cluster.CreateQueue(t.Context(), fmt.Sprintf("idle%d", i), 1, fsm.Settings{}); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > 200*time.Millisecond { // of virtual time
				t.Errorf("a creation took %v", took)
			}
		}
	})
}

// TestRefusalThroughAFollower: an entry that the catalog's leader refuses is known as not applied
// at the node that forwarded it.
func TestRefusalThroughAFollower(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		_, all := threeMembers(t, dir)
		_, others := leads(t, catalog.GroupName, all)
		_, err := others[0].cluster.CreateQueue(t.Context(), "wide", testShards+1, fsm.Settings{})
		if err == nil || node.OutcomeOf(err) != node.NotApplied {
			t.Errorf("creating a queue that is too wide gives %v", err)
		}
	})
}

// A node that is in contact with its leader, and gets none of its entries, says so in time:
// nothing was done, or, if the leader did it, the outcome is unknown.
func TestNodeThatGetsNoEntriesIsWaitedForWithinBounds(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		network, all := threeMembers(t, dir)
		leader, others := leads(t, catalog.GroupName, all)
		lags := others[0]
		late := func(n int) string { // a queue that is not that node's to open
			for ; ; n++ {
				name := fmt.Sprintf("late%d", n)
				if !lags.node.Serves(node.ShardOf(name, 0, testShards)) {
					return name
				}
			}
		}
		network.BreakAt(lags.addr, "AppendedAt") // as all entries have it, and heartbeats do not
		if _, err := leader.cluster.CreateQueue(t.Context(), late(0), 1, fsm.Settings{}); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		err := lags.cluster.Refresh(t.Context())
		if took := time.Since(began); node.OutcomeOf(err) != node.NotApplied || !errors.Is(err, node.ErrNoLeader) ||
			took != routing.LeaderWait {
			t.Errorf("after %v: %v", took, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := lags.cluster.Refresh(ctx); !errors.Is(err, node.ErrNoLeader) || ctx.Err() != nil {
			t.Errorf("before the caller's deadline: %v, %v", err, ctx.Err())
		}
		began = time.Now()
		_, err = lags.cluster.CreateQueue(t.Context(), late(100), 1, fsm.Settings{})
		if took := time.Since(began); node.OutcomeOf(err) != node.Unknown || took < routing.LeaderWait ||
			took > routing.LeaderWait+time.Second {
			t.Errorf("a creation, after %v: %v", took, err)
		}
		network.BreakAt("", "")
		if err := lags.cluster.Refresh(t.Context()); err != nil {
			t.Error(err)
		}
		if _, known := lags.cluster.Queue(late(100)); !known {
			t.Error("what the leader did is not known")
		}
	})
}

// shardsWith returns how many shards hold something of a queue, as their leaders say.
func shardsWith(t *testing.T, through *member, name string) (held int) {
	t.Helper()
	for shard := range uint32(testShards) {
		r, _, err := through.cluster.Router().Query(t.Context(), shard, &fsm.QueueQuery{Queue: name})
		if err != nil {
			t.Fatal(err)
		}
		held += len(r.Queues)
	}
	return held
}

// TestCreateAndDeleteThroughAllNodes creates and deletes one queue through all nodes at once. In
// any order, the shards hold in the end what is recorded.
func TestCreateAndDeleteThroughAllNodes(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		_, all := threeMembers(t, dir)
		for i := range 10 {
			name := fmt.Sprintf("wide%d", i)
			var calls sync.WaitGroup
			for _, m := range all {
				for range 2 {
					calls.Go(func() {
						if _, err := m.cluster.CreateQueue(t.Context(), name, testShards, fsm.Settings{}); err != nil {
							t.Logf("creating: %v", err) // it is there already, or was deleted meanwhile
						}
					})
					calls.Go(func() {
						if err := m.cluster.DeleteQueue(t.Context(), name); err != nil {
							t.Errorf("deleting: %v", err)
						}
					})
				}
			}
			calls.Wait()
			if err := all[0].cluster.Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
			q, recorded := all[0].cluster.Queue(name)
			if held := shardsWith(t, all[0], name); recorded && held != testShards || !recorded && held != 0 {
				t.Errorf("recorded: %v, as %s; %d shards hold it", recorded, q.State, held)
			}
		}
	})
}

// TestRequestsThroughAnotherNode are known to the leader: a repeat gets the first answer, other
// content is refused.
func TestRequestsThroughAnotherNode(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		_, all := threeMembers(t, dir)
		_, others := leads(t, catalog.GroupName, all)
		create := func(m *member, content string) (catalog.QueueConfig, error) {
			return m.cluster.ForRequest("r", content).CreateQueue(t.Context(), "wide", 2, fsm.Settings{MaxJobs: 7})
		}
		first, err := create(others[0], "c")
		if err != nil || first.State != catalog.Active || first.Settings.MaxJobs != 7 {
			t.Fatalf("%+v, %v", first, err)
		}
		if q, recorded := others[0].cluster.Queue("wide"); !recorded || q.State != catalog.Active {
			t.Errorf("the node that was asked has %+v, %v", q, recorded)
		}
		if again, err := create(others[1], "c"); err != nil || again.Version != first.Version {
			t.Errorf("a repeat through the other node gives %+v, %v", again, err)
		}
		var misused *catalog.RequestError
		if _, err := create(others[1], "other"); !errors.As(err, &misused) || misused.ID != "r" {
			t.Errorf("other content gives %v", err)
		}
		if _, err := others[1].cluster.CreateQueue(t.Context(), "wide", 2, fsm.Settings{}); !errors.Is(err,
			catalog.ErrQueueExists) {
			t.Errorf("another creation gives %v", err)
		}
	})
}
