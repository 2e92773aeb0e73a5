package node

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node/outcome"
	"github.com/belfrydb/belfry/node/propose"
)

// codesOf returns the codes of the results of puts of one request.
func codesOf(t *testing.T, n *Node, requestID string, puts ...fsm.Command) (codes []fsm.Code) {
	t.Helper()
	reply, err := n.Do(t.Context(), 0, &fsm.Request{ID: requestID, Commands: puts})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range reply.Results {
		codes = append(codes, r.Code)
	}
	return codes
}

// expectCode fails the test unless a put of its own is answered with a code, and says how many
// entries that cost.
func expectCode(t *testing.T, n *Node, requestID string, p *fsm.Put, want fsm.Code, entries uint64) {
	t.Helper()
	synctest.Wait() // until no entry is in flight
	before := lastIndex(n)
	if got := codesOf(t, n, requestID, p)[0]; got != want {
		t.Errorf("code %d, want %d", got, want)
	}
	expectEntries(t, n, before, entries)
}

func configure(version uint64, s fsm.Settings) *fsm.Configure {
	return &fsm.Configure{Queue: "orders", Partitions: 1, Version: version, Settings: s}
}

// TestPutsIntoAFullQueueAreNotLogged: the first refusal is the machine's, the next are its
// leader's, until there is room.
func TestPutsIntoAFullQueueAreNotLogged(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := openNode(t, testConfig(t, dir))
		known := &fsm.Put{Queue: "orders", Partitions: 1, ID: "known"}
		do(t, n, 0, configure(1, fsm.Settings{MaxJobs: 1}), known)
		one := put("orders", "x", 0)
		expectCode(t, n, "", one, fsm.QueueFull, 1)
		expectCode(t, n, "", one, fsm.QueueFull, 0)
		expectCode(t, n, "fresh", one, fsm.QueueFull, 0)
		expectCode(t, n, "", known, fsm.OK, 1) // a repeat is answered as the first was

		// That was an answer of another kind, so the machine is asked again.
		expectCode(t, n, "", one, fsm.QueueFull, 1)
		expectCode(t, n, "", one, fsm.QueueFull, 0)
		do(t, n, 0, &fsm.Cancel{Queue: "orders", ID: "known"})
		expectCode(t, n, "", one, fsm.OK, 1)
	})
}

func TestPutsAboveTheRateAreNotLogged(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := openNode(t, testConfig(t, dir))
		do(t, n, 0, configure(1, fsm.Settings{PutsPerSecond: 1}))
		one := put("orders", "x", time.Hour)
		expectCode(t, n, "first", one, fsm.OK, 1)
		expectCode(t, n, "", one, fsm.RateLimited, 1)
		synctest.Wait()
		before := lastIndex(n)
		reply, err := n.Do(t.Context(), 0, &fsm.Request{Commands: []fsm.Command{one, one}})
		if err != nil || len(reply.Results) != 2 || reply.Witness != (propose.Witness{}) {
			t.Fatalf("answered %+v, %v; want two results without a witness", reply, err)
		}
		for _, r := range reply.Results {
			if r.Code != fsm.RateLimited || r.Wait <= 0 || r.Wait > time.Second {
				t.Errorf("answered %+v; want RateLimited and a wait of up to a second", r)
			}
		}
		expectEntries(t, n, before, 0)
		expectCode(t, n, "first", one, fsm.OK, 1) // what was remembered of it
		time.Sleep(2 * time.Second)
		expectCode(t, n, "", one, fsm.OK, 1)
	})
}

// TestRefusalsLookAtEachPut: a request is refused as a whole or logged as a whole.
func TestRefusalsLookAtEachPut(t *testing.T) {
	n := openNode(t, testConfig(t, t.TempDir()))
	do(t, n, 0, configure(1, fsm.Settings{MaxBytes: 3}))
	large, small := put("orders", "1234", 0), put("orders", "1", 0)
	for range 2 {
		before := lastIndex(n)
		if got := codesOf(t, n, "", large, small); got[0] != fsm.QueueFull || got[1] != fsm.OK || lastIndex(n) != before+1 {
			t.Errorf("codes %v and %d entries, want a refusal, a job and one entry", got, lastIndex(n)-before)
		}
	}
	other := put("other", "1234", 0)
	if got := codesOf(t, n, "", large, other); got[0] != fsm.QueueFull || got[1] != fsm.OK {
		t.Errorf("codes %v, want a refusal and a job", got)
	}
}

// TestFullQueueOfALeaderThatHandsOver: a leader that accepts no more requests does not say that a
// queue is full, since its successor may have taken the put.
func TestFullQueueOfALeaderThatHandsOver(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := openNode(t, testConfig(t, dir))
		one := put("orders", "x", 0)
		do(t, n, 0, configure(1, fsm.Settings{MaxJobs: 1}), one)
		expectCode(t, n, "", one, fsm.QueueFull, 1)
		s, err := n.replicaOf(0)
		if err != nil {
			t.Fatal(err)
		}
		s.proposer.Close(outcome.ErrNoLeader) // as yield does
		if reply, err := n.Do(t.Context(), 0, &fsm.Request{Commands: []fsm.Command{one}}); !errors.Is(err,
			outcome.ErrNoLeader) {
			t.Errorf("while it hands over: %+v, %v", reply, err)
		}
		s.proposer.Open()
		expectCode(t, n, "", one, fsm.QueueFull, 0)
	})
}
