package catalog

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
)

// holders returns how many shards hold something of a queue.
func holders(t *testing.T, n *node.Node, name string) (held int) {
	t.Helper()
	for shard := range uint32(n.ShardCount()) {
		r, _, err := n.Peek(shard, &fsm.QueueQuery{Queue: name})
		if err != nil {
			t.Fatal(err)
		}
		held += len(r.Queues)
	}
	return held
}

func TestDeleteQueueEmptiesTheShards(t *testing.T) {
	dir := t.TempDir() // outside the bubble: it is removed after the node has ended
	synctest.Test(t, func(t *testing.T) {
		n, c, _ := open(t, dir)
		if _, err := c.CreateQueue(t.Context(), "orders", 3, fsm.Settings{}); err != nil {
			t.Fatal(err)
		}
		if held := holders(t, n, "orders"); held != 3 {
			t.Fatalf("%d shards hold the queue, want 3", held)
		}
		if err := c.DeleteQueue(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
		if _, recorded := c.Queue("orders"); recorded || holders(t, n, "orders") != 0 {
			t.Errorf("recorded: %v; %d shards hold the queue", recorded, holders(t, n, "orders"))
		}
		if q, err := c.CreateQueue(t.Context(), "orders", 2, fsm.Settings{}); err != nil || q.Partitions != 2 {
			t.Errorf("made again: %+v, %v", q, err)
		}
	})
}

// TestADeletionThatWasCutShortIsCompleted: until then the queue is neither what it was nor free to
// be made again.
func TestADeletionThatWasCutShortIsCompleted(t *testing.T) {
	dir := t.TempDir() // outside the bubble: it is removed after the node has ended
	synctest.Test(t, func(t *testing.T) {
		n, _ := openNode(t, dir)
		shards := &cutShards{Shards: n}
		c := openOver(t, n, shards)
		if _, err := c.CreateQueue(t.Context(), "orders", 2, fsm.Settings{}); err != nil {
			t.Fatal(err)
		}
		shards.cut.Store(true)
		if err := c.DeleteQueue(t.Context(), "orders"); !errors.Is(err, node.ErrNoLeader) {
			t.Errorf("error is %v, want ErrNoLeader", err)
		}
		if q, ok := c.Queue("orders"); !ok || q.State != Deleting || q.Version != 0 || q.Partitions != 2 {
			t.Errorf("the record is %+v, %v, want one that is being deleted", q, ok)
		}
		if _, err := c.CreateQueue(t.Context(), "orders", 1, fsm.Settings{}); !errors.Is(err, ErrQueueExists) {
			t.Errorf("creating it meanwhile: %v, want ErrQueueExists", err)
		}
		if _, err := c.UpdateQueue(t.Context(), "orders", maxJobs(1)); !errors.Is(err, node.ErrOverloaded) {
			t.Errorf("changing it meanwhile: %v, want ErrOverloaded", err)
		}
		shards.cut.Store(false)
		time.Sleep(2 * reconcileInterval)
		if _, recorded := c.Queue("orders"); recorded || holders(t, n, "orders") != 0 {
			t.Errorf("recorded: %v; %d shards hold the queue", recorded, holders(t, n, "orders"))
		}
	})
}

func TestARestartCompletesADeletion(t *testing.T) {
	dir := t.TempDir() // outside the bubble: it is removed after the node has ended
	synctest.Test(t, func(t *testing.T) {
		_, c, end := open(t, dir)
		if _, err := c.CreateQueue(t.Context(), "orders", 3, fsm.Settings{}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.propose(t.Context(), command{Delete: &versioned{Name: "orders"}}); err != nil {
			t.Fatal(err)
		}
		end()
		n, c, _ := open(t, dir)
		synctest.Wait()
		time.Sleep(time.Second)
		if _, recorded := c.Queue("orders"); recorded || holders(t, n, "orders") != 0 {
			t.Errorf("recorded: %v; %d shards hold the queue", recorded, holders(t, n, "orders"))
		}
	})
}

// TestLateCreationOpensNothing: a creation that is about to open the partitions of a record finds
// that the record is gone.
func TestLateCreationOpensNothing(t *testing.T) {
	dir := t.TempDir() // outside the bubble: it is removed after the node has ended
	synctest.Test(t, func(t *testing.T) {
		n, c, _ := open(t, dir)
		q, err := c.CreateQueue(t.Context(), "orders", 2, fsm.Settings{})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.DeleteQueue(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
		if _, err := c.openPartitions(t.Context(), q); err == nil || holders(t, n, "orders") != 0 {
			t.Errorf("error is %v; %d shards hold the queue", err, holders(t, n, "orders"))
		}
	})
}
