package nodetest

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestIdleGroupSaysLittle limits the messages that an idle group sends. They are most of what an
// idle node does.
func TestIdleGroupSaysLittle(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := New(t, Options{Dir: dir})
		leader := c.Leader(0)
		c.Converge(0)
		time.Sleep(10 * time.Second) // new connections, and what the first entries brought with them
		const minute, followers, ends = 60, 2, 2
		const beats, commits, clocks = minute * 1000 / 140, minute * 1000 / 500, minute / 5
		before := c.network.writes.Load()
		time.Sleep(minute * time.Second)
		if said, most := c.network.writes.Load()-before, int64(ends*followers*(beats+commits+clocks)); said > most {
			t.Errorf("%d messages in a minute, want %d at most", said, most)
		}
		if c.Leader(0) != leader {
			t.Error("it elected another leader meanwhile")
		}
	})
}
