package cluster

import (
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/belfrydb/belfry/cluster/catalog"
)

// TestLeaderCompletesWhatAnotherNodeBegan has a node end, or lose its way, right after it had a
// creation and a deletion logged.
func TestLeaderCompletesWhatAnotherNodeBegan(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		_, all := threeMembers(t, dir)
		leader, others := leads(t, catalog.GroupName, all)
		begin := func(entry string) {
			t.Helper()
			entry = fmt.Sprintf(`{"format":%d,%s}`, leader.cluster.Format(), entry)
			if err := logEntry(others[0], leader, entry); err != nil {
				t.Fatal(err)
			}
		}
		begin(fmt.Sprintf(`"create":{"name":"wide","partitions":%d}`, testShards))
		await(t, "the creation to be completed", func() bool {
			q, _ := leader.cluster.Queue("wide")
			return q.State == catalog.Active
		})
		begin(`"delete":{"name":"wide"}`)
		await(t, "the end to be completed", func() bool {
			_, recorded := leader.cluster.Queue("wide")
			return !recorded
		})
	})
}

// logEntry makes the leader of the catalog log an entry for another node.
func logEntry(from, leader *member, entry string) error {
	return from.cluster.peers.Call(
		from.t.Context(), leader.serverID(), "/catalog/propose", json.RawMessage(entry), new(json.RawMessage),
	)
}
