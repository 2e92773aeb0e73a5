package node

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/machine"
	"github.com/belfrydb/belfry/node/admit"
	"github.com/belfrydb/belfry/node/outcome"
)

// openWithQueuesMax opens a node whose shards hold so many queues at most.
func openWithQueuesMax(t *testing.T, queuesMax int) *Node {
	t.Helper()
	cfg := testConfig(t, t.TempDir())
	cfg.Machine = fsm.Config{QueuesMax: queuesMax}
	return openNode(t, cfg)
}

// named returns a put into each of some queues.
func named(queues ...string) (all []fsm.Command) {
	for _, queue := range queues {
		all = append(all, put(queue, "", 0))
	}
	return all
}

// numbered returns the names of so many queues of a namespace.
func numbered(space string, n int) (queues []string) {
	for i := range n {
		queues = append(queues, fmt.Sprintf("%s/%d", space, i))
	}
	return queues
}

// queuesHeld returns how many queues shard 0 has.
func queuesHeld(n *Node) (held int) {
	n.shards[0].Load().view(func(m *machine.Machine, _ fsm.Time) { held, _ = m.QueueRoom() })
	return held
}

// TestNamespaceLeavesQueuesToOthers: a namespace makes queues until it has as many as are left for
// all, and is then refused before the log; what it has goes on, and others make theirs, each as
// long as it has fewer than are left. A shard that is full says so, and a queue that is deleted
// makes room.
func TestNamespaceLeavesQueuesToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openWithQueuesMax(t, 8)
		for i, step := range []struct {
			puts    string // the queues of a request
			refused string // the one that is not made, "" if all are
			why     string // what the refusal says
		}{
			{puts: "t/0 t/1 t/2"},
			{puts: "t/3 t/4", refused: "t/4",
				why: `namespace "t" has 4 queues in this shard, and no namespace may have more ` +
					`than are left there for all, 4 of 8; delete some`},
			{puts: "t/3"},
			{puts: "t/4", refused: "t/4", why: `namespace "t" has 4 queues`},
			{puts: "t/0"},
			{puts: "t/4 t/0", refused: "t/4"},
			{puts: "u/0 u/0"},
			{puts: "t/0 t/1 t/2 t/3"},
			{puts: "u/1 t/4", refused: "t/4"},
			{puts: "plain"},
			{puts: "u/1"},
			{puts: "u/2", refused: "u/2", why: `namespace "u" has 2 queues`},
			{puts: "other", refused: "other", why: "queues without a namespace, which count as one, are 1 in this shard"},
			{puts: "v/0"},
			{puts: "w/0", refused: "w/0", why: "the shard holds as many queues as it may, 8; delete some"},
			{puts: "t/0 u/0 plain v/0"},
		} {
			before := lastIndex(n)
			err := tryPut(t, n, named(strings.Fields(step.puts)...)...)
			if step.refused == "" {
				if err != nil {
					t.Fatalf("step %d, %s: %v", i, step.puts, err)
				}
				continue
			}
			e, ok := errors.AsType[*admit.QueuesError](err)
			if !ok || !errors.Is(err, outcome.ErrQuota) || outcome.Of(err) != outcome.NotApplied || e.Queue != step.refused ||
				!strings.Contains(e.Error(), step.why) {
				t.Fatalf("step %d, %s: %v", i, step.puts, err)
			}
			expectEntries(t, n, before, 0)
		}
		do(t, n, 0, &fsm.DeleteQueue{Queue: "t/0"})
		if err := tryPut(t, n, named("t/5")...); !errors.Is(err, outcome.ErrQuota) {
			t.Errorf("the namespace that has most gets what was freed: %v", err)
		}
		if err := tryPut(t, n, named("w/0")...); err != nil {
			t.Errorf("another one does not: %v", err)
		}
	})
}

// TestQueuesMadeAtOnce: however many puts come at one time, alone and in batches, a namespace gets
// half of what there is and not one more.
func TestQueuesMadeAtOnce(t *testing.T) {
	for _, batch := range []int{1, 3} {
		t.Run(fmt.Sprint(batch), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := openWithQueuesMax(t, 60)
				queues := numbered("t", 99)
				var group sync.WaitGroup
				for len(queues) > 0 {
					request := named(queues[:batch]...)
					queues = queues[batch:]
					group.Go(func() {
						if err := tryPut(t, n, request...); err != nil && !errors.Is(err, outcome.ErrQuota) {
							t.Error(err)
						}
					})
				}
				group.Wait()
				if got := queuesHeld(n); got != 30 {
					t.Errorf("%d queues were made, want 30", got)
				}
				for i := range 3 {
					if err := tryPut(t, n, named(fmt.Sprintf("u%d/0", i))...); err != nil {
						t.Errorf("another namespace: %v", err)
					}
				}
			})
		})
	}
}

