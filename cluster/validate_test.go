package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/belfrydb/belfry/cluster/catalog"
	"github.com/belfrydb/belfry/cluster/placement"
	"github.com/belfrydb/belfry/cluster/routing"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
)

// TestEntriesThatTheLeaderRefuses come from another node, which would end all nodes with them, now
// and at each start.
func TestEntriesThatTheLeaderRefuses(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		_, all := threeMembers(t, dir)
		leader, others := leads(t, catalog.GroupName, all)
		for _, entry := range []string{
			`{"format":1}`, `{"format":1,"explode":{}}`, fmt.Sprintf(`{"format":%d,"delete":{"name":"q"}}`, fsm.LatestFormat+1),
			`{"format":1,"delete":{"name":"q"},"forget":{"name":"q"}}`, `{"format":1,"create":{"name":"q","partitions":4}}`,
		} {
			if err := logEntry(others[0], leader, entry); node.OutcomeOf(err) != node.NotApplied {
				t.Errorf("%s: the leader answers %v", entry, err)
			}
		}
		if _, err := others[0].cluster.CreateQueue(t.Context(), "wide", testShards+1,
			fsm.Settings{}); node.OutcomeOf(err) != node.NotApplied {
			t.Errorf("creating a queue that is too wide gives %v", err)
		}
		for _, m := range all {
			m.stop()
			m.start(nil)
		}
		gossip(all...)
		await(t, "the cluster to be back", func() bool { return settled(all[0].cluster, 3, all...) })
	})
}

// TestRemovedNodesMayOnlyJoin: a removed node calls, and is refused. When it asks to join it is
// told that it was removed.
func TestRemovedNodesMayOnlyJoin(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		_, all := threeMembers(t, dir)
		leader, others := leads(t, catalog.GroupName, all)
		removed := others[0]
		self := removed.serverID()
		// although it answers
		if _, err := leader.cluster.RemoveNode(t.Context(), catalog.Departure{ServerID: self}); err != nil {
			t.Fatal(err)
		}
		if _, err := routing.Call[placement.Report](t.Context(), removed.cluster.peers, leader.serverID(), pathReport,
			struct{}{}); !errors.Is(err, node.ErrNoLeader) {
			t.Errorf("a removed node's call gives %v", err)
		}
		record, err := json.Marshal(removed.cluster.members.record)
		if err != nil {
			t.Fatal(err)
		}
		join := fmt.Sprintf(`{"format":1,"join":%s}`, record)
		if err := logEntry(removed, leader, join); !errors.Is(err, node.ErrNoLeader) {
			t.Errorf("a removed node's own admission gives %v", err)
		}
		if left := removed.awaitLeft(); left.ServerID != self || leader.cluster.MayCall(self) {
			t.Errorf("it is told %v", left)
		}
	})
}
