package cluster

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/cluster/catalog"
	"github.com/belfrydb/belfry/cluster/placement"
	"github.com/belfrydb/belfry/cluster/routing"
	"github.com/belfrydb/belfry/cluster/routing/routingtest"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
)

// trio is three members that share three shards evenly.
type trio struct {
	*testing.T
	network *routingtest.Network
	all     []*member
}

func newTrio(t *testing.T, dir string) *trio {
	t.Helper()
	network, all := threeMembers(t, dir)
	return &trio{t, network, all}
}

// leader returns the member that leads a shard, and one that does not.
func (tr *trio) leader(shard uint32) (leader, other *member) {
	for _, m := range tr.all {
		if m.node.Serves(shard) {
			leader = m
		} else {
			other = m
		}
	}
	return leader, other
}

// reserve waits for a job through a member.
func (tr *trio) reserve(m *member, queue string) <-chan node.Reply {
	got := make(chan node.Reply, 1)
	go func() {
		req := &fsm.Request{Commands: []fsm.Command{&fsm.Reserve{Queues: []string{queue}, Max: 1}}}
		reply, err := m.cluster.Router().Reserve(tr.Context(), node.ShardOf(queue, 0, testShards), req,
			node.Wait{For: time.Hour})
		if err != nil {
			tr.Errorf("a poll through %s: %v", m.name, err)
		}
		got <- reply
	}()
	synctest.Wait()
	return got
}

// TestCallsOutliveTheirLeader: when a leader falls silent, calls through the others wait for the
// next one and are carried out; a poll that waits at it waits on at the next.
func TestCallsOutliveTheirLeader(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		tr := newTrio(t, dir)
		const queue = "orders"
		shard := node.ShardOf(queue, 0, testShards)
		leader, other := tr.leader(shard)
		if err := put(other, queue); err != nil { // so that there is a connection
			t.Fatal(err)
		}
		if reply := <-tr.reserve(other, queue); len(reply.Jobs) != 1 {
			t.Fatalf("granted %+v", reply)
		}
		polled := tr.reserve(other, queue)
		began := time.Now()
		tr.network.Isolate(leader.name)
		var calls sync.WaitGroup
		for range 10 {
			calls.Go(func() {
				if _, _, err := other.cluster.Router().Query(t.Context(), shard, &fsm.QueueQuery{Queue: queue}); err != nil {
					t.Errorf("a query after %v: %v", time.Since(began), err)
				}
			})
		}
		synctest.Wait() // a put that is sent into a connection that broke unnoticed has an unknown outcome
		for range 10 {
			calls.Go(func() {
				if err := put(other, queue); err != nil {
					t.Errorf("a put after %v: %v", time.Since(began), err)
				}
			})
		}
		calls.Wait()
		t.Logf("the calls took %v", time.Since(began))
		if reply := <-polled; len(reply.Jobs) != 1 {
			t.Errorf("the poll was granted %+v", reply)
		}
	})
}

// TestNoLeaderIsWaitedForWithinBounds: with most members silent a call is refused after a while,
// sooner if its caller cannot wait so long.
func TestNoLeaderIsWaitedForWithinBounds(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		tr := newTrio(t, dir)
		const queue = "orders"
		shard := node.ShardOf(queue, 0, testShards)
		leader, other := tr.leader(shard)
		for _, m := range tr.all {
			if m != other {
				tr.network.Isolate(m.name)
			}
		}
		await(t, "the end of "+leader.name+"'s leadership", func() bool {
			id, err := other.node.Leader(shard)
			return err == nil && id == ""
		})
		began := time.Now()
		err := put(other, queue)
		if took := time.Since(began); !errors.Is(err, node.ErrNoLeader) || node.OutcomeOf(err) != node.NotApplied ||
			took != routing.LeaderWait {
			t.Errorf("after %v: %v", took, err)
		}
		began = time.Now()
		poll := &fsm.Request{Commands: []fsm.Command{&fsm.Reserve{Queues: []string{queue}, Max: 1}}}
		_, err = other.cluster.Router().Reserve(t.Context(), shard, poll, node.Wait{For: time.Hour})
		if took := time.Since(began); !errors.Is(err, node.ErrNoLeader) || took < routing.LeaderWait ||
			took > routing.LeaderWait+time.Second {
			t.Errorf("a poll, after %v: %v", took, err)
		}
		for what, call := range map[string]func(ctx context.Context) error{
			"put":  func(ctx context.Context) error { return putWithin(ctx, other, queue) },
			"read": func(ctx context.Context) error { return query(ctx, other, queue) },
		} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			began = time.Now()
			if err = call(ctx); !errors.Is(err, node.ErrNoLeader) || ctx.Err() != nil {
				t.Errorf("a %s with a deadline, after %v: %v", what, time.Since(began), err)
			}
			cancel()
		}
	})
}