// TestPutsMakeNoQueues: where puts make none, one into a queue that does not exist is refused
// before the log with the queue's name, whatever else it puts; what was made goes on, a repeat is
// answered, queues are made by other means, and the next start knows it.
func TestPutsMakeNoQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openWithQueuesMax(t, 100)
		expectCode(t, n, "first", put("old", "", 0), fsm.OK, 1)
		if err := n.RefuseNewQueues(); err != nil {
			t.Fatal(err)
		}
		index := n.shards[0].Load().Replica().AppliedIndex()
		for _, queues := range [][]string{{"mistyped"}, {"old", "mistyped"}} {
			err := tryPut(t, n, named(queues...)...)
			none, ok := errors.AsType[*admit.NoQueueError](err)
			if !ok || none.Queue != "mistyped" || !errors.Is(err, outcome.ErrNoQueue) || outcome.Of(err) != outcome.NotApplied ||
				!strings.Contains(err.Error(), "belfry queue create mistyped") {
				t.Errorf("a put into %q ended with %v", queues, err)
			}
		}
		if got := n.shards[0].Load().Replica().AppliedIndex(); got != index || queuesHeld(n) != 1 {
			t.Errorf("something was logged: entry %d, before %d; %d queues", got, index, queuesHeld(n))
		}
		expectCode(t, n, "first", put("old", "", 0), fsm.OK, 1)
		do(t, n, 0, named("old")...)
		do(t, n, 0, &fsm.Open{Queue: "mistyped", Partitions: 1})
		do(t, n, 0, named("mistyped")...)
		if err := n.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		n = openNode(t, testConfig(t, n.cfg.Dir))
		if err := tryPut(t, n, named("another")...); !errors.Is(err, outcome.ErrNoQueue) {
			t.Errorf("a put at the next start ended with %v", err)
		}
		if err := n.MakeNewQueues(); err != nil {
			t.Fatal(err)
		}
		do(t, n, 0, named("new")...)
	})
}

// TestRepeatsMakeNoQueue: a request that was carried out, or is too old to tell, is answered so by
// the machine although its queue could not be made; so is a put that was routed by another number
// of partitions.
func TestRepeatsMakeNoQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openWithQueuesMax(t, 4)
		expectCode(t, n, "first", put("t/0", "", 0), fsm.OK, 1)
		do(t, n, 0, &fsm.DeleteQueue{Queue: "t/0"})
		do(t, n, 0, named("t/1", "t/2")...)
		if err := tryPut(t, n, named("t/0")...); !errors.Is(err, outcome.ErrQuota) {
			t.Errorf("another request: %v", err)
		}
		expectCode(t, n, "first", put("t/0", "", 0), fsm.OK, 1)
		if got := queuesHeld(n); got != 2 {
			t.Errorf("the repeat left %d queues, want 2", got)
		}
		expectCode(t, n, "00000000-0000-7000-8000-000000000000", put("t/0", "", 0), fsm.RequestExpired, 1)
		expectCode(t, n, "", &fsm.Put{Queue: "t/0", Partitions: 2}, fsm.QueueChanged, 1)
		time.Sleep(2 * fsm.RequestWindow)
		if _, err := n.Do(t.Context(), 0, &fsm.Request{ID: "first", Commands: named("t/0")}); !errors.Is(err,
			outcome.ErrQuota) {
			t.Errorf("a request that is remembered no more: %v", err)
		}
	})
}

// TestNewLeaderKnowsItsQueues: a node that starts with queues from its log or from a snapshot
// refuses as its predecessor did.
func TestNewLeaderKnowsItsQueues(t *testing.T) {
	for name, snapshot := range map[string]bool{"log": false, "snapshot": true} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				cfg := testConfig(t, dir)
				cfg.Machine = fsm.Config{QueuesMax: 6}
				n := openNode(t, cfg)
				do(t, n, 0, named("0", "1", "2")...)
				if snapshot {
					if err := n.Snapshot(t.Context(), 0); err != nil {
						t.Fatal(err)
					}
				}
				closeNode(t, n)
				n = openNode(t, cfg)
				if err := tryPut(t, n, named("3")...); !errors.Is(err, outcome.ErrQuota) {
					t.Errorf("the fourth queue without a namespace: %v", err)
				}
				do(t, n, 0, named("0", "t/0")...)
			})
		})
	}
}
