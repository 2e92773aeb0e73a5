package placement

import (
	"slices"
	"testing"
)

// TestPlanAndConditions: a node with a condition gets neither leaderships nor replicas while
// another node can have them. It keeps what it has, and is better than no leader for a node that
// must go.
func TestPlanAndConditions(t *testing.T) {
	nodes := nodesNamed(4)
	all := []string{nodes[0].server, nodes[1].server, nodes[2].server}
	shard := func(number uint32, leader string) worldShard {
		return worldShard{shard: number, leader: leader, voters: all, caughtUp: all}
	}
	w := world{nodes: nodes, factor: 3}
	for number := range uint32(6) {
		w.shards = append(w.shards, shard(number, all[0]))
	}
	w.nodes[1].impaired, w.nodes[3].impaired = true, true
	for range 10 {
		for _, st := range plan(w) {
			if st.action != Transfer || st.server != all[2] {
				t.Errorf("%+v", st)
				continue
			}
			w.shards[st.shard].leader = st.server
		}
	}
	if n := newPlanner(w).leads[all[2]]; n != 3 {
		t.Errorf("the node without a condition leads %d shards of 6", n)
	}
	w.nodes[2].impaired = true
	for i := range w.shards {
		w.shards[i].leader = all[0]
	}
	if steps := plan(w); len(steps) > 0 {
		t.Errorf("leaderships go to nodes with conditions: %+v", steps)
	}
	w.nodes[0].draining, w.nodes[2].silent, w.nodes[2].leaving = true, true, true
	for i := range w.shards {
		w.shards[i].leader = all[0]
	}
	if steps := plan(w); len(steps) == 0 || !slices.ContainsFunc(steps, func(st step) bool {
		return st.action == Transfer && st.server == all[1]
	}) {
		t.Errorf("the only voter left beside one that drains, which has a condition, gets nothing: %+v", steps)
	}
}
