package catalog

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	"github.com/google/go-cmp/cmp"
)

// open starts a node with a catalog on dir. The returned function ends it; it also runs at the end
// of the test.
func open(t *testing.T, dir string) (*node.Node, *Catalog, func()) {
	t.Helper()
	n, end := openNode(t, dir)
	c := openOver(t, n, n)
	if err := c.Admit(t.Context(), c.self); err != nil {
		t.Fatal(err)
	}
	if raised, err := c.RaiseFormat(t.Context(), fsm.LatestFormat); !raised || err != nil {
		t.Fatal(raised, err)
	}
	if err := n.Speak(c.Format()); err != nil {
		t.Fatal(err)
	}
	return n, c, end
}

// openOver starts the catalog alone, over shards that are not quite the node's.
func openOver(t *testing.T, n *node.Node, shards Shards) *Catalog {
	t.Helper()
	st := n.Status()
	c := New(n, Config{
		Self: Node{Name: st.Name, ServerID: st.ServerID, Format: fsm.LatestFormat}, Peers: noPeers{},
		Logger: slog.New(slog.DiscardHandler),
	})
	if err := c.Start(t.Context(), n, shards, nil); err != nil {
		t.Fatal(err)
	}
	if err := c.Introduce(t.Context(), Settings{}); err != nil {
		t.Fatal(err)
	}
	return c
}

// noPeers are the calls of a node that knows no other one.
type noPeers struct{}

func (noPeers) Call(context.Context, string, string, any, any) error { return node.ErrNoLeader }

func (noPeers) Handle(string, func() any, func(context.Context, any) (any, error)) {}

