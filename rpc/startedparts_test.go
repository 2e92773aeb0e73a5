package rpc

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/rpc/backend/backendtest"
	"github.com/belfrydb/belfry/rpc/shardcall"
)

// halfLeader leads shard 0 and starts the requests there. It fails the test if too many have
// started and not ended.
type halfLeader struct {
	*backendtest.Node
	t       *testing.T
	most    int
	refuses bool // starts nothing
	deposed bool // carries out only each second request that it has started

	open, started int // used by the goroutine of the call only

	mu   sync.Mutex
	done map[uint32]int // requests by Do
}

func (n *halfLeader) Serves(shard uint32) bool { return shard == 0 }

func (n *halfLeader) Start(ctx context.Context, shard uint32,
	req *fsm.Request) (finish func() (node.Reply, bool, error), ok bool) {
	if shard != 0 {
		n.t.Errorf("a request of shard %d was started", shard)
	}
	if n.refuses {
		return nil, false
	}
	if n.open++; n.open > n.most {
		n.t.Errorf("%d requests have started and not ended", n.open)
	}
	if n.started++; n.deposed && n.started%2 == 0 {
		return func() (node.Reply, bool, error) {
			n.open--
			return node.Reply{}, true, node.ErrNotLeader
		}, true
	}
	reply, err := n.Node.Do(ctx, shard, req)
	return func() (node.Reply, bool, error) {
		n.open--
		return reply, false, err
	}, true
}

func (n *halfLeader) Do(ctx context.Context, shard uint32, req *fsm.Request) (node.Reply, error) {
	n.mu.Lock()
	n.done[shard]++
	n.mu.Unlock()
	return n.Node.Do(ctx, shard, req)
}

// TestPartsHereAreStarted: the parts of a batch whose shard this node leads take no goroutine, at
// most PartsAtOnce of them wait at a time, and every put has its own answer.
func TestPartsHereAreStarted(t *testing.T) {
	for _, tt := range []struct {
		refuses, deposed bool
		byDo             int // of the 10 parts for shard 0
	}{{false, false, 0}, {true, false, 10}, {false, true, 5}} {
		n := &halfLeader{
			Node: backendtest.NewNode(2), t: t, most: 3, refuses: tt.refuses, deposed: tt.deposed, done: map[uint32]int{},
		}
		r := shardcall.Router{Node: n, PartsAtOnce: n.most}
		var commands []shardcall.Command
		for i := range 20 {
			commands = append(commands, shardcall.Command{
				Shard: uint32(i % 2), Position: i,
				Command: &fsm.Put{Queue: fmt.Sprint("q", i), Partitions: 1, DueAt: dueAt(i), Given: fsm.GivenDueAt},
			})
		}
		answers := make([]shardcall.Answer, len(commands))
		r.ProposeRouted(t.Context(), "", commands, shardcall.ByQueue, answers)
		for i, a := range answers {
			if a.Fault != nil || a.Result == nil || a.Result.Code != fsm.OK || a.Result.Due != dueAt(i) {
				t.Errorf("put %d is answered %+v", i, a)
			}
		}
		if n.done[0] != tt.byDo || n.done[1] != 10 || n.open != 0 {
			t.Errorf("%+v: requests that were not started: %v; %d have not ended", tt, n.done, n.open)
		}
	}
}

// dueAt returns a time in the far future that tells jobs apart.
func dueAt(i int) fsm.Time { return fsm.Time(time.Date(2100, 1, 1, 0, 0, i, 0, time.UTC).UnixNano()) }
