package cluster

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/cluster/routing"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
)

// TestPollThatLostItsLeaderIsUnknown: a poll that waited at a leader when the others fell silent
// may have been granted jobs there. That no other leader took it does not make it a refusal.
func TestPollThatLostItsLeaderIsUnknown(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		tr := newTrio(t, dir)
		const queue = "orders"
		shard := node.ShardOf(queue, 0, testShards)
		leader, other := tr.leader(shard)
		ended := make(chan error, 1)
		go func() {
			poll := &fsm.Request{ID: "request", Commands: []fsm.Command{&fsm.Reserve{Queues: []string{queue}, Max: 1}}}
			_, err := other.cluster.Router().Reserve(t.Context(), shard, poll, node.Wait{For: time.Minute})
			ended <- err
		}()
		synctest.Wait()
		for _, m := range tr.all {
			if m != other {
				tr.network.Isolate(m.name)
			}
		}
		if err := <-ended; !errors.Is(err, node.ErrUnknownOutcome) || node.OutcomeOf(err) != node.Unknown {
			t.Errorf("a poll that had waited at %s: %v, want an unknown outcome", leader.name, err)
		}
	})
}

// TestPollThatIsRefusedAfterAllEnds at once, though its outcome is that of a stay before: the
// refusal is no reason to look for another leader.
func TestPollThatIsRefusedAfterAllEnds(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		tr := newTrio(t, dir)
		const queue = "orders"
		shard := node.ShardOf(queue, 0, testShards)
		_, other := tr.leader(shard)
		ended := make(chan error, 1)
		go func() {
			poll := &fsm.Request{ID: "request", Commands: []fsm.Command{&fsm.Reserve{Queues: []string{queue}, Max: 1}}}
			_, err := other.cluster.Router().Reserve(t.Context(), shard, poll, node.Wait{For: time.Minute})
			ended <- err
		}()
		synctest.Wait()
		other.node.Drain() // it refuses what comes, and lets go on what is elsewhere
		tr.network.Isolate(other.name)
		began := time.Now()
		if err := <-ended; !errors.Is(err, node.ErrUnknownOutcome) || time.Since(began) >= routing.LeaderWait {
			t.Errorf("after %v: %v, want an unknown outcome at once", time.Since(began), err)
		}
	})
}
