package placement

import (
	"slices"
	"testing"
	"time"

	"github.com/belfrydb/belfry/cluster/catalog"
)

// TestPlanPrefersLeadersThatAllReach: of three nodes two do not reach each other, and the third
// leads all until they do again.
func TestPlanPrefersLeadersThatAllReach(t *testing.T) {
	nodes := nodesNamed(3)
	all := []string{nodes[0].server, nodes[1].server, nodes[2].server}
	w := world{nodes: nodes, factor: 3}
	for number := range uint32(6) {
		w.shards = append(w.shards, worldShard{shard: number, leader: all[number%3], voters: all, caughtUp: all})
	}
	w.shards[5].caughtUp = all[1:] // the third one lacks something here
	w.nodes[1].cutOff, w.nodes[2].cutOff = 1, 1
	carryOut := func() (steps int) {
		for _, st := range plan(w) {
			if st.action != Transfer {
				t.Fatalf("%+v", st)
			}
			w.shards[st.shard].leader = st.server
			steps++
		}
		return steps
	}
	leads := func() (n []int) {
		for _, id := range all {
			n = append(n, newPlanner(w).leads[id])
		}
		return n
	}
	if n := carryOut(); n != 3 {
		t.Errorf("%d leaderships moved at once, want 3", n)
	}
	if got := leads(); !slices.Equal(got, []int{5, 0, 1}) {
		t.Errorf("the nodes lead %v shards", got)
	}
	if n := carryOut(); n != 0 {
		t.Errorf("%d more moved", n)
	}
	w.shards[5].caughtUp = all
	carryOut()
	if got := leads(); !slices.Equal(got, []int{6, 0, 0}) {
		t.Errorf("once it has everything they lead %v", got)
	}
	w.nodes[1].cutOff, w.nodes[2].cutOff = 0, 0
	for range 10 {
		carryOut()
	}
	if got := leads(); !slices.Equal(got, []int{2, 2, 2}) {
		t.Errorf("once they reach each other they lead %v", got)
	}
}

// TestPlanKeepsLeadersWithoutABetterLink: of four nodes each is cut off from one; also evenness
// goes on there, and comes to an end.
func TestPlanKeepsLeadersWithoutABetterLink(t *testing.T) {
	nodes := nodesNamed(4)
	for i := range nodes {
		nodes[i].cutOff = 1
	}
	all := []string{nodes[0].server, nodes[1].server, nodes[2].server}
	w := world{nodes: nodes[:3], factor: 3}
	for number := range uint32(3) {
		w.shards = append(w.shards, worldShard{shard: number, leader: all[0], voters: all, caughtUp: all})
	}
	moved := 0
	for range 10 {
		for _, st := range plan(w) {
			w.shards[st.shard].leader = st.server
			moved++
		}
	}
	if moved != 2 {
		t.Errorf("%d leaderships moved, want 2", moved)
	}
}

// TestPlacerAndAPartialPartition: leaders move to the node that all reach, and a link that comes
// and goes moves nothing.
func TestPlacerAndAPartialPartition(t *testing.T) {
	c := newFakeCluster(3, "a")
	c.add("b", "c")
	p := c.placer()
	c.rounds(t, p, 60)
	c.want(t, 3)
	led := func() (n int) {
		for name, m := range c.members {
			if name != catalog.GroupName && m.leader == "a" {
				n++
			}
		}
		return n
	}
	c.members[catalog.ShardGroup(0)].leader = "b"
	c.unreached = map[string][]string{"b": {"c"}, "c": {"b"}}
	c.rounds(t, p, 8)
	if n := led(); n != 3 {
		t.Errorf("the node that all reach leads %d shards of 3", n)
	}
	for range 5 { // it comes and goes
		c.unreached = nil
		c.rounds(t, p, 5)
		c.unreached = map[string][]string{"b": {"c"}}
		c.rounds(t, p, 1)
		if n := led(); n != 3 {
			t.Fatalf("the node that all reach leads %d shards of 3", n)
		}
	}
	c.unreached = nil
	c.rounds(t, p, 30)
	if n := led(); n != 1 {
		t.Errorf("at last it leads %d", n)
	}
}

// TestCutsAreNotedLate: two rounds in a row must say that two nodes are cut off from each other,
// and none counts a node whose process has just started: the others find it again one after the
// other.
func TestCutsAreNotedLate(t *testing.T) {
	c := newFakeCluster(1, "a")
	for _, name := range []string{"b", "c"} {
		c.nodes_ = append(c.nodes_, catalog.Node{Name: name, ServerID: name})
	}
	p := c.placer()
	look := func(what string, cut bool) {
		t.Helper()
		for _, n := range p.world(p.ask(t.Context())).nodes {
			if got := n.cutOff > 0; got != (cut && n.server != "a") {
				t.Errorf("%s: %s is cut off from %d", what, n.server, n.cutOff)
			}
		}
		c.now = c.now.Add(placeInterval)
	}
	for range steadyRounds + 1 {
		look("all reach each other", false)
	}
	cut := map[string][]string{"c": {"b"}}
	c.unreached = cut
	look("it was said once", false)
	c.unreached = nil
	look("it is over", false)
	c.unreached = cut
	look("it was said once more", false)
	look("it was said twice", true)
	for range int(cutFor/placeInterval) - 1 {
		c.unreached = nil
		look("it is over for a moment", true)
	}
	look("it is over for long", false)
	c.unreached, c.processes["b"] = cut, "another"
	for range steadyRounds {
		look("one of them has just started", false)
	}
}

// TestVotersThatAreBehind: a voter that gets nothing from its leader is named after some looks,
// until it has all.
func TestVotersThatAreBehind(t *testing.T) {
	c := newFakeCluster(1, "a")
	p := c.placer()
	all := []string{"a", "b", "c"}
	group := func(applied uint64) []GroupReport {
		return []GroupReport{{Group: catalog.ShardGroup(0), Applied: applied, Commit: applied}}
	}
	reports := map[string]*Report{"a": {Groups: group(585)}, "b": {Groups: group(585)}, "c": {Groups: group(92)}}
	look := func(level ...string) []Behind {
		c.now = c.now.Add(placeInterval)
		return p.noteBehind(&world{shards: []worldShard{{leader: "a", voters: all, caughtUp: level}}}, &worldShard{}, reports)
	}
	began := c.now.Add(placeInterval)
	for i := range 10 {
		got := look("a", "b")
		if told := len(got) > 0; told != (time.Duration(i)*placeInterval >= behindAfter) {
			t.Errorf("look %d: %+v", i, got)
		} else if want := (Behind{"c", catalog.ShardGroup(0), 92, 585, began}); told && got[0] != want {
			t.Errorf("look %d: %+v, want %+v", i, got, want)
		}
	}
	if got := look(all...); len(got) > 0 {
		t.Errorf("when it has all: %+v", got)
	}
	if got := look("a", "b"); len(got) > 0 {
		t.Errorf("at the next look: %+v", got)
	}
}
