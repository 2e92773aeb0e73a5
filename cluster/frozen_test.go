package cluster

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
)

// TestCallsAtALeaderThatStandsStill: what was sent to it has an unknown outcome soon after the others have another leader, not only when its connections
// are found dead; what reads is answered by the other one.
func TestCallsAtALeaderThatStandsStill(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		tr := newTrio(t, dir)
		const queue = "orders"
		shard := node.ShardOf(queue, 0, testShards)
		leader, other := tr.leader(shard)
		router := other.cluster.Router()
		reserve := func() error {
			_, err := router.Reserve(t.Context(), shard, &fsm.Request{Commands: []fsm.Command{&fsm.Reserve{Queues: []string{queue}, Max: 1}}}, node.Wait{})
			return err
		}
		if err := errors.Join(put(other, queue), reserve()); err != nil { // so that there is a connection
			t.Fatal(err)
		}
		tr.network.mute(leader.name)
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
			if took := time.Since(elected); took > oldLeaderGrace+2*leaderCheckPause || (what == "read") != (err == nil) || err != nil && !errors.Is(err, node.ErrUnknownOutcome) {
				t.Errorf("%s: %v after there was another leader: %v", what, took, err)
			}
		}
		if err := errors.Join(put(other, queue), reserve()); err != nil {
			t.Errorf("repeated: %v", err)
		}
	})
}

// TestCallInDoubt: a node without a replica of a shard asks the others for the leader when a call
// is not answered. Its next calls go there.
func TestCallInDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leads, changes := "a.1", time.Now().Add(10*time.Second)
		r := &Router{leaders: newLeaderCache(func(context.Context, uint32) string {
			if time.Now().After(changes) {
				return "b.2"
			}
			return leads
		})}
		if r.leaders.leader(t.Context(), 1) != leads {
			t.Fatal("nobody is heard of")
		}
		ctx, leave := context.WithTimeout(t.Context(), time.Minute)
		defer leave()
		r.checkLeader(ctx, &forwardedCall{shard: 1, server: leads, cancel: leave, grace: oldLeaderGrace})
		if late := time.Since(changes); late < oldLeaderGrace || late > oldLeaderGrace+2*leaderCheckPause {
			t.Errorf("the call left %v after the change", late)
		}
		if known := r.leaders.known(1); known != "b.2" {
			t.Errorf("calls would go to %q", known)
		}
	})
}

// TestReserveSaysHowLongItCanWaitForTheLeader: without a wait, a node that was elected a moment ago keeps a call no longer than its caller does.
func TestReserveSaysHowLongItCanWaitForTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host, from := newLoneHost(t)
		host.reserve = func(context.Context, node.Wait) (node.Reply, error) { return node.Reply{}, node.ErrNotLeader }
		host.electing = true
		const budget = time.Second / 2
		began := time.Now()
		_, err := from.reserve(t.Context(), forwardedTo{server: "b.2", budget: budget}, aPut(), node.Wait{})
		if took := time.Since(began); !errors.Is(err, node.ErrNotLeader) || took > 2*budget {
			t.Errorf("after %v: %v, want ErrNotLeader within %v", took, err, 2*budget)
		}
	})
}

// TestPollsBesideALeaderThatStandsStill: a poll over several shards is kept from the others no longer than for a moment, and takes its turn at the next leader.
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
		tr.network.mute(leader.name)
		began, ended := time.Now(), make(chan error, 1)
		go func() { ended <- lockRequest() }()
		if err := offers(); err == nil || time.Since(began) > offersWait {
			t.Errorf("after %v it is known whether it offers something: %v", time.Since(began), err)
		}
		await(t, "another leader", func() bool {
			id, err := other.node.Leader(shard)
			return err == nil && id != "" && id != leader.serverID()
		})
		elected := time.Now()
		err := <-ended
		if errors.Is(err, node.ErrNoLeader) && elected.Sub(began) > leaderWait-oldLeaderGrace { // an election may take longer than a call waits
			err = lockRequest()
		}
		if took := time.Since(elected); err != nil || took > oldLeaderGrace+2*leaderCheckPause {
			t.Errorf("%v after there was another leader: %v", took, err)
		}
		if err := offers(); err != nil {
			t.Errorf("asked again: %v", err)
		}
	})
}
