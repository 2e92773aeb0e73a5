package placement

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/belfrydb/belfry/cluster/catalog"
)

// catalogSim is a world whose one group is the catalog.
type catalogSim struct{ *sim }

func newCatalogSim(t *testing.T, nodes ...worldNode) *catalogSim {
	return &catalogSim{newSim(t, 1, 3, nodes...)}
}

// runToRest takes steps until there are none, none of which may cost the group its quorum.
func (s *catalogSim) runToRest() {
	s.t.Helper()
	c := &s.shards[0]
	for range 100 {
		s.look()
		st, ok := planCatalog(&s.world, c)
		if !ok {
			return
		}
		if st.action == Promote && len(c.voters) >= catalog.VotersMax {
			s.t.Fatalf("%+v would be one voter more than %d", st, catalog.VotersMax)
		}
		s.apply(st)
		if up := s.sound(c); up <= len(c.voters)/2 {
			s.t.Fatalf("after %+v %d of %v answer", st, up, c.voters)
		}
	}
	s.t.Fatalf("there is no end to it: %+v", *c)
}

// voters fails the test unless exactly these nodes vote, and all recorded ones that answer are
// members.
func (s *catalogSim) voters(want ...string) {
	s.t.Helper()
	c := &s.shards[0]
	if got := slices.Sorted(slices.Values(c.voters)); !slices.Equal(got, want) {
		s.t.Errorf("%v vote, want %v", got, want)
	}
	for i := range s.nodes {
		if n := &s.nodes[i]; !n.silent && !slices.Contains(slices.Concat(c.voters, c.nonvoters), n.server) {
			s.t.Errorf("%s is no member: %+v", n.server, *c)
		}
	}
}

// TestCatalogVoters follows the catalog through growth, a drain, a return, and the loss of a node.
func TestCatalogVoters(t *testing.T) {
	s := newCatalogSim(t, nodesNamed(3)...)
	s.runToRest()
	s.voters("n1.1", "n2.1", "n3.1")
	s.node("n1.1").draining = true // it leads
	s.runToRest()
	s.voters("n2.1", "n3.1")
	s.node("n3.1").draining = true
	s.runToRest()
	s.voters("n2.1")
	s.node("n2.1").draining = true // no node is left for its vote
	s.runToRest()
	s.voters("n2.1")
	for i := range s.nodes {
		s.nodes[i].draining = false
	}
	s.nodes = append(s.nodes, nodesNamed(7)[3:]...)
	s.runToRest()
	s.voters("n1.1", "n2.1", "n3.1", "n4.1", "n5.1")
	s.node("n2.1").silent = true
	s.runToRest()
	s.voters("n1.1", "n2.1", "n3.1", "n4.1", "n5.1")
	s.node("n2.1").lost = true
	s.runToRest()
	s.voters("n1.1", "n3.1", "n4.1", "n5.1", "n6.1")
	s.node("n4.1").silent, s.node("n4.1").replacement = true, "n4.2"
	s.nodes = append(s.nodes, worldNode{server: "n4.2"})
	s.runToRest()
	if c := s.shards[0]; slices.Contains(c.voters, "n4.1") || len(c.voters) != catalog.VotersMax {
		t.Errorf("%+v", c)
	}
}

// TestCatalogVotersWithoutASpare: the vote of a lost node stays if no other node can have it.
func TestCatalogVotersWithoutASpare(t *testing.T) {
	s := newCatalogSim(t, nodesNamed(3)...)
	s.runToRest()
	s.node("n2.1").silent, s.node("n2.1").lost = true, true
	s.runToRest()
	s.voters("n1.1", "n2.1", "n3.1")
}

// TestCatalogVoterThatComesBackEmpty: while the vote of a node without its disk goes to its next
// incarnation, the others are a majority at every step, so that the node may fail again.
func TestCatalogVoterThatComesBackEmpty(t *testing.T) {
	s := newCatalogSim(t, nodesNamed(3)...)
	s.runToRest()
	s.node("n3.1").silent, s.node("n3.1").nextReplacement = true, "n3.2"
	s.nodes = append(s.nodes, worldNode{server: "n3.2"})
	c := &s.shards[0]
	for i := range 10 {
		if i == 3 { // it has answered for long enough
			s.node("n3.1").replacement, s.node("n3.1").nextReplacement = "n3.2", ""
		}
		s.look()
		st, ok := planCatalog(&s.world, c)
		if !ok {
			continue
		}
		s.apply(st)
		others := slices.DeleteFunc(slices.Clone(c.voters), func(id string) bool { return id == "n3.1" || id == "n3.2" })
		if len(others) <= len(c.voters)/2 {
			t.Errorf("after %+v n3 could take the majority of %v along", st, c.voters)
		}
	}
	s.voters("n1.1", "n2.1", "n3.2")
}

// TestCatalogVoterThatIsForgotten: an operator removes a node that has come back without its disk.
// The vote of its earlier incarnation goes before the next one gets a vote all the same.
func TestCatalogVoterThatIsForgotten(t *testing.T) {
	w := world{nodes: []worldNode{{server: "n1.1"}, {server: "n2.1"}, {server: "n3.2"}}}
	c := worldShard{leader: "n1.1", voters: []string{"n1.1", "n2.1", "n3.1"}, nonvoters: []string{"n3.2"},
		caughtUp: []string{"n1.1", "n2.1", "n3.2"}}
	if st, _ := planCatalog(&w, &c); st != (step{c.shard, Remove, "n3.1"}) {
		t.Errorf("the step is %+v", st)
	}
}

// TestCatalogAnyWorld changes worlds at random: the catalog always comes to rest and never loses
// its quorum by a step of placement.
func TestCatalogAnyWorld(t *testing.T) {
	for seed := range uint64(1000) {
		rng := rand.New(rand.NewPCG(seed, 11))
		s := newCatalogSim(t, nodesNamed(1+rng.IntN(8))...)
		for range 12 {
			n := &s.nodes[rng.IntN(len(s.nodes))]
			c := &s.shards[0]
			switch rng.IntN(5) {
			case 0:
				n.silent, n.lost = true, rng.IntN(2) == 0
				if s.sound(c) <= len(c.voters)/2 {
					n.silent, n.lost = false, false // placement cannot help then
				}
			case 1:
				n.silent, n.lost, n.draining = false, false, false
			case 2:
				n.draining = !n.draining
			case 3:
				s.nodes = append(s.nodes, worldNode{server: fmt.Sprintf("n%d.1", len(s.nodes)+1)})
			}
			s.runToRest()
		}
		for i := range s.nodes {
			s.nodes[i].silent, s.nodes[i].lost, s.nodes[i].draining = false, false, false
		}
		s.runToRest()
		if c := s.shards[0]; len(c.voters) != min(catalog.VotersMax, len(s.nodes)) ||
			len(c.voters)+len(c.nonvoters) != len(s.nodes) {
			t.Fatalf("seed %d: %+v", seed, c)
		}
	}
}
