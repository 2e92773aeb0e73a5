package cluster

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/cluster/catalog"
	"github.com/belfrydb/belfry/cluster/placement"
	"github.com/belfrydb/belfry/cluster/routing"
	"github.com/belfrydb/belfry/cluster/routing/routingtest"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node/clock"
)

func TestClocksWithoutPeers(t *testing.T) {
	if _, err := NewClocks().ReadClock(t.Context(), "n2.1"); !errors.Is(err, errNoCalls) {
		t.Errorf("the error is %v", err)
	}
	var none *Clocks
	none.setPeers(nil) // a node without peers has no Clocks
}

// aheadClock is a node's wall clock that a test sets back to true time.
type aheadClock struct {
	clock.Source
	ahead time.Duration
}

func (c aheadClock) Wall() fsm.Time { return c.Source.Wall().Add(c.ahead) }

// Nodes with right clocks join one whose clock is wrong: they lead, every node says how far shard
// time is ahead, and a reset asked of any of them brings it back.
func TestResetClockThroughAnyNode(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		const wrong = 1000 * time.Hour
		network := routingtest.NewNetwork()
		a := &member{t: t, name: "a", dir: dir + "/a", network: network, clock: aheadClock{clock.System(), wrong}}
		a.start(nil)
		t.Cleanup(a.stop)
		b, c := newMember(t, network, dir, "b", a), newMember(t, network, dir, "c", a)
		leaders := func() map[string]string {
			led := map[string]string{}
			all, _ := c.cluster.Members(t.Context())
			for _, m := range all {
				for _, g := range reportOf(m).Groups {
					if g.Serving && g.Group != catalog.GroupName {
						led[g.Group] = m.ServerID
					}
				}
			}
			return led
		}
		await(t, "nodes with right clocks to lead every shard", func() bool {
			led := leaders()
			for _, server := range led {
				if server == a.cluster.members.record.ServerID {
					return false
				}
			}
			return len(led) == testShards && settledVoters(c.cluster, 3)
		})
		reading, err := routing.Call[clock.Reading](t.Context(), b.cluster.peers, a.cluster.members.record.ServerID,
			pathClock, struct{}{})
		if err != nil || time.Duration(reading.Wall)-time.Duration(time.Now().UnixNano()) < wrong {
			t.Errorf("the node whose clock is wrong says %+v, %v", reading, err)
		}
		if n := alarms(c, wrong-time.Hour); n != testShards {
			t.Errorf("%d shards are reported to be ahead, want %d", n, testShards)
		}
		for shard := range uint32(testShards) {
			await(t, "the reset", func() bool {
				_, err := a.cluster.ResetClock(context.WithoutCancel(t.Context()), leaders()[catalog.ShardGroup(shard)], shard)
				return err == nil
			})
		}
		if n := alarms(c, 0); n != 0 {
			t.Errorf("after the reset %d shards are reported to be ahead", n)
		}
	})
}

// reportOf returns what a member said, an empty report if it did not answer.
func reportOf(m MemberStatus) *placement.Report {
	if m.Report == nil {
		return &placement.Report{}
	}
	return m.Report
}

// settledVoters reports whether every shard is placed on so many servers.
func settledVoters(c *Cluster, voters int) bool {
	for _, p := range c.Placements() {
		if len(p.Servers) != voters {
			return false
		}
	}
	return true
}

// alarms counts, through a member, the shards whose leader says that their time is ahead by more
// than that.
func alarms(of *member, by time.Duration) (n int) {
	all, _ := of.cluster.Members(of.t.Context())
	for _, m := range all {
		for _, g := range reportOf(m).Groups {
			if g.Serving && g.ClockAhead > by {
				n++
			}
		}
	}
	return n
}

// TestClockOffset: a node compares itself with the median of all clocks, its own among them.
func TestClockOffset(t *testing.T) {
	peers := func(ahead ...time.Duration) (all []clock.PeerOffset) {
		for _, d := range ahead {
			all = append(all, clock.PeerOffset{Ahead: d})
		}
		return all
	}
	for name, tc := range map[string]struct {
		others []clock.PeerOffset
		want   time.Duration
	}{
		"both ahead":    {peers(4, 8), -4},
		"one each side": {peers(-6, 9), 0},
		"both behind":   {peers(-6, -2), 2},
		"one other":     {peers(10), -5},
		"four others":   {peers(1, 2, 3, 4), -2},
	} {
		if got := clockOffset(tc.others); got == nil || *got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
	if got := clockOffset(nil); got != nil {
		t.Errorf("without others: %v", *got)
	}
}
