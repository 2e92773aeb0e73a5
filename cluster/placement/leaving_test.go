package placement

import (
	"testing"
)

// TestPlanGivesNothingToWhoLeaves: a node that is about to stop gets neither leaderships nor
// replicas, and keeps those that it has.
func TestPlanGivesNothingToWhoLeaves(t *testing.T) {
	nodes := nodesNamed(4)
	all := []string{nodes[0].server, nodes[1].server, nodes[2].server}
	shard := func(number uint32) worldShard {
		return worldShard{shard: number, leader: all[0], voters: all, caughtUp: all}
	}
	w := world{nodes: nodes, shards: []worldShard{shard(0), shard(1), shard(2)}, factor: 3}
	for _, leaving := range []int{1, 3} {
		w.nodes[leaving].leaving = true
	}
	for round := range 10 {
		steps := plan(w)
		for _, st := range steps {
			if st.server == nodes[1].server || st.server == nodes[3].server {
				t.Errorf("round %d: %+v", round, st)
			}
			if st.action == Transfer {
				w.shards[st.shard].leader = st.server
			}
		}
	}
	if leader := w.shards[0].leader; leader == all[0] && w.shards[1].leader == all[0] && w.shards[2].leader == all[0] {
		t.Error("no leadership went to the node that stays")
	}
}
