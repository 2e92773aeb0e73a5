package routing

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/node"
)

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

// TestReserveSaysHowLongItCanWaitForTheLeader: without a wait, a node that was elected a moment ago
// keeps a call no longer than its caller does.
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