func openNode(t *testing.T, dir string) (*node.Node, func()) {
	t.Helper()
	logger := slog.New(slog.DiscardHandler)
	n, err := node.Open(t.Context(), node.Config{
		Dir: dir, Shards: 4, Logger: logger, Fatal: func(err error) { t.Errorf("the node gave up: %v", err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	closed := false
	end := func() {
		if closed {
			return
		}
		closed = true
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Second)
		defer cancel()
		if err := n.Close(ctx); err != nil {
			t.Errorf("closing the node: %v", err)
		}
	}
	t.Cleanup(end)
	return n, end
}

// versions returns the settings version that the shards of a queue hold, by partition.
func versions(t *testing.T, n *node.Node, q QueueConfig) []uint64 {
	t.Helper()
	var all []uint64
	for p := range q.Partitions {
		r, _, err := n.Peek(node.ShardOf(q.Name, p, n.ShardCount()), &fsm.QueueQuery{Queue: q.Name})
		if err != nil {
			t.Fatal(err)
		}
		var version uint64
		if len(r.Queues) > 0 {
			version = r.Queues[0].Version
		}
		all = append(all, version)
	}
	return all
}

// maxJobs returns a change of settings.
func maxJobs(n uint64) func(fsm.Settings) (fsm.Settings, error) {
	return func(s fsm.Settings) (fsm.Settings, error) {
		s.MaxJobs = n
		return s, nil
	}
}

func TestCreateQueueOpensEveryPartition(t *testing.T) {
	dir := t.TempDir() // outside the bubble: it is removed after the node has ended
	synctest.Test(t, func(t *testing.T) {
		n, c, _ := open(t, dir)
		q, err := c.CreateQueue(t.Context(), "orders", 3, fsm.Settings{MaxJobs: 30})
		if err != nil {
			t.Fatal(err)
		}
		if q.State != Active || q.Partitions != 3 || q.Settings.MaxJobs != 30 || q.Version == 0 {
			t.Errorf("created %+v", q)
		}
		if diff := cmp.Diff([]uint64{q.Version, q.Version, q.Version}, versions(t, n, q)); diff != "" {
			t.Errorf("versions in the shards (-want +got):\n%s", diff)
		}
		if got, ok := c.Queue("orders"); !ok || !cmp.Equal(got, q) {
			t.Errorf("the catalog has %+v, %v, want %+v", got, ok, q)
		}
		if _, err := c.CreateQueue(t.Context(), "orders", 3, fsm.Settings{}); !errors.Is(err, ErrQueueExists) {
			t.Errorf("creating it again: %v, want ErrQueueExists", err)
		}
		other, err := c.CreateQueue(t.Context(), "others", 1, fsm.Settings{})
		if err != nil || other.Version <= q.Version {
			t.Errorf("the next queue is %+v, %v, want a version above %d", other, err, q.Version)
		}
	})
}

func TestCreateQueueRefusesOneThatAPutMade(t *testing.T) {
	dir := t.TempDir() // outside the bubble: it is removed after the node has ended
	synctest.Test(t, func(t *testing.T) {
		n, c, _ := open(t, dir)
		put := &fsm.Request{Commands: []fsm.Command{&fsm.Put{Queue: "orders", Partitions: 1}}}
		if _, err := n.Do(t.Context(), n.Route("orders"), put); err != nil {
			t.Fatal(err)
		}
		if _, err := c.CreateQueue(t.Context(), "orders", 2, fsm.Settings{}); !errors.Is(err, ErrQueueExists) {
			t.Errorf("error is %v, want ErrQueueExists", err)
		}
		// The same when the put comes between the look into the shard and the creation.
		q := QueueConfig{Name: "orders", Partitions: 2, State: Creating}
		out, err := c.propose(t.Context(), command{Create: &queueRecord{Name: q.Name, Partitions: q.Partitions}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.finishCreate(t.Context(), out.queue); !errors.Is(err, ErrQueueExists) {
			t.Errorf("error is %v, want ErrQueueExists", err)
		}
		if q, ok := c.Queue("orders"); ok {
			t.Errorf("the record %+v stayed behind", q)
		}
	})
}

func TestUpdateQueueIsOneChangeAfterTheOther(t *testing.T) {
	dir := t.TempDir() // outside the bubble: it is removed after the node has ended
	synctest.Test(t, func(t *testing.T) {
		_, c, _ := open(t, dir)
		failures := make(chan error)
		for range 8 {
			go func() {
				_, err := c.UpdateQueue(t.Context(), "orders", func(s fsm.Settings) (fsm.Settings, error) {
					s.MaxJobs++
					return s, nil
				})
				failures <- err
			}()
		}
		for range 8 {
			if err := <-failures; err != nil {
				t.Error(err)
			}
		}
		q, ok := c.Queue("orders")
		if !ok || q.Settings.MaxJobs != 8 || q.Partitions != 1 || q.State != Active {
			t.Errorf("after 8 increments the record is %+v, %v", q, ok)
		}
	})
}

func TestUpdateQueueRaisesTheVersionForGood(t *testing.T) {
	dir := t.TempDir() // outside the bubble: it is removed after the node has ended
	synctest.Test(t, func(t *testing.T) {
		_, c, _ := open(t, dir)
		first, err := c.UpdateQueue(t.Context(), "orders", maxJobs(1))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.DeleteQueue(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
		if _, ok := c.Queue("orders"); ok {
			t.Error("a deleted queue is still recorded")
		}
		if err := c.DeleteQueue(t.Context(), "orders"); err != nil {
			t.Errorf("deleting what is not there: %v", err)
		}
		second, err := c.UpdateQueue(t.Context(), "orders", maxJobs(2))
		if err != nil {
			t.Fatal(err)
		}
		if second.Version <= first.Version {
			t.Errorf("version went from %d to %d: shards would ignore the new settings", first.Version, second.Version)
		}
	})
}

func TestLaggingShardsAreReconciled(t *testing.T) {
	dir := t.TempDir() // outside the bubble: it is removed after the node has ended
	synctest.Test(t, func(t *testing.T) {
		n, c, _ := open(t, dir)
		q, err := c.UpdateQueue(t.Context(), "orders", maxJobs(5)) // and no call updates the shard
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(reconcileInterval + time.Second) // virtual
		if got := versions(t, n, q); !slices.Equal(got, []uint64{q.Version}) {
			t.Errorf("the shard has version %d, want %d", got, q.Version)
		}
		before := n.Status().Shards[n.Route("orders")].LastIndex
		time.Sleep(time.Hour)
		if after := n.Status().Shards[n.Route("orders")].LastIndex; after != before {
			t.Errorf("%d entries were logged in an hour in which nothing lagged", after-before)
		}
	})
}

func TestRestartReconcilesAfterACrash(t *testing.T) {
	dir := t.TempDir() // outside the bubble: it is removed after the node has ended
	synctest.Test(t, func(t *testing.T) {
		_, c, end := open(t, dir)
		if _, err := c.UpdateQueue(t.Context(), "configured", maxJobs(5)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.propose(t.Context(), command{Create: &queueRecord{Name: "creating", Partitions: 3}}); err != nil {
			t.Fatal(err)
		}
		end()

		n, c, _ := open(t, dir)
		synctest.Wait()
		time.Sleep(time.Second)
		for _, name := range []string{"configured", "creating"} {
			q, ok := c.Queue(name)
			if !ok || q.State != Active {
				t.Errorf("after the restart %s is %+v, %v", name, q, ok)
			}
			for p, version := range versions(t, n, q) {
				if version != q.Version {
					t.Errorf("partition %d of %s has version %d, want %d", p, name, version, q.Version)
				}
			}
		}
	})
}

func TestCatalogSurvivesARestart(t *testing.T) {
	dir := t.TempDir() // outside the bubble: it is removed after the node has ended
	synctest.Test(t, func(t *testing.T) {
		n, c, end := open(t, dir)
		for _, name := range []string{"b", "a", "c"} {
			if _, err := c.UpdateQueue(t.Context(), name, maxJobs(7)); err != nil {
				t.Fatal(err)
			}
		}
		want := c.Queues()
		nodes := c.Nodes()
		if len(nodes) != 1 || nodes[0].ServerID != n.Status().ServerID {
			t.Errorf("the catalog has the nodes %+v", nodes)
		}
		end()
		_, c, _ = open(t, dir)
		if diff := cmp.Diff(want, c.Queues()); diff != "" {
			t.Errorf("queues after the restart (-before +after):\n%s", diff)
		}
		if diff := cmp.Diff(nodes, c.Nodes()); diff != "" {
			t.Errorf("nodes after the restart (-before +after):\n%s", diff)
		}
	})
}

func TestCatalogOfAnotherClusterIsRefused(t *testing.T) {
	dir := t.TempDir() // outside the bubble: it is removed after the node has ended
	synctest.Test(t, func(t *testing.T) {
		_, c, _ := open(t, dir)
		c.found.ClusterID = "another"
		if err := c.Introduce(t.Context(), Settings{}); err == nil {
			t.Error("a catalog of another cluster was accepted")
		}
	})
}

// cutShards are shards that cannot be reached while cut is set.
type cutShards struct {
	Shards
	cut atomic.Bool
}

func (s *cutShards) Do(ctx context.Context, shard uint32, req *fsm.Request) (node.Reply, error) {
	if s.cut.Load() {
		return node.Reply{}, node.ErrNoLeader
	}
	return s.Shards.Do(ctx, shard, req)
}

func TestCreateQueueThatCannotReachAShardIsCompletedLater(t *testing.T) {
	dir := t.TempDir() // outside the bubble: it is removed after the node has ended
	synctest.Test(t, func(t *testing.T) {
		n, _ := openNode(t, dir)
		shards := &cutShards{Shards: n}
		c := openOver(t, n, shards)
		shards.cut.Store(true)
		if _, err := c.CreateQueue(t.Context(), "orders", 2, fsm.Settings{}); !errors.Is(err, node.ErrNoLeader) {
			t.Errorf("error is %v, want ErrNoLeader", err)
		}
		time.Sleep(2 * reconcileInterval) // in vain
		if q, ok := c.Queue("orders"); !ok || q.State != Creating {
			t.Errorf("the record is %+v, %v, want one of a queue in creation", q, ok)
		}
		shards.cut.Store(false)
		time.Sleep(2 * reconcileInterval)
		if q, ok := c.Queue("orders"); !ok || q.State != Active {
			t.Errorf("the record is %+v, %v, want an active queue", q, ok)
		}
	})
}
