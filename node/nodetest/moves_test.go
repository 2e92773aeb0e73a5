package nodetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
)

// A replica leaves its node and comes back, with a restart while it is away. The founder of the
// shard is no different.
func TestReplicaLeavesAndComesBack(t *testing.T) {
	for name, number := range map[string]int{"the founder": 0, "one that joined": 2} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				c := New(t, Options{Dir: dir})
				m := c.Members()[number]
				for c.Leader(0) == m {
					if err := m.Node.TransferLeader(t.Context(), "shard-0", ""); err != nil {
						t.Fatal(err)
					}
					c.LeaderExcept(0, m)
				}
				putJobs(t, c, 10)
				term := m.status(0).Term
				if err := c.Leader(0).Node.RemoveServer(t.Context(), "shard-0", m.ServerID, 0); err != nil {
					t.Fatal(err)
				}
				if err := m.Node.StopShard(t.Context(), 0, c.removed(m)); err != nil {
					t.Fatal(err)
				}
				if _, _, err := m.Node.Peek(0, &fsm.QueueQuery{}); !errors.Is(err, node.ErrNotHere) {
					t.Errorf("a look at a shard that left gives %v", err)
				}
				putJobs(t, c, 10)
				c.Stop(m)
				c.Start(m)
				wait := time.NewTimer(time.Minute)
				<-wait.C
				if here := m.Node.Status().Shards; len(here) != 0 {
					t.Errorf("after a restart %+v is here", here)
				}
				c.Join(m)
				c.Converge(0)
				c.Await("it hears that it is a voter again", func() bool { return len(m.status(0).Voters) == 3 })
				if st := m.status(0); st.Term < term {
					t.Errorf("it is back as %+v after term %d", st, term)
				}
				if jobs := heldJobs(t, m); jobs != 20 {
					t.Errorf("it holds %d jobs, want 20", jobs)
				}
			})
		})
	}
}

// removed returns the question of whether a member is one of shard 0 no more, to its leader.
func (c *Cluster) removed(m *Member) func(context.Context) error {
	leader := c.LeaderExcept(0, m)
	return func(ctx context.Context) error {
		members, err := leader.Node.Members(ctx, "shard-0")
		if err == nil && members.Has(m.ServerID) {
			err = fmt.Errorf("%s is one of %+v", m.name, members)
		}
		return err
	}
}

// A removal that is only in the leader's log removes no replica: the leader does not show it, and
// the replica that asks goes on.
func TestRemovalThatIsNotCommitted(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := New(t, Options{Dir: dir})
		putJobs(t, c, 10)
		c.Converge(0)
		leader := c.Leader(0)
		others := c.Followers(0)
		cutOff, removed := others[0], others[1]
		c.Isolate(cutOff)
		putJobs(t, c, 1) // acknowledged by the leader and the one that is to go
		// The removed server must acknowledge nothing more: Raft counts its vote for the removal if
		// that comes before the new members do.
		c.Isolate(removed)
		ended := make(chan error, 1)
		go func() { ended <- leader.Node.RemoveServer(t.Context(), "shard-0", removed.ServerID, 0) }()
		synctest.Wait()
		if st := leader.status(0); !st.Serving || !slices.Contains(st.Voters, removed.ServerID) ||
			st.MembersIndex > st.CommitIndex {
			t.Errorf("while the removal is under way the leader shows %+v", st)
		}
		if err := removed.Node.StopShard(t.Context(), 0, c.removed(removed)); err == nil {
			t.Error("the replica went before its removal was committed")
		}
		if err := <-ended; err == nil {
			t.Fatal("the removal was committed by one of two")
		}
		if st := removed.status(0); st.LastIndex < leader.status(0).CommitIndex {
			t.Errorf("the replica is there as %+v", st)
		}
		c.Heal(cutOff)
		c.Heal(removed)
		if jobs := heldJobs(t, c.Leader(0)); jobs != 11 {
			t.Errorf("of 11 jobs that were put %d are left", jobs)
		}
	})
}

// A leader that was cut off does not tell the members: the others may have taken back one that left
// by its word.
func TestMembersOfALeaderThatIsCutOff(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := New(t, Options{Dir: dir})
		old := c.Leader(0)
		c.Isolate(old)
		if members, err := old.Node.Members(t.Context(), "shard-0"); err == nil {
			t.Errorf("it says that they are %+v", members)
		}
	})
}

// The question is asked when the replica acknowledges nothing any more; one that stays follows
// again.
func TestReplicaStaysIfTheLeaderSaysSo(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := New(t, Options{Dir: dir})
		putJobs(t, c, 1)
		m := c.Followers(0)[0]
		stays := errors.New("it stays")
		err := m.Node.StopShard(t.Context(), 0, func(context.Context) error {
			if _, _, err := m.Node.Peek(0, &fsm.QueueQuery{}); !errors.Is(err, node.ErrNotHere) {
				t.Errorf("when it is asked the replica still runs: %v", err)
			}
			putJobs(t, c, 1)
			return stays
		})
		if !errors.Is(err, stays) {
			t.Errorf("error is %v", err)
		}
		putJobs(t, c, 1)
		c.Converge(0)
		if jobs := heldJobs(t, m); jobs != 3 {
			t.Errorf("it holds %d jobs, want 3", jobs)
		}
		c.Stop(m)
		c.Start(m)
		c.Converge(0)
	})
}

// Of two changes that were made from the same members the second is refused, and only a member
// becomes a voter.
func TestMembersAreComparedBeforeTheyChange(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := New(t, Options{Dir: dir})
		leader, others := c.Leader(0), c.Followers(0)
		before, err := leader.Node.Members(t.Context(), "shard-0")
		if err != nil || len(before.Voters) != 3 || len(before.Nonvoters) != 0 || before.Index == 0 {
			t.Fatalf("members are %+v, %v", before, err)
		}
		remove := func(m *Member) error {
			return leader.Node.RemoveServer(t.Context(), "shard-0", m.ServerID, before.Index)
		}
		if err := remove(others[0]); err != nil {
			t.Error(err)
		}
		if err := remove(others[1]); !errors.Is(err, node.ErrOvertaken) {
			t.Errorf("the second removal gives %v", err)
		}
		for _, server := range []string{others[0].ServerID, "ghost.0000"} {
			if err := leader.Node.AddVoter(t.Context(), "shard-0", server, 0); !errors.Is(err, node.ErrOvertaken) {
				t.Errorf("a vote for %s, which is no member: %v", server, err)
			}
		}
		if st := leader.status(0); len(st.Voters) != 2 {
			t.Errorf("voters are %v", st.Voters)
		}
	})
}

// putJobs puts n jobs through the leader.
func putJobs(t *testing.T, c *Cluster, n int) {
	t.Helper()
	leader := c.Leader(0)
	for range n {
		put := &fsm.Put{Queue: "orders", Partitions: 1, Given: fsm.GivenDelay, Delay: time.Hour}
		if _, err := leader.Node.Do(t.Context(), 0, &fsm.Request{Commands: []fsm.Command{put}}); err != nil {
			t.Fatal(err)
		}
	}
}

// heldJobs returns the number of jobs that were put on a member.
func heldJobs(t *testing.T, m *Member) (jobs uint64) {
	t.Helper()
	r, _, err := m.Node.Peek(0, &fsm.QueueQuery{Queue: "orders"})
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range r.Queues {
		jobs = q.Counters.Put
	}
	return jobs
}
