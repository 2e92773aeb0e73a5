package nodetest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/node/clock"
)

func put(body string) *fsm.Put {
	return &fsm.Put{Queue: "orders", Partitions: 1, Body: []byte(body)}
}

// do sends one command to a member and fails the test unless it was applied.
func do(t *testing.T, m *Member, c fsm.Command) (fsm.Result, node.Witness) {
	t.Helper()
	reply, err := m.Node.Do(t.Context(), 0, &fsm.Request{Commands: []fsm.Command{c}})
	if err != nil {
		t.Fatalf("%T at %s: %v", c, m.ServerID, err)
	}
	return reply.Results[0], reply.Witness
}

// reserve takes one job for a minute.
func reserve(t *testing.T, m *Member) fsm.Grant {
	t.Helper()
	result, _ := do(t, m, &fsm.Reserve{Queues: []string{"orders"}, Max: 1, TTR: time.Minute})
	if len(result.Grants) != 1 {
		t.Fatalf("granted %+v, want one job", result.Grants)
	}
	return result.Grants[0]
}

func refOf(g fsm.Grant) fsm.Ref {
	return fsm.Ref{Queue: g.Queue, Partition: g.Partition, Serial: g.Serial, Fence: g.Fence}
}

// held returns the reserved job of a grant, as a member has it.
func held(t *testing.T, m *Member, g fsm.Grant) fsm.Job {
	t.Helper()
	r, _, err := m.Node.Peek(0, &fsm.ListQuery{Queue: g.Queue, State: fsm.Reserved, Max: 1000})
	i := slices.IndexFunc(r.Jobs, func(j fsm.Job) bool { return j.Serial == g.Serial && j.Fence == g.Fence })
	if err != nil || i < 0 {
		t.Fatalf("%s does not have the reserved job: %v", m.ServerID, err)
	}
	return r.Jobs[i]
}

func TestThreeNodesAgree(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := New(t, Options{Dir: dir, Shards: 2})
		leader := c.Leader(0)
		for range 20 {
			do(t, leader, put("x"))
		}
		g := reserve(t, leader)
		c.Converge(0)
		c.Converge(1)
		for _, m := range c.Members() {
			if voters := m.status(0).Voters; len(voters) != 3 {
				t.Errorf("%s knows the voters %v", m.ServerID, voters)
			}
			held(t, m, g)
		}
		follower := c.Followers(0)[0]
		_, err := follower.Node.Do(t.Context(), 0, &fsm.Request{Commands: []fsm.Command{put("y")}})
		if !errors.Is(err, node.ErrNotLeader) || node.OutcomeOf(err) != node.NotApplied {
			t.Errorf("a put at a follower ended with %v", err)
		}
		if _, _, err := follower.Node.Query(t.Context(), 0, &fsm.QueueQuery{}); !errors.Is(err, node.ErrNotLeader) {
			t.Errorf("a read at a follower ended with %v", err)
		}
	})
}

func TestLeaderIsCutOff(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := New(t, Options{Dir: dir})
		old := c.Leader(0)
		for range 2 {
			do(t, old, put("x"))
		}
		before := reserve(t, old)
		c.Isolate(old)
		oldTerm := old.status(0).Term

		// What the old leader logs now, it cannot commit, and it cannot know that.
		request := &fsm.Request{Caller: "c", ID: "r1", Commands: []fsm.Command{put("y")}}
		if _, err := old.Node.Do(t.Context(), 0, request); node.OutcomeOf(err) != node.Unknown {
			t.Errorf("a put at the cut off leader ended with %v", err)
		}
		if r, _, err := old.Node.Query(t.Context(), 0, &fsm.QueueQuery{Queue: "orders"}); err == nil {
			t.Errorf("the cut off leader was read: %+v", r)
		}

		leader := c.LeaderExcept(0, old)
		if term := leader.status(0).Term; term <= oldTerm {
			t.Errorf("the new leader's term %d is not above %d", term, oldTerm)
		}
		after := held(t, leader, before)
		if after.Until < before.Until || after.Fence != before.Fence {
			t.Errorf("the lease with fence %d until %d became one with fence %d until %d", before.Fence, before.Until,
				after.Fence, after.Until)
		}
		next := reserve(t, leader)
		if next.Fence <= before.Fence || next.Serial == before.Serial {
			t.Errorf("the new leader granted job %d with fence %d after job %d with fence %d", next.Serial, next.Fence,
				before.Serial, before.Fence)
		}
		// Repeated there, it is applied once, whatever became of the first attempt.
		for range 2 {
			if _, err := leader.Node.Do(t.Context(), 0, request); err != nil {
				t.Error(err)
			}
		}
		c.Heal(old)
		c.Converge(0)
		if result, _ := do(t, leader, &fsm.Ack{Ref: refOf(before)}); result.Code != fsm.OK {
			t.Errorf("the ack of the lease from before was answered %v", result.Code)
		}
		if r, _, err := leader.Node.Query(t.Context(), 0, &fsm.QueueQuery{Queue: "orders"}); err != nil ||
			r.Queues[0].Counts.Jobs() != 2 {
			t.Errorf("held are %+v, %v, want the reserved job and the repeated one", r.Queues, err)
		}
	})
}

