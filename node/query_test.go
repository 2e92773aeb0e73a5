package node

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node/outcome"
	"github.com/belfrydb/belfry/node/propose"
	"github.com/belfrydb/belfry/node/raftgroup"
)

// expectJobs fails the test unless a reply hands out jobs with these bodies, one for each grant.
func expectJobs(t *testing.T, reply propose.Reply, bodies ...string) {
	t.Helper()
	var got []string
	for i, job := range reply.Jobs {
		got = append(got, string(job.Body))
		if g := reply.Results[0].Grants[i]; job.Fence != g.Fence || job.Serial != g.Serial || job.Until != g.Until ||
			job.State != fsm.Reserved {
			t.Errorf("job %d of the reply is %+v, granted was %+v", i, job, g)
		}
	}
	if diff := cmp.Diff(bodies, got); diff != "" {
		t.Errorf("handed out (-want +got):\n%s", diff)
	}
}

func TestReserveAnswersWithTheJobs(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := openNode(t, testConfig(t, dir))
		do(t, n, 0, put("orders", "a", 0), put("orders", "b", 0), put("orders", "c", 0))
		req := &fsm.Request{ID: "r1", Commands: []fsm.Command{&fsm.Reserve{Queues: []string{"orders"}, Max: 3,
			TTR: time.Hour}}}
		first, err := n.Reserve(t.Context(), 0, req, Wait{})
		if err != nil {
			t.Fatal(err)
		}
		expectJobs(t, first, "a", "b", "c")

		do(t, n, 0, &fsm.Ack{Ref: refOf(first.Results[0].Grants[1])})
		again, err := n.Reserve(t.Context(), 0, req, Wait{})
		if err != nil || !again.Results[0].Replayed {
			t.Fatalf("the repeat ended with %+v, %v", again, err)
		}
		expectJobs(t, again, "a", "c")

		parked := startPoll(t, n, time.Hour, 2, "orders")
		do(t, n, 0, put("orders", "d", time.Minute))
		parked.grants(t)
		expectJobs(t, parked.reply, "d")

		over := startPoll(t, n, time.Second, 2, "orders")
		over.grants(t)
		expectJobs(t, over.reply)
	})
}

// TestAJobThatIsNotHeldAnyMoreIsLeftOut: what was acked between the grant and the reading of the
// jobs.
func TestAJobThatIsNotHeldAnyMoreIsLeftOut(t *testing.T) {
	n := openNode(t, testConfig(t, t.TempDir()))
	do(t, n, 0, put("orders", "a", 0), put("orders", "b", 0))
	reply := do(t, n, 0, &fsm.Reserve{Queues: []string{"orders"}, Max: 2, TTR: time.Minute})
	if reply.Jobs != nil {
		t.Errorf("Do read %d jobs", len(reply.Jobs))
	}
	do(t, n, 0, &fsm.Ack{Ref: refOf(reply.Results[0].Grants[0])})
	jobs, err := n.shards[0].Load().granted(reply.Results)
	if err != nil || len(jobs) != 1 || string(jobs[0].Body) != "b" {
		t.Errorf("read were %+v, want the job that is held still: %v", jobs, err)
	}
}

func TestQueryShowsWhatWasAnsweredBefore(t *testing.T) {
	n := openNode(t, testConfig(t, t.TempDir()))
	w := do(t, n, 1, put("orders", "x", time.Hour)).Witness
	for name, ask := range map[string]func(q fsm.Query) (fsm.Reading, propose.Witness, error){
		"Query": func(q fsm.Query) (fsm.Reading, propose.Witness, error) { return n.Query(t.Context(), 1, q) },
		"Peek":  func(q fsm.Query) (fsm.Reading, propose.Witness, error) { return n.Peek(1, q) },
	} {
		r, at, err := ask(&fsm.ListQuery{Queue: "orders", State: fsm.Delayed, Max: 10})
		if err != nil || len(r.Jobs) != 1 || r.Jobs[0].BodyBytes != 1 {
			t.Errorf("%s answered %+v, %v", name, r, err)
		}
		if at != (propose.Witness{Shard: 1, Term: w.Term, Index: w.Index, Time: w.Time}) || r.Clock != w.Time ||
			r.Now < w.Time {
			t.Errorf("%s has seen %+v at %d, the put was %+v", name, at, r.Now, w)
		}
	}
}

// TestNoPeekAtAReplicaWithoutItsState: while a snapshot is restored in place of a state, others are
// to be asked.
func TestNoPeekAtAReplicaWithoutItsState(t *testing.T) {
	n := openNode(t, testConfig(t, t.TempDir()))
	do(t, n, 0, put("orders", "x", 0))
	s := n.shards[0].Load()
	var state bytes.Buffer
	s.Replica().View(func(m Machine, _ raftgroup.Position) {
		if _, err := m.Snapshot().WriteTo(&state); err != nil {
			t.Error(err)
		}
	})
	peek := func() error {
		_, _, err := n.Peek(0, &fsm.QueueQuery{Queue: "orders"})
		return err
	}
	source := &onFirstRead{Reader: &state, f: func() {
		if err := peek(); !errors.Is(err, outcome.ErrNotHere) {
			t.Errorf("a peek meanwhile ended with %v", err)
		}
	}}
	if err := s.Replica().Restore(io.NopCloser(source)); err != nil {
		t.Fatal(err)
	}
	do(t, n, 0, put("orders", "y", 0)) // tells the replica where it stands, as the opening of a snapshot does
	if err := peek(); err != nil {
		t.Errorf("a peek afterwards ended with %v", err)
	}
}

func TestDrainingNodeIsPeekedAtButNotAsked(t *testing.T) {
	n := openNode(t, testConfig(t, t.TempDir()))
	do(t, n, 0, put("orders", "x", 0))
	n.Drain()
	if _, _, err := n.Query(t.Context(), 0, &fsm.QueueQuery{Queue: "orders"}); !errors.Is(err, outcome.ErrShuttingDown) {
		t.Errorf("a query ended with %v", err)
	}
	if q := queueOf(t, n, "orders"); q.Counts.Ready != 1 {
		t.Errorf("the queue is %+v", q)
	}
}