// TestLeaderWithoutAMajority: what it had logged when the others fell silent has an unknown outcome
// as soon as it steps down, what it had not is refused. Reads, and all that comes later, are
// refused within the time that calls wait for a leader.
func TestLeaderWithoutAMajority(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		tr := newTrio(t, dir)
		const queue = "orders"
		shard := node.ShardOf(queue, 0, testShards)
		leader, _ := tr.leader(shard)
		for _, m := range tr.all {
			if m != leader {
				tr.network.Isolate(m.name)
			}
		}
		began := time.Now()
		var calls sync.WaitGroup
		var unknown, refused atomic.Int64
		for range 100 {
			calls.Go(func() {
				switch err := put(leader, queue); {
				case errors.Is(err, node.ErrUnknownOutcome):
					unknown.Add(1)
					if took := time.Since(began); took > 2*time.Second {
						t.Errorf("a put that was logged, after %v: %v", took, err)
					}
				case errors.Is(err, node.ErrNoLeader):
					refused.Add(1)
				default:
					t.Errorf("a put after %v: %v", time.Since(began), err)
				}
			})
			calls.Go(func() {
				if err := query(t.Context(), leader, queue); !errors.Is(err, node.ErrNoLeader) {
					t.Errorf("a read after %v: %v", time.Since(began), err)
				}
			})
		}
		calls.Wait()
		if took := time.Since(began); unknown.Load() == 0 || took > routing.LeaderWait+2*time.Second {
			t.Errorf("after %v %d puts are of unknown outcome", took, unknown.Load())
		}
		began = time.Now()
		if err := put(leader, queue); !errors.Is(err, node.ErrNoLeader) || node.OutcomeOf(err) != node.NotApplied ||
			time.Since(began) != routing.LeaderWait {
			t.Errorf("a later put, after %v: %v", time.Since(began), err)
		}
	})
}

// query reads a queue through a member.
func query(ctx context.Context, m *member, queue string) error {
	_, _, err := m.cluster.Router().Query(ctx, node.ShardOf(queue, 0, testShards), &fsm.QueueQuery{Queue: queue})
	return err
}

// TestStoppingLeaderIsNotTheCallersNode: a leader that takes nothing any more, and has not handed
// over yet, is waited for like one that is gone.
func TestStoppingLeaderIsNotTheCallersNode(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		tr := newTrio(t, dir)
		const queue = "orders"
		leader, other := tr.leader(node.ShardOf(queue, 0, testShards))
		leader.node.Drain()
		if err := query(t.Context(), other, queue); err != nil {
			t.Errorf("a read while the leader stops: %v", err)
		}
		if err := put(other, queue); err != nil {
			t.Errorf("a put while the leader stops: %v", err)
		}
		if err := put(leader, queue); !errors.Is(err, node.ErrShuttingDown) {
			t.Errorf("a put through the one that stops: %v", err)
		}
	})
}