func TestNewLeaderProlongsLeasesByTheGrace(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := New(t, Options{Dir: dir})
		old := c.Leader(0)
		do(t, old, put("x"))
		result, w := do(t, old, &fsm.Reserve{Queues: []string{"orders"}, Max: 1, TTR: 10 * time.Millisecond})
		if err := old.Node.TransferLeader(t.Context(), "shard-0", ""); err != nil {
			t.Fatal(err)
		}
		leader := c.LeaderExcept(0, old)
		job := held(t, leader, result.Grants[0])
		if least := w.Time.Add(2 * clock.DefaultBound); job.Until < least {
			t.Errorf("a lease that was to end at %d ends at %d, before the grace %d", result.Grants[0].Until, job.Until, least)
		}
	})
}

func TestTimeNeverRunsBackAcrossLeaders(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := New(t, Options{Dir: dir})
		for i, m := range c.Members() { // all within the bound of true time, and apart from one another
			m.Clock.Step(time.Duration(i-1) * 200 * time.Millisecond)
		}
		var last node.Witness
		for range 6 {
			leader := c.Leader(0)
			for range 3 {
				_, w := do(t, leader, put("x"))
				if w.Time < last.Time || w.Index <= last.Index || w.Term < last.Term {
					t.Fatalf("witness %+v follows %+v", w, last)
				}
				last = w
			}
			if err := leader.Node.TransferLeader(t.Context(), "shard-0", ""); err != nil {
				t.Fatal(err)
			}
			c.LeaderExcept(0, leader)
		}
		c.Converge(0)
	})
}

func TestPollsEndWithTheLeadership(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := New(t, Options{Dir: dir})
		old := c.Leader(0)
		ended := make(chan error, 1)
		go func() {
			req := &fsm.Request{Commands: []fsm.Command{&fsm.Reserve{Queues: []string{"orders"}, Max: 1}}}
			_, err := old.Node.Reserve(t.Context(), 0, req, node.Wait{For: time.Hour})
			ended <- err
		}()
		synctest.Wait()
		if err := old.Node.TransferLeader(t.Context(), "shard-0", ""); err != nil {
			t.Fatal(err)
		}
		err := <-ended
		if node.OutcomeOf(err) != node.NotApplied || !errors.Is(err, node.ErrNoLeader) && !errors.Is(err, node.ErrNotLeader) {
			t.Errorf("the poll ended with %v", err)
		}
	})
}

func TestMembersRestart(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := New(t, Options{Dir: dir})
		do(t, c.Leader(0), put("x"))
		g := reserve(t, c.Leader(0))
		for _, m := range c.Members() { // one after the other, the leader among them
			id := m.ServerID
			c.Stop(m)
			do(t, c.Leader(0), put("y"))
			c.Start(m)
			if m.ServerID != id {
				t.Errorf("after a restart %s is %s", id, m.ServerID)
			}
			c.Converge(0)
		}
		for _, m := range c.Members() {
			if job := held(t, m, g); job.Until < g.Until {
				t.Errorf("at %s the lease ends at %d, before %d", m.ServerID, job.Until, g.Until)
			}
		}
	})
}

func TestAllMembersStopAtOnce(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := New(t, Options{Dir: dir})
		do(t, c.Leader(0), put("x"))
		g := reserve(t, c.Leader(0))
		for _, m := range c.Members() {
			c.Stop(m)
		}
		began := time.Now()
		for _, m := range c.Members() {
			c.Start(m)
		}
		leader := c.Leader(0)
		if took, misses := time.Since(began), 700*time.Millisecond; took >= misses {
			t.Errorf("a leader serves %v after the start: who has just started waited until it missed one, which takes %v at "+
				"least", took, misses)
		}
		if job := held(t, leader, g); job.Until < g.Until {
			t.Errorf("the lease ends at %d, before %d", job.Until, g.Until)
		}
		c.Converge(0)
	})
}

