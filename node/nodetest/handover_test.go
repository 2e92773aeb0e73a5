package nodetest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
)

// leaderlessMax is how long a shard may be without a leader when its leader is stopped gracefully.
const leaderlessMax = 300 * time.Millisecond

// expectSoonLed fails the test unless every shard is served by another member soon.
func expectSoonLed(t *testing.T, c *Cluster, shards int) {
	t.Helper()
	start := time.Now()
	for shard := range uint32(shards) {
		c.Leader(shard)
		if gap := time.Since(start); gap > leaderlessMax {
			t.Errorf("shard %d was without a leader for %v", shard, gap)
		}
	}
}

// Each member in turn is stopped and started again, as an upgrade does, under load that only hears
// refusals it may repeat.
func TestRollingRestartIsNotFelt(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		const shards = 2
		c := New(t, Options{Dir: dir, Shards: shards})
		for range 2 {
			for _, m := range c.Members() {
				led := 0
				for shard := range uint32(shards) {
					if c.Leader(shard) == m {
						led++
					}
				}
				wait := c.Shut(m)
				expectSoonLed(t, c, shards)
				wait()
				for shard := range uint32(shards) {
					put := &fsm.Put{Queue: "orders", Partitions: 1}
					if _, err := c.Leader(shard).Node.Do(t.Context(), shard, &fsm.Request{Commands: []fsm.Command{put}}); err != nil {
						t.Error(err)
					}
				}
				c.Start(m)
				for shard := range uint32(shards) {
					c.Converge(shard)
				}
				t.Logf("%s led %d shards", m.name, led)
			}
		}
	})
}

// A follower that is down has as much of an idle log as the others, and is not handed the
// leadership.
func TestHandoverPassesOverTheDead(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := New(t, Options{Dir: dir, Nodes: 5})
		leader := c.Leader(0)
		followers := c.Followers(0) // Raft's own choice is the first
		c.Isolate(followers[0])
		wait := time.NewTimer(2 * time.Second)
		<-wait.C
		done := c.Shut(leader)
		start := time.Now()
		next := c.LeaderExcept(0, followers[0])
		if gap := time.Since(start); gap > leaderlessMax || next == leader {
			t.Errorf("after %v %s leads", gap, next.name)
		}
		done()
		c.Heal(followers[0])
	})
}

// Nor does it get the leadership when it is named: the shard would have no leader until that is
// given up, and a second attempt would not be.
func TestLeadershipIsNotTransferredToTheDead(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := New(t, Options{Dir: dir})
		leader, followers := c.Leader(0), c.Followers(0)
		c.Isolate(followers[0])
		pass(time.Second)
		do(t, leader, put("it lacks"))
		for range 3 {
			if err := leader.Node.TransferLeader(t.Context(), "shard-0", followers[0].ServerID); !errors.Is(err,
				node.ErrSilent) {
				t.Errorf("handing over to one that is cut off ended with %v", err)
			}
			do(t, leader, put("x"))
		}
		if err := leader.Node.TransferLeader(t.Context(), "shard-0", ""); err != nil {
			t.Fatal(err)
		}
		if next := c.LeaderExcept(0, leader); next != followers[1] {
			t.Errorf("%s leads, want %s", next.name, followers[1].name)
		}
		c.Heal(followers[0])
	})
}

// A leader without a voter to hand over to stops all the same, soon.
func TestLeaderThatNobodySucceedsStops(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := New(t, Options{Dir: dir})
		leader := c.Leader(0)
		for _, m := range c.Followers(0) {
			c.Isolate(m)
		}
		start := time.Now()
		c.Shut(leader)()
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// What is under way when the leader is stopped ends applied or not applied.
func TestCallsUnderWayAtAHandover(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := New(t, Options{Dir: dir})
		leader := c.Leader(0)
		n := leader.Node
		const callers = 50
		outcomes := make(chan node.Outcome, callers)
		for range callers {
			go func() {
				put := &fsm.Put{Queue: "orders", Partitions: 1}
				_, err := n.Do(context.WithoutCancel(t.Context()), 0, &fsm.Request{Commands: []fsm.Command{put}})
				outcomes <- node.OutcomeOf(err)
			}()
		}
		c.Shut(leader)()
		count := map[node.Outcome]uint64{}
		for range callers {
			count[<-outcomes]++
		}
		if count[node.Unknown] > 0 {
			t.Errorf("outcomes are %v, want none unknown", count)
		}
		c.Converge(0)
		if puts := heldJobs(t, c.Leader(0)); puts != count[node.Applied] {
			t.Errorf("%d puts are there, %d callers were told so", puts, count[node.Applied])
		}
	})
}