// TestHandOverIsNotFelt: a leader hands over and goes on. Polls that wait at it, its own and those
// of others, wait on at the next; calls through it go to the next at once.
func TestHandOverIsNotFelt(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		tr := newTrio(t, dir)
		const queue = "orders"
		shard := node.ShardOf(queue, 0, testShards)
		leader, other := tr.leader(shard)
		polls := []<-chan node.Reply{tr.reserve(leader, queue), tr.reserve(other, queue)}
		began := time.Now()
		var handing sync.WaitGroup
		handing.Go(func() { leader.node.HandOver(t.Context()) })
		for range 20 {
			if err := put(leader, "more"); err != nil {
				t.Errorf("a put through the one that hands over, after %v: %v", time.Since(began), err)
			}
		}
		handing.Wait()
		if took := time.Since(began); leader.node.Serves(shard) || took > 300*time.Millisecond {
			t.Errorf("after %v it serves: %v", took, leader.node.Serves(shard))
		}
		for _, m := range []*member{leader, other} {
			if err := put(m, queue); err != nil {
				t.Errorf("a put through %s: %v", m.name, err)
			}
		}
		for _, poll := range polls {
			if reply := <-poll; len(reply.Jobs) != 1 || reply.Jobs[0].Attempt != 1 {
				t.Errorf("a poll was granted %+v", reply)
			}
		}
	})
}

// TestHandOverWithoutASuccessor: the leader goes on to serve.
func TestHandOverWithoutASuccessor(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		a := newMember(t, routingtest.NewNetwork(), dir, "a", nil)
		a.node.HandOver(t.Context())
		for shard := range uint32(testShards) {
			if !a.node.Serves(shard) {
				t.Errorf("shard %d is not served", shard)
			}
		}
		if err := put(a, "orders"); err != nil {
			t.Error(err)
		}
	})
}

// TestUnreached: a member is ready when the leaders of all shards answer it, and says what is wrong
// when one does not.
func TestUnreached(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		tr := newTrio(t, dir)
		const shard = 1
		leader, other := tr.leader(shard)
		router := other.cluster.Router()
		if problems := router.Unreached(t.Context()); len(problems) > 0 {
			t.Errorf("in good order: %v", problems)
		}
		tr.network.Isolate(leader.name)
		if problems := router.Unreached(t.Context()); len(problems) > 0 {
			t.Errorf("it was asked just now: %v", problems)
		}
		pause := time.NewTimer(readinessFor)
		<-pause.C
		if problems := router.Unreached(t.Context()); !strings.Contains(problems[catalog.ShardGroup(shard)],
			leader.node.Status().ServerID+" does not answer") {
			t.Errorf("its leader is silent: %v", problems)
		}
		await(t, "all shards to be reached again", func() bool { return len(router.Unreached(t.Context())) == 0 })
		if next, _ := tr.leader(shard); next == leader {
			t.Error("who is silent leads")
		}
		cut := leader.cluster.Router()
		await(t, "the one that is cut off to know", func() bool {
			return cut.Unreached(t.Context())[catalog.ShardGroup(shard)] == "no leader is known"
		})
	})
}

// TestCatalogBehind: a member whose catalog has not caught up since its start is not ready.
func TestCatalogBehind(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		tr := newTrio(t, dir)
		i := slices.IndexFunc(tr.all, func(m *member) bool { return !m.cluster.Group().Serving() })
		router := tr.all[i].cluster.Router()
		far := &placement.Report{Groups: []placement.GroupReport{{Group: catalog.GroupName, Serving: true, Commit: 1 << 40}}}
		if problem := router.catalogProblem(far); !strings.Contains(problem, "catching up") {
			t.Errorf("far behind: %q", problem)
		}
		far.Groups[0].Commit = 1
		for what, report := range map[string]*placement.Report{"caught up": far, "no report": nil} {
			if problem := router.catalogProblem(report); (problem == "") != (report != nil) {
				t.Errorf("%s: %q", what, problem)
			}
		}
	})
}