// TestMemberThatReturnsUnseatsNobody: a member stands for election soon after its start, and the
// others do not vote for it while they hear their leader.
func TestMemberThatReturnsUnseatsNobody(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := New(t, Options{Dir: dir})
		leader, returning := c.Leader(0), c.Followers(0)[0]
		c.Converge(0)
		term := leader.status(0).Term
		for range 10 {
			c.Stop(returning)
			c.Start(returning)
			pass(5 * time.Second)
			if st := leader.status(0); !st.Serving || st.Term != term {
				t.Fatalf("a member came back, and the leader's term %d is %+v", term, st)
			}
		}
		do(t, leader, put("x"))
		c.Converge(0)
	})
}

func TestLaggingMemberIsSentASnapshot(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := New(t, Options{Dir: dir, Configure: func(cfg *node.Config) { cfg.TrailingBytes = 1 }})
		lagging := c.Followers(0)[0]
		c.Isolate(lagging)
		for range 200 { // more than the least number of entries that a leader keeps
			do(t, c.Leader(0), put("x"))
		}
		leader := c.Leader(0)
		if err := leader.Node.Snapshot(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		c.Heal(lagging)
		c.Converge(0)
		if st := lagging.status(0); st.SnapshotIndex == 0 {
			t.Errorf("the lagging member caught up without a snapshot: %+v", st)
		}
	})
}

// An uncommitted suffix longer than the snapshot that replaces it makes Raft refuse every entry for
// ever (hashicorp/raft issue 697) unless the group is restarted.
func TestSnapshotOverALongerLogRestartsTheGroup(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := New(t, Options{Dir: dir, Configure: func(cfg *node.Config) {
			cfg.TrailingBytes, cfg.EntriesInFlight, cfg.EntryBytesMax, cfg.Dial = 1, 1000, 1, slowly(cfg.Dial)
		}})
		old := c.Leader(0)
		do(t, old, put("x"))
		c.Isolate(old)
		ends := make(chan error)
		const uncommitted = 400
		for range uncommitted { // one entry each: the next is sent when the one before is in the log
			before := old.status(0).LastIndex
			go func() {
				_, err := old.Node.Do(t.Context(), 0, &fsm.Request{Commands: []fsm.Command{put("lost")}})
				ends <- err
			}()
			synctest.Wait()
			if old.status(0).LastIndex == before {
				t.Fatal("the cut off leader logs nothing")
			}
		}
		for range uncommitted {
			if err := <-ends; node.OutcomeOf(err) != node.Unknown {
				t.Fatalf("an uncommitted put ended with %v", err)
			}
		}
		leader := c.LeaderExcept(0, old)
		for range 150 {
			do(t, leader, put("y"))
		}
		if err := leader.Node.Snapshot(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		if st := leader.status(0); st.SnapshotIndex >= old.status(0).LastIndex {
			t.Fatalf("the snapshot at %d does not end within the log that ends at %d", st.SnapshotIndex, old.status(0).LastIndex)
		}
		c.Heal(old)
		c.Converge(0)
		do(t, c.Leader(0), put("z"))
		c.Converge(0)
	})
}

func TestMemberIsRemoved(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := New(t, Options{Dir: dir})
		leader, removed := c.Leader(0), c.Followers(0)[0]
		if err := leader.Node.RemoveServer(t.Context(), "shard-0", removed.ServerID, 0); err != nil {
			t.Fatal(err)
		}
		if voters := leader.status(0).Voters; len(voters) != 2 {
			t.Errorf("the voters are %v", voters)
		}
		time.Sleep(time.Minute)
		if c.Leader(0) != leader {
			t.Error("the removed member unseated the leader")
		}
		if err := leader.Node.RemoveServer(t.Context(), "shard-9", removed.ServerID, 0); !errors.Is(err,
			node.ErrUnknownShard) {
			t.Errorf("a group that does not exist: %v", err)
		}
		if err := removed.Node.AddVoter(t.Context(), "shard-0", removed.ServerID, 0); node.OutcomeOf(err) != node.NotApplied {
			t.Errorf("a follower changed the members: %v", err)
		}
	})
}

func TestReadWaitsNoLongerThanItsContext(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := New(t, Options{Dir: dir})
		old := c.Leader(0)
		c.Isolate(old)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		r, _, err := old.Node.Query(ctx, 0, &fsm.QueueQuery{Queue: "orders"})
		if len(r.Queues) != 0 || !errors.Is(err, context.DeadlineExceeded) || node.OutcomeOf(err) != node.NotApplied {
			t.Errorf("the read ended with %v", err)
		}
	})
}
