package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
)

// awayWait is how long a call of a shard without a leader waits.
const awayWait = 5 * time.Second

// awayShards are shards of which all but the first cannot be reached while away is set: a call of
// one of them is refused after as long as a leader is waited for.
type awayShards struct {
	Shards
	away atomic.Bool
}

func (s *awayShards) reach(ctx context.Context, shard uint32) error {
	if shard == 0 || !s.away.Load() {
		return nil
	}
	waited := time.NewTimer(awayWait)
	defer waited.Stop()
	select {
	case <-waited.C:
		return node.ErrNoLeader
	case <-ctx.Done():
		return node.ErrCanceled
	}
}

func (s *awayShards) Do(ctx context.Context, shard uint32, req *fsm.Request) (node.Reply, error) {
	if err := s.reach(ctx, shard); err != nil {
		return node.Reply{}, err
	}
	return s.Shards.Do(ctx, shard, req)
}

func (s *awayShards) Query(ctx context.Context, shard uint32, q fsm.Query) (fsm.Reading, node.Witness, error) {
	if err := s.reach(ctx, shard); err != nil {
		return fsm.Reading{}, node.Witness{}, err
	}
	return s.Shards.Query(ctx, shard, q)
}

// openAway returns a catalog over such shards with wide queues of those names. Their settings were
// changed, and no shard was updated.
func openAway(t *testing.T, dir string, names ...string) (*node.Node, *Catalog, *awayShards) {
	t.Helper()
	n, _ := openNode(t, dir)
	shards := &awayShards{Shards: n}
	c := openOver(t, n, shards)
	for _, name := range names {
		_, created := c.CreateQueue(t.Context(), name, uint32(n.ShardCount()), fsm.Settings{}) //nolint:gosec // four
		_, changed := c.UpdateQueue(t.Context(), name, maxJobs(100))
		if err := errors.Join(created, changed); err != nil {
			t.Fatal(err)
		}
	}
	shards.away.Store(true)
	return n, c, shards
}

// near returns a queue whose home is the shard that can be reached.
func near(n *node.Node) string {
	for i := 0; ; i++ {
		if name := fmt.Sprintf("near%d", i); n.Route(name) == 0 {
			return name
		}
	}
}

// TestUnreachedShardsAreWaitedForOnce: however many shards cannot be reached, and however many
// calls find that out, each call takes as long as one of them, and other changes of queues wait for
// none.
func TestUnreachedShardsAreWaitedForOnce(t *testing.T) {
	dir := t.TempDir() // outside the bubble: it is removed after the node has ended
	synctest.Test(t, func(t *testing.T) {
		n, c, _ := openAway(t, dir, "a", "b")
		began := time.Now()
		var calls sync.WaitGroup
		for _, name := range []string{"a", "b", "a", "b", "a", "b"} {
			calls.Go(func() {
				b, err := c.Reconcile(t.Context(), name)
				if took := time.Since(began); err != nil || took > awayWait+time.Second || len(b.Witnesses) != 1 ||
					!slices.Equal(slices.Sorted(slices.Values(b.Pending)), []uint32{1, 2, 3}) {
					t.Errorf("reconciling %s took %v: %+v, %v; want shards 1, 2 and 3 pending after %v", name, took, b, err, awayWait)
				}
			})
		}
		synctest.Wait()
		_, created := c.CreateQueue(t.Context(), near(n), 1, fsm.Settings{})
		if err := errors.Join(created, c.DeleteQueue(t.Context(), near(n))); err != nil || time.Since(began) >= awayWait {
			t.Errorf("a queue elsewhere was made and ended after %v: %v", time.Since(began), err)
		}
		calls.Wait()
		for _, name := range []string{"a", "b"} {
			q, _ := c.Queue(name)
			if got := versions(t, n, q); !slices.Contains(got, q.Version) {
				t.Errorf("the shards have the versions %d of %s, one should have %d", got, name, q.Version)
			}
		}
	})
}

// TestRecordThatChangesDuringReconcile: a shard gets the record as it is by then, and nothing if
// there is none any more.
func TestRecordThatChangesDuringReconcile(t *testing.T) {
	dir := t.TempDir() // outside the bubble: it is removed after the node has ended
	synctest.Test(t, func(t *testing.T) {
		n, c, shards := openAway(t, dir, "changed", "deleted")
		reconcile := func(name string) <-chan error {
			ended := make(chan error, 1)
			go func() {
				_, err := c.Reconcile(t.Context(), name)
				ended <- err
			}()
			synctest.Wait() // it asks
			return ended
		}
		changed, deleted := reconcile("changed"), reconcile("deleted")
		q, err := c.UpdateQueue(t.Context(), "changed", maxJobs(200))
		if err != nil {
			t.Fatal(err)
		}
		if out, err := c.propose(t.Context(), command{Delete: &versioned{Name: "deleted"}}); err != nil ||
			out.verdict != done {
			t.Fatal(out, err)
		}
		if err := <-changed; err != nil {
			t.Errorf("reconciling a queue that was changed meanwhile: %v", err)
		}
		if got := versions(t, n, q); !slices.Contains(got, q.Version) {
			t.Errorf("the shards have the versions %d, one should have %d", got, q.Version)
		}
		if err := <-deleted; !errors.Is(err, ErrQueueGone) {
			t.Errorf("reconciling a queue that is being deleted: %v, want ErrQueueGone", err)
		}
		shards.away.Store(false)
		if err := c.DeleteQueue(t.Context(), "deleted"); err != nil {
			t.Errorf("deleting it when all shards are back: %v", err)
		}
	})
}
