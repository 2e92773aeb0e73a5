package placement

import (
	"slices"
	"testing"

	"github.com/belfrydb/belfry/cluster/catalog"
	"github.com/google/go-cmp/cmp"
)

// holds returns the groups in which a node has a replica; of the catalog's, a vote.
func (c *fakeCluster) holds(id string) (groups []string) {
	for name, m := range c.members {
		if slices.Contains(m.voters, id) || name != catalog.GroupName && slices.Contains(m.nonvoters, id) {
			groups = append(groups, name)
		}
	}
	slices.Sort(groups)
	return groups
}

// TestShortLivedNodeGetsNothing: a node that joins for some seconds is given nothing, however
// often it joins, so that nothing is lost with it. A node that stays gets its part.
func TestShortLivedNodeGetsNothing(t *testing.T) {
	for _, first := range [][]string{nil, {"b.1"}, {"b.1", "c.1"}} {
		c := newFakeCluster(6, "a.1")
		c.add(first...)
		p := c.placer()
		c.rounds(t, p, 80)
		c.want(t, 1+len(first))
		c.add("d.1")
		for range 3 {
			c.down["d.1"] = false
			c.rounds(t, p, steadyRounds-1)
			c.down["d.1"] = true
			c.rounds(t, p, 5)
			if held := c.holds("d.1"); len(held) > 0 {
				t.Errorf("a node that joined %d nodes was given %v", 1+len(first), held)
			}
		}
		c.want(t, 1+len(first))
		c.down["d.1"] = false
		c.rounds(t, p, 80)
		c.want(t, min(3, 2+len(first)))
		if held := c.holds("d.1"); len(held) < 2 || held[0] != catalog.GroupName {
			t.Errorf("a node that joined %d nodes and stayed has %v", 1+len(first), held)
		}
	}
}

// TestPlanGivesUpAFollowerThatIsGone: a replica without a vote whose node is gone does not delay
// its shard for the whole grace period.
func TestPlanGivesUpAFollowerThatIsGone(t *testing.T) {
	three := []string{"n1.1", "n2.1", "n3.1"}
	for _, test := range []struct {
		name   string
		change func(fourth *worldNode)
		want   []step
	}{
		{"silent for a moment", func(n *worldNode) { n.silent = true }, nil},
		{"gone, and there is no other", func(n *worldNode) { n.silent, n.fresh = true, true }, nil},
		{"back, and fresh", func(n *worldNode) { n.fresh = true }, nil},
		{"back, and steady", func(*worldNode) {}, []step{{0, Promote, "n4.1"}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := world{nodes: nodesNamed(4), factor: 3,
				shards: []worldShard{{leader: "n1.1", voters: three, nonvoters: []string{"n4.1"},
					caughtUp: append(slices.Clone(three), "n4.1")}}}
			w.nodes[1].draining = true
			test.change(&w.nodes[3])
			if w.nodes[3].silent {
				w.shards[0].caughtUp = three
			}
			if diff := cmp.Diff(test.want, plan(w), cmp.AllowUnexported(step{})); diff != "" {
				t.Errorf("planned (-want +got):\n%s", diff)
			}
		})
	}
}

// TestReplacementMustStay: a node under the name of a silent one is its replacement when it has
// stayed for a while. Until then no other node is given the places.
func TestReplacementMustStay(t *testing.T) {
	c := newFakeCluster(6, "a.1")
	c.add("b.1", "c.1", "d.1")
	p := c.placer()
	c.rounds(t, p, 100)
	before := c.Placements()
	c.down["b.1"] = true
	c.rounds(t, p, steadyRounds-2)
	c.nodes_ = append(c.nodes_, catalog.Node{Name: "b.1", ServerID: "b.2"}) // a name as add gives it
	c.rounds(t, p, steadyRounds-1)
	if held := c.holds("b.2"); len(held) > 0 {
		t.Errorf("a new incarnation has %v at once", held)
	}
	byShard := func(a, b catalog.Placement) int { return int(a.Shard) - int(b.Shard) }
	slices.SortFunc(before, byShard)
	after := c.Placements()
	slices.SortFunc(after, byShard)
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("meanwhile placements changed:\n%s", diff)
	}
	c.rounds(t, p, 80)
	c.want(t, 3, "b.1")
}

