package placement

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfrydb/belfry/cluster/catalog"
	"github.com/google/go-cmp/cmp"
)

// freshest has the last of some nodes answer only since a moment.
func freshest(nodes []worldNode) []worldNode {
	nodes[len(nodes)-1].fresh = true
	return nodes
}

// nodes returns four nodes, the second of which is changed.
func nodes(change func(second *worldNode)) []worldNode {
	all := nodesNamed(4)
	change(&all[1])
	return all
}

func TestExplainShard(t *testing.T) {
	three := []string{"n1.1", "n2.1", "n3.1"}
	lost := func(n *worldNode) { n.silent, n.lost = true, true }
	whole := worldShard{leader: "n1.1", voters: three, caughtUp: three}
	for _, test := range []struct {
		name  string
		nodes []worldNode
		shard worldShard
		want  string
	}{
		{"all is well", nodesNamed(3), whole, ""},
		{"no leader", nodesNamed(3), worldShard{voters: three}, ""},
		{"silent for a moment", nodes(func(n *worldNode) { n.silent = true }), whole, ""},
		{
			"lost", nodes(func(n *worldNode) { n.silent, n.lost = true, true }), whole,
			"n4 gets a replica, to replace n2, which has been silent for longer than the grace period",
		},
		{
			"lost, and no spare", nodes(func(n *worldNode) { n.silent, n.lost = true, true })[:3], whole,
			"2 voters of 3 stay, not n2, which has been silent for longer than the grace period, and no other node can take a " +
				"replica",
		},
		{
			"lost, and the spare has only just come", freshest(nodes(lost)), whole,
			"n4 gets a replica when it has answered for 5s, to replace n2, which has been silent for longer than the grace " +
				"period",
		},
		{
			"lost, and who has only just come has a replica already", freshest(nodes(lost)[:3]), whole,
			"2 voters of 3 stay, not n2, which has been silent for longer than the grace period, and no other node can take a " +
				"replica",
		},
		{
			"draining and on its way", nodes(func(n *worldNode) {
				n.draining = true
			}), worldShard{leader: "n1.1", voters: three, nonvoters: []string{"n4.1"}, caughtUp: three},
			"n4 catches up, to replace n2, which is draining",
		},
		{
			"has caught up", nodes(func(n *worldNode) { n.draining = true }),
			worldShard{
				leader: "n1.1", voters: three, nonvoters: []string{"n4.1"}, caughtUp: append(slices.Clone(three), "n4.1"),
			},
			"n4 has caught up and becomes a voter, to replace n2, which is draining",
		},
		{"leads", nodes(func(n *worldNode) {
			n.draining = true
		}), worldShard{leader: "n2.1", voters: three, caughtUp: three}, "n2 hands over to n1: n2 is draining"},
		{
			"started anew, and has only just come", freshest(nodes(func(n *worldNode) {
				n.nextReplacement, n.silent = "n4.1", true
			})), whole,
			"n2, which started anew without its data, gets a replica when it has answered for 5s and its old incarnation has " +
				"been silent for 10s",
		},
		{
			"is replaced", nodes(func(n *worldNode) { n.replacement, n.silent = "n4.1", true }),
			worldShard{leader: "n1.1", voters: append(slices.Clone(three), "n4.1"), caughtUp: []string{"n1.1", "n3.1", "n4.1"}},
			"n2 leaves: it started anew without its data",
		},
		{"was removed", nodesNamed(4)[1:], worldShard{
			leader: "n2.1", voters: append(slices.Clone(three), "n4.1"), caughtUp: append(slices.Clone(three), "n4.1"),
		}, "n1 leaves: it was removed"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := world{nodes: test.nodes, shards: []worldShard{test.shard}, factor: 3, steadyAfter: DefaultSteadyAfter}
			if got := newPlanner(w).explain(&w.shards[0], plan(w)); got != test.want {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
		})
	}
}

