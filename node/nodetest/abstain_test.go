package nodetest

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/node/peer"
)

// abstaining has a member abstain from the elections of shard 0 until it is ended.
func abstaining(t *testing.T, m *Member) (end func()) {
	t.Helper()
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		again := time.NewTicker(peer.AbstainFor / 3)
		defer again.Stop()
		for {
			if err := m.Node.Abstain("shard-0"); err != nil {
				t.Error(err)
			}
			select {
			case <-again.C:
			case <-ended:
				return
			}
		}
	}()
	end = sync.OnceFunc(func() {
		close(ended)
		<-done
	})
	t.Cleanup(end)
	return end
}

// A leader that no node can connect to stays leader, because its own connections work, also while
// it abstains. Once it has handed over it stays a follower.
func TestLeaderThatAbstains(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := New(t, Options{Dir: dir})
		sick, followers := c.Leader(0), c.Followers(0)
		c.Shield(sick)
		end := abstaining(t, sick)
		pass(10 * time.Second)
		do(t, sick, put("x"))
		if err := sick.Node.TransferLeader(t.Context(), "shard-0", followers[1].ServerID); err != nil {
			t.Fatal(err)
		}
		if next := c.LeaderExcept(0, sick); next != followers[1] {
			t.Errorf("%s leads, want %s", next.name, followers[1].name)
		}
		do(t, followers[1], put("x"))
		end()
		c.Heal(sick)
		c.Converge(0)
	})
}

// A follower that no node can connect to is elected when the leader ends, but not while it
// abstains.
func TestFollowerThatAbstains(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := New(t, Options{Dir: dir})
		leader, followers := c.Leader(0), c.Followers(0)
		sick := followers[0]
		c.Shield(sick)
		end := abstaining(t, sick)
		c.Isolate(leader)
		for range 20 { // the other one cannot ask the sick one for its vote
			pass(time.Second)
			if sick.status(0).Serving {
				t.Fatal("the node that abstains was elected")
			}
		}
		end()
		c.Await("it is elected, as it abstains no more", func() bool { return sick.status(0).Serving })
		c.Heal(leader)
		c.Heal(sick)
		c.Converge(0)
	})
}

// It is not handed the leadership either, and the leader that tries serves on.
func TestLeadershipIsNotHandedToOneThatAbstains(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := New(t, Options{Dir: dir})
		leader, followers := c.Leader(0), c.Followers(0)
		end := abstaining(t, followers[0])
		pass(time.Second)
		if err := leader.Node.TransferLeader(t.Context(), "shard-0", followers[0].ServerID); err == nil {
			t.Error("the leadership was handed to a node that abstains")
		}
		do(t, leader, put("x"))
		if next := c.Leader(0); next != leader {
			t.Errorf("%s leads", next.name)
		}
		end()
		pass(peer.AbstainFor + time.Second)
		if err := leader.Node.TransferLeader(t.Context(), "shard-0", followers[0].ServerID); err != nil {
			t.Errorf("once it abstains no more: %v", err)
		}
	})
}