// TestWhatAChangeReliesOn: a vote is given only to a node that answers. A vote is taken only while
// enough other voters answer: as many as are wanted for a sound voter, most of those that remain
// for another one.
func TestWhatAChangeReliesOn(t *testing.T) {
	s := &worldShard{voters: []string{"a", "b", "c", "d"}, nonvoters: []string{"e"},
		caughtUp: []string{"a", "b", "d", "e"}, members: 7}
	for _, test := range []struct {
		step step
		want []string
		need int
	}{
		{step{0, AddNonvoter, "f"}, nil, 0},
		{step{0, Promote, "e"}, []string{"e"}, 0},
		{step{0, Remove, "a"}, []string{"b", "d"}, 3},
		{step{0, Remove, "c"}, []string{"a", "b", "d"}, 2},
		{step{0, Remove, "e"}, nil, 0},
		{step{0, Demote, "b"}, []string{"a", "d"}, 3},
		{step{0, Transfer, "b"}, nil, 0},
	} {
		want := Change{Group: "shard-0", Action: test.step.action, ServerID: test.step.server, After: 7, Alive: test.want,
			Need: test.need}
		if diff := cmp.Diff(want, s.change("shard-0", test.step, 3)); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", test.step, diff)
		}
	}
}

// TestNodesThatMissALookNowAndThen: a busy machine sometimes answers late. A cluster forms on it
// all the same.
func TestNodesThatMissALookNowAndThen(t *testing.T) {
	c := newFakeCluster(1, "a.1")
	c.add("b.1", "c.1")
	p := c.placer()
	for i := range 100 {
		c.down["b.1"] = i%5 == 0
		c.down["c.1"] = i%5 == 2
		c.rounds(t, p, 1)
	}
	c.down = map[string]bool{}
	c.want(t, 3)
}

// TestRejoiningNodeDelaysNoOther: a node that joins and goes again does not keep its shard from a
// node that stays.
func TestRejoiningNodeDelaysNoOther(t *testing.T) {
	c := newFakeCluster(1, "a.1")
	c.add("b.1", "c.1")
	p := c.placer()
	c.rounds(t, p, 60)
	c.down["b.1"] = true
	c.add("d.1")
	for len(c.members[catalog.ShardGroup(0)].nonvoters) == 0 {
		c.rounds(t, p, 1)
	}
	c.add("e.1")
	for range 30 {
		c.down["d.1"] = true
		c.rounds(t, p, 4)
		c.down["d.1"] = false
		c.rounds(t, p, 4)
	}
	if got := c.members[catalog.ShardGroup(0)]; !slices.Contains(got.voters, "e.1") || slices.Contains(got.voters, "b.1") {
		t.Errorf("b is lost and e stays, but the members are %+v", *got)
	}
}

// TestLostNewNodeDelaysNoOther: a new node is lost before the vote for which it got a replica. Its
// shard goes to a live node without a grace period.
func TestLostNewNodeDelaysNoOther(t *testing.T) {
	c := newFakeCluster(1, "a.1")
	c.add("b.1", "c.1")
	p := c.placer()
	c.rounds(t, p, 60)
	c.down["b.1"] = true
	c.add("d.1")
	for len(c.members[catalog.ShardGroup(0)].nonvoters) == 0 {
		c.rounds(t, p, 1)
	}
	c.down["d.1"] = true
	c.rounds(t, p, 2)
	if got := c.members[catalog.ShardGroup(0)]; !slices.Contains(got.nonvoters, "d.1") {
		t.Errorf("d is silent for a moment, and the members are %+v", *got)
	}
	c.add("e.1")
	c.rounds(t, p, 30)
	if got := c.members[catalog.ShardGroup(0)]; !slices.Contains(got.voters, "e.1") || slices.Contains(got.voters, "b.1") {
		t.Errorf("b and d are gone and e is there, but the members are %+v", *got)
	}
}

// steadyRounds is how many rounds a node must answer before placement counts on it.
const steadyRounds = int(DefaultSteadyAfter / placeInterval)
