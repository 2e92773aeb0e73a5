package nodetest

import (
	"testing"
	"testing/synctest"

	"github.com/belfrydb/belfry/node"
)

// TestLeaderThatIsRemovedGoesOn: the group of a leader that is no member any more does not end, as
// the library would have it: its process has other groups, and this one may come back.
func TestLeaderThatIsRemovedGoesOn(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := New(t, Options{Dir: dir})
		gone := c.Leader(0)
		if err := gone.Node.RemoveServer(t.Context(), "shard-0", gone.ServerID, 0); err != nil {
			t.Fatal(err)
		}
		next := c.LeaderExcept(0, gone)
		if role := gone.status(0).Role; role == node.Stopped {
			t.Errorf("the group of the removed leader is %v", role)
		}
		if err := next.Node.AddNonvoter(t.Context(), "shard-0", gone.ServerID, 0); err != nil {
			t.Fatal(err)
		}
		c.Converge(0)
	})
}
