package cluster

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/cluster/catalog"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
)

// TestStoppableWaitWithoutStop returns with the job that it was granted at a leader elsewhere,
// also when that leader's node drains.
func TestStoppableWaitWithoutStop(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		_, all := threeMembers(t, dir)
		shard := node.ShardOf("orders", 0, testShards)
		leader, others := leads(t, catalog.ShardGroup(shard), all)
		reserve := func() <-chan node.Reply {
			got := make(chan node.Reply, 1)
			go func() {
				req := &fsm.Request{Commands: []fsm.Command{&fsm.Reserve{Queues: []string{"orders"}, Max: 1}}}
				reply, err := others[0].cluster.Router().Reserve(t.Context(), shard, req, node.Wait{
					For: time.Hour, Stop: make(chan struct{}),
				})
				if node.OutcomeOf(err) == node.Unknown {
					t.Errorf("the outcome is not known: %v", err)
				}
				got <- reply
			}()
			synctest.Wait()
			return got
		}
		answered := func(what string, got <-chan node.Reply) (reply node.Reply) {
			t.Helper()
			late := time.NewTimer(time.Minute)
			defer late.Stop()
			select {
			case reply = <-got:
			case <-late.C:
				t.Errorf("%s: no answer", what)
			}
			return reply
		}
		granted := reserve()
		if err := put(leader, "orders"); err != nil {
			t.Fatal(err)
		}
		if reply := answered("a job was there", granted); len(reply.Jobs) != 1 {
			t.Errorf("granted %+v", reply)
		}
		drained := reserve()
		leader.stop()
		answered("the leader ended", drained)
	})
}