// TestStatusOfARound: the placer reports since when a node is silent, and moves for balance.
func TestStatusOfARound(t *testing.T) {
	c := newFakeCluster(2, "a.1")
	c.add("b.1", "c.1")
	p := c.placer()
	var told *Status
	p.publish = func(s *Status) { told = s }
	c.rounds(t, p, 30)
	if diff := cmp.Diff(&Status{}, told); diff != "" {
		t.Errorf("at rest (-want +got):\n%s", diff)
	}
	c.down["b.1"] = true
	since := c.now.Add(-placeInterval)
	c.rounds(t, p, 5)
	if diff := cmp.Diff([]Silence{{"b.1", since}}, told.Silent); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	c.down["b.1"] = false
	c.rounds(t, p, 1)
	if len(told.Silent) != 0 {
		t.Errorf("after its return: %+v", told.Silent)
	}
	c = newFakeCluster(6, "a.1")
	c.add("b.1", "c.1")
	p = c.placer()
	c.rounds(t, p, 60)
	c.add("d.1")
	p.publish = func(s *Status) {
		if len(s.Moves) > 0 && told == nil {
			told = s
		}
	}
	told = nil
	c.rounds(t, p, int(DefaultSteadyAfter/placeInterval)+1)
	if told == nil || len(told.Moves) != 1 ||
		!strings.Contains(told.Moves[0].Text, "d gets a replica, to replace a node that has more") {
		t.Errorf("with an empty node: %+v", told)
	}
}

// TestStatusOfAReplacedDisk is reported from the first round that sees the new incarnation, and
// until the old one is forgotten.
func TestStatusOfAReplacedDisk(t *testing.T) {
	c := newFakeCluster(2, "a.1")
	c.add("b.1", "c.1")
	p := c.placer()
	var told *Status
	p.publish = func(s *Status) { told = s }
	c.rounds(t, p, 30)
	c.down["b.1"] = true
	c.nodes_ = append(c.nodes_, catalog.Node{Name: "b.1", ServerID: "b.2"})
	texts := map[string]bool{}
	for n := 0; slices.ContainsFunc(c.nodes_, func(n catalog.Node) bool { return n.ServerID == "b.1" }); n++ {
		held := 0
		for i := range uint32(2) {
			if slices.Contains(c.members[catalog.ShardGroup(i)].voters, "b.1") {
				held++
			}
		}
		c.rounds(t, p, 1)
		if len(told.Moves) < held {
			t.Fatalf("round %d tells of %d shards, and %d have the old incarnation: %+v", n, len(told.Moves), held, told)
		}
		for _, m := range told.Moves {
			texts[m.Text] = true
		}
		if n > 60 {
			t.Fatal("the old incarnation is not forgotten")
		}
	}
	for _, want := range []string{
		"b, which started anew without its data, gets a replica when it has answered for 5s and its old incarnation has " +
			"been silent for 10s", "b leaves: it started anew without its data",
	} {
		if !texts[want] {
			t.Errorf("it was never told: %s; but %v", want, texts)
		}
	}
}

func TestStatusIsTheLeaders(t *testing.T) {
	report := func(serving bool, term uint64, status *Status) *Report {
		return &Report{Groups: []GroupReport{{Group: catalog.GroupName, Serving: serving, Term: term}}, Placement: status}
	}
	since := time.Unix(1_800_000_000, 0)
	old, newer := &Status{Silent: []Silence{{"a.1", since}}}, &Status{Silent: []Silence{{"b.1", since}}}
	got := StatusOf(map[string]*Report{
		"a.1": report(true, 3, old), "b.1": report(true, 4, newer), "c.1": report(false, 5, old), "d.1": nil,
	})
	if diff := cmp.Diff(*newer, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff(Status{}, StatusOf(map[string]*Report{"a.1": report(false, 3, old)})); diff != "" {
		t.Errorf("without a leader (-want +got):\n%s", diff)
	}
}

// TestStatusNamesTheLeavingServer, so that a move is omitted once the server has left.
func TestStatusNamesTheLeavingServer(t *testing.T) {
	steps := []step{{0, AddNonvoter, "n4.1"}, {1, Remove, "n3.1"}}
	for shard, want := range []string{"", "n3.1", ""} {
		if got := leaves(uint32(shard), steps); got != want { //nolint:gosec // three shards
			t.Errorf("shard %d: %q, want %q", shard, got, want)
		}
	}
}
