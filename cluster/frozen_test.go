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

const (
	// leftAfter is how long another leader must have been known before a call is given up, and
	// leftWithin how much longer it may take.
	leftAfter  = time.Second
	leftWithin = 500 * time.Millisecond
)

// TestCallsAtALeaderThatStandsStill: what was sent to it has an unknown outcome soon after the
// others have another leader, not only when its connections are found dead; what reads is answered
// by the other one.
func TestCallsAtALeaderThatStandsStill(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		tr := newTrio(t, dir)
		const queue = "orders"
		shard := node.ShardOf(queue, 0, testShards)
		leader, other := tr.leader(shard)
		router := other.cluster.Router()
		reserve := func() error {
			_, err := router.Reserve(t.Context(), shard, &fsm.Request{Commands: []fsm.Command{&fsm.Reserve{
				Queues: []string{queue}, Max: 1,
			}}}, node.Wait{})
			return err
		}
		if err := errors.Join(put(other, queue), reserve()); err != nil { // so that there is a connection
			t.Fatal(err)
		}
		tr.network.Mute(leader.name)
		calls := map[string]chan error{}
		for what, call := range map[string]func() error{
			"put": func() error { return put(other, queue) }, "reserve": reserve, "read": func() error {
				err := query(t.Context(), other, queue)
				if errors.Is(err, node.ErrNoLeader) { // an election may take longer than a call waits
					err = query(t.Context(), other, queue)
				}
				return err
			},
		} {
			ended := make(chan error, 1)
			calls[what] = ended
			go func() { ended <- call() }()
		}
		await(t, "another leader", func() bool {
			id, err := other.node.Leader(shard)
			return err == nil && id != "" && id != leader.serverID()
		})
		elected := time.Now()
		for what, ended := range calls {
			err := <-ended
			if took := time.Since(elected); took > leftAfter+leftWithin || (what == "read") != (err == nil) || err != nil &&
				!errors.Is(err, node.ErrUnknownOutcome) {
				t.Errorf("%s: %v after there was another leader: %v", what, took, err)
			}
		}
		if err := errors.Join(put(other, queue), reserve()); err != nil {
			t.Errorf("repeated: %v", err)
		}
	})
}

// TestPollsBesideALeaderThatStandsStill: a poll over several shards is kept from the others no
// longer than for a moment, and takes its turn at the next leader.
func TestPollsBesideALeaderThatStandsStill(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		tr := newTrio(t, dir)
		const queue = "orders"
		shard := node.ShardOf(queue, 0, testShards)
		leader, other := tr.leader(shard)
		router := other.cluster.Router()
		offers := func() error {
			_, err := router.Offers(t.Context(), shard, []string{queue})
			return err
		}
		lockRequest := func() error {
			_, end, err := router.LockRequest(t.Context(), shard, "request", time.Hour)
			if err == nil {
				end()
			}
			return err
		}
		if err := errors.Join(offers(), lockRequest()); err != nil { // so that there is a connection
			t.Fatal(err)
		}
		tr.network.Mute(leader.name)
		began, ended := time.Now(), make(chan error, 1)
		go func() { ended <- lockRequest() }()
		if err := offers(); err == nil || time.Since(began) > 500*time.Millisecond {
			t.Errorf("after %v it is known whether it offers something: %v", time.Since(began), err)
		}
		await(t, "another leader", func() bool {
			id, err := other.node.Leader(shard)
			return err == nil && id != "" && id != leader.serverID()
		})
		elected := time.Now()
		err := <-ended
		// an election may take longer than a call waits
		if errors.Is(err, node.ErrNoLeader) && elected.Sub(began) > routing.LeaderWait-leftAfter {
			err = lockRequest()
		}
		if took := time.Since(elected); err != nil || took > leftAfter+leftWithin {
			t.Errorf("%v after there was another leader: %v", took, err)
		}
		if err := offers(); err != nil {
			t.Errorf("asked again: %v", err)
		}
	})
}
