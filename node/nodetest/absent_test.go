package nodetest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
)

// foundWithin is how soon a member that was away, for however long, has what was logged meanwhile.
const foundWithin = time.Second

// A follower that was away is sent entries soon after its return, and not when Raft, which tries
// ever more seldom, comes to try again.
func TestReturningFollowerIsServedSoon(t *testing.T) {
	for name, snapshot := range map[string]bool{"entries": false, "a snapshot": true} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				const shards = 4
				c := New(t, Options{Dir: dir, Shards: shards, Configure: func(cfg *node.Config) { cfg.TrailingBytes = 1 }})
				away := c.Members()[2]
				for i, absence := range []time.Duration{time.Second, 25 * time.Second, time.Minute, 5 * time.Minute} {
					c.Stop(away)
					pass(absence / 2)
					for shard := range uint32(shards) {
						logMuch(t, c, shard, 100, snapshot)
					}
					pass(absence/2 + time.Duration(i)*100*time.Millisecond)
					c.Start(away)
					back := time.Now()
					for shard := range uint32(shards) {
						leader := c.Leader(shard)
						c.Await("the one that was away has caught up", func() bool { return away.index(shard) == leader.index(shard) })
						if took := time.Since(back); took > foundWithin {
							t.Errorf("after an absence of %v it has the entries of shard %d after %v", absence, shard, took)
						}
					}
				}
			})
		})
	}
}

// logMuch has a shard log a number of entries, and cut its log behind a snapshot if need be.
func logMuch(t *testing.T, c *Cluster, shard uint32, entries int, snapshot bool) {
	t.Helper()
	leader := c.Leader(shard)
	for range entries {
		if _, err := leader.Node.Do(t.Context(), shard, &fsm.Request{Commands: []fsm.Command{put("x")}}); err != nil {
			t.Fatal(err)
		}
	}
	if !snapshot {
		return
	}
	if err := leader.Node.Snapshot(t.Context(), shard); err != nil {
		t.Fatal(err)
	}
}

// A node stops at once although a follower is away: Raft waits for what goes on trying to reach it.
func TestStopDoesNotWaitForAnAbsentFollower(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := New(t, Options{Dir: dir})
		leader := c.Leader(0)
		c.Stop(c.Followers(0)[0])
		do(t, leader, put("it lacks"))
		pass(time.Minute)
		began := time.Now()
		c.Stop(leader)
		if took := time.Since(began); took > 0 { // of virtual time
			t.Errorf("it took %v", took)
		}
	})
}
