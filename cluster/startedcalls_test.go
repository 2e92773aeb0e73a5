package cluster

import (
	"testing"
	"testing/synctest"

	"github.com/belfrydb/belfry/cluster/catalog"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
)

// TestStartedCallsFollowTheLeader: only the leader starts calls, and those that it has not logged when
// it hands over are for the next one.
func TestStartedCallsFollowTheLeader(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		tr := newTrio(t, dir)
		const queue, rounds = "orders", 20
		shard := node.ShardOf(queue, 0, testShards)
		request := func() *fsm.Request {
			return &fsm.Request{Commands: []fsm.Command{&fsm.Put{Queue: queue, Partitions: 1}}}
		}
		for range rounds {
			leader, other := tr.leader(shard)
			if _, ok := other.cluster.Router().Start(t.Context(), shard, request()); ok {
				t.Fatal("a node that does not lead has started a call")
			}
			handed := make(chan error, 1)
			go func() {
				handed <- leader.node.TransferLeader(t.Context(), catalog.ShardGroup(shard), other.serverID())
			}()
			for range 10 {
				finish, ok := leader.cluster.Router().Start(t.Context(), shard, request())
				if !ok { // it leads no more
					continue
				}
				reply, again, err := finish()
				if again {
					reply, err = leader.cluster.Router().Do(t.Context(), shard, request())
				}
				if err != nil || reply.Results[0].Code != fsm.OK {
					t.Errorf("a put that was started: %+v, %v", reply, err)
				}
			}
			if err := <-handed; err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
	})
}
