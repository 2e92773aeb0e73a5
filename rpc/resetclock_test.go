package rpc

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/wire"
)

// TestClusterThatIsAhead: what a shard's leader says of its time is a problem, and what a follower
// says is not.
func TestClusterThatIsAhead(t *testing.T) {
	f := healthyCluster()
	f.members[0].Groups[1].ClockAhead, f.members[0].Groups[1].ClockAheadBy = true, 90*time.Second
	f.members[1].Groups[2].ClockAhead, f.members[1].Groups[2].ClockAheadBy = true, time.Hour
	_, a := serveCluster(t, f).bothClients()
	got, err := a.GetCluster(t.Context(), &belfryv1.GetClusterRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Problems) != 1 || !strings.HasPrefix(got.Problems[0], "CLOCK_AHEAD: the time of shard 1 is ahead") ||
		!strings.Contains(got.Problems[0], "1m30s") {
		t.Errorf("the problems are %q", got.Problems)
	}
	for i, want := range []time.Duration{0, 90 * time.Second, 0} {
		if ahead := got.Shards[i].ClockAhead.AsDuration(); ahead != want {
			t.Errorf("shard %d is %v ahead, want %v", i, ahead, want)
		}
	}
}

func TestResetClock(t *testing.T) {
	f := healthyCluster()
	f.resets = map[uint32]node.ClockReset{
		0: {From: 5e9, To: 5e9}, 1: {From: fsm.Time(4e18), To: 5e9}, 2: {From: 6e9, To: 6e9},
	}
	_, a := serveCluster(t, f).bothClients()
	got, err := a.ResetClock(t.Context(), &belfryv1.ResetClockRequest{})
	if err != nil {
		t.Fatal(err)
	}
	want := &belfryv1.ResetClockResponse{Shards: []*belfryv1.ShardClock{
		{
			Shard: 0, From: wire.ExactTime(5e9), To: wire.ExactTime(5e9),
		}, {
			Shard: 1, From: wire.ExactTime(4e18), To: wire.ExactTime(5e9),
		}, {Shard: 2, From: wire.ExactTime(6e9), To: wire.ExactTime(6e9)},
	}}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

// TestResetClockDoesWhatItCan: a shard without a leader is told to the caller, and keeps no other
// from being moved back.
func TestResetClockDoesWhatItCan(t *testing.T) {
	f := healthyCluster()
	for i := range f.members {
		f.members[i].Groups[0].Serving = false
	}
	_, a := serveCluster(t, f).bothClients()
	_, err := a.ResetClock(t.Context(), &belfryv1.ResetClockRequest{})
	if got := reasonOf(t, err); got != belfryv1.Reason_REASON_NO_LEADER {
		t.Errorf("the reason is %v", got)
	}
	if want := []string{"reset the clock of 1 at " + serverID(1),
		"reset the clock of 2 at " + serverID(1)}; !slices.Equal(f.asked, want) {
		t.Errorf("asked was %q", f.asked)
	}
	f.fail = node.ErrClockAhead
	_, err = a.ResetClock(t.Context(), &belfryv1.ResetClockRequest{})
	if got := reasonOf(t, err); got != belfryv1.Reason_REASON_CLOCK_AHEAD {
		t.Errorf("the reason is %v", got)
	}
	_, err = a.ResetClock(t.Context(), &belfryv1.ResetClockRequest{RequestId: strings.Repeat("x", 65)})
	if got := reasonOf(t, err); got != belfryv1.Reason_REASON_TOO_LARGE {
		t.Errorf("the reason is %v", got)
	}
}
