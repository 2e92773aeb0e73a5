package cluster

import (
	"testing"
	"testing/synctest"
)

// TestLeaderIsNoHintForItself: other nodes go on naming this node after it gave the leadership up.
// Kept as a hint, that would never be dropped, since a node drops a hint when a call there fails:
// calls would wait for a leader in vain once the replica has left this node.
func TestLeaderIsNoHintForItself(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		const shard = 0
		leader, other := newTrio(t, dir).leader(shard)
		if hint := other.cluster.Router().AskReplicas(t.Context(), shard); hint != leader.cluster.members.record.ServerID {
			t.Errorf("%s is told that %q leads, want %s", other.name, hint, leader.name)
		}
		if hint := leader.cluster.Router().AskReplicas(t.Context(), shard); hint != "" {
			t.Errorf("the leader is told that %q leads, want none", hint)
		}
	})
}
