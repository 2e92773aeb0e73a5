package nodetest

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/node/clock"
)

// TestLeaderMeasuresItsFollowers: how far behind they are, when they were heard, and by how much
// their clocks are ahead.
func TestLeaderMeasuresItsFollowers(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := New(t, Options{Dir: dir})
		leader, cut := c.Leader(0), c.Followers(0)[0]
		follower := func() node.FollowerStats {
			for _, f := range leader.Node.Stats().Shards[0].Followers {
				if f.Server == cut.ServerID {
					return f
				}
			}
			return node.FollowerStats{}
		}
		do(t, leader, put("x"))
		c.Await("it has all", func() bool { return follower().Lag == 0 && time.Since(follower().Heard) < time.Second })
		c.Isolate(cut)
		do(t, leader, put("y"))
		do(t, leader, put("z"))
		pass(10 * time.Second)
		if f := follower(); f.Lag != 2 || time.Since(f.Heard) < 9*time.Second {
			t.Errorf("a follower that was cut off 10 s ago is shown as %+v, want two entries behind", f)
		}
		if others := cut.Node.Stats().Shards[0].Followers; len(others) != 0 {
			t.Errorf("a follower tells of %+v", others)
		}
		c.Heal(cut)
		c.Await("it has caught up", func() bool { return follower().Lag == 0 })

		const off = 150 * time.Millisecond // too little to be of consequence
		followers := c.Followers(0)
		for _, f := range followers { // the leader asks until a majority has answered, whichever it is
			f.Clock.Step(off)
		}
		c.Await("the leader sees it", func() bool {
			return slices.ContainsFunc(leader.Node.Stats().Clocks, func(clock clock.PeerOffset) bool {
				return (clock.Ahead - off).Abs() < 10*time.Millisecond
			})
		})
		for _, f := range followers {
			c.Stop(f)
		}
		pass(2 * time.Minute)
		if shown := leader.Node.Stats().Clocks; len(shown) > 0 {
			t.Errorf("%+v are shown of clocks that nobody could ask for two minutes", shown)
		}
	})
}
