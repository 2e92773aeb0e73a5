package placement

import (
	"slices"

	"github.com/belfrydb/belfry/cluster/catalog"
)

// catalogWanted is how many sound voters the catalog must keep when a sound one goes, if that is
// more than most of those that remain. It never is: a voter that is not recorded leaves even
// without a successor.
const catalogWanted = 1

// planCatalog returns the next step for the members of the catalog itself. Every recorded node is
// a member, and the first nodes to catch up vote, once they have been there for a while. A node
// that is not recorded any more leaves. A node that drains or is lost loses its vote as soon as
// the others suffice, and follows without it. At most one step is taken at a time; there may be
// none.
func planCatalog(w *world, c *worldShard) (step, bool) {
	if c.leader == "" {
		return step{}, false
	}
	p := newPlanner(*w)
	p.wanted = catalogWanted
	for _, id := range c.nonvoters {
		switch {
		case p.byID[id] == nil:
			return step{c.shard, Remove, id}, true
		case len(c.voters) < catalog.VotersMax && p.steady(id) && p.sound(c, id) && !p.inherits(c, id):
			return step{c.shard, Promote, id}, true
		}
	}
	members := slices.Concat(c.voters, c.nonvoters)
	for i := range p.nodes {
		if id := p.nodes[i].server; p.answers(id) && !slices.Contains(members, id) {
			return step{c.shard, AddNonvoter, id}, true
		}
	}
	for _, id := range c.voters {
		action := p.unvote(c, id)
		if action == 0 || !p.safeWithout(c, id) {
			continue
		}
		if id != c.leader {
			return step{c.shard, action, id}, true
		}
		if to, ok := p.successor(c, id); ok {
			return step{c.shard, Transfer, to}, true
		}
	}
	if to, ok := p.successor(c, c.leader); ok && p.betterLinked(to, c.leader) {
		return step{c.shard, Transfer, to}, true
	}
	return step{}, false
}

// inherits reports whether a voter is an earlier incarnation of a member, and is silent or was
// forgotten. The member does not get a vote while that vote exists. With both votes there would be
// one voter more, and one of the two is dead. If the node that lost its disk fails again, it could
// take the majority along.
func (p *planner) inherits(c *worldShard, id string) bool {
	return slices.ContainsFunc(c.voters, func(voter string) bool {
		n := p.byID[voter]
		return catalog.NameOf(voter) == catalog.NameOf(id) && (n == nil || n.silent)
	})
}

// unvote returns the action by which a voter of the catalog loses its vote, 0 if it keeps it. One
// voter fewer harms more than the vote of a lost node. The lost node therefore keeps its vote
// unless another node can get one.
func (p *planner) unvote(c *worldShard, id string) Action {
	n := p.byID[id]
	spare := slices.ContainsFunc(c.nonvoters, func(other string) bool {
		return p.keepsReplica(other) && p.sound(c, other)
	})
	switch {
	case n == nil:
		return Remove
	case n.draining, !n.keepsReplicas() && spare:
		return Demote
	default:
		return 0
	}
}
