package placement

import (
	"fmt"
	"slices"
	"time"

	"github.com/belfrydb/belfry/cluster/catalog"
)

// Status is the catalog leader's knowledge of the cluster beyond the nodes' own reports.
type Status struct {
	// Silent are the nodes that do not answer.
	Silent []Silence `json:"silent,omitempty"`
	// Moves are the shards that are not where they should be.
	Moves []Move `json:"moves,omitempty"`
	// Behind are the voters that answer but do not receive their leaders' entries.
	Behind []Behind `json:"behind,omitempty"`
}

// Silence is a node that does not answer. Since is when it last answered, or when the leader of the
// catalog first asked it.
type Silence struct {
	ServerID string    `json:"serverId"`
	Since    time.Time `json:"since"`
}

// Move explains, for people, what placement does about a shard and why.
type Move struct {
	Shard uint32 `json:"shard"`
	Text  string `json:"text"`
	// Leaves is the server that leaves the shard by this move; empty for other moves. The move is
	// over once the server is not a member any more.
	Leaves string `json:"leaves,omitempty"`
}

// status returns the placement status of a round.
func (p *Placer) status(w *world, steps []step) *Status {
	s := &Status{}
	for i := range w.nodes {
		if n := &w.nodes[i]; n.silent {
			s.Silent = append(s.Silent, Silence{ServerID: n.server, Since: p.lastReport[n.server]})
		}
	}
	planned := newPlanner(*w)
	for i := range w.shards {
		if text := planned.explain(&w.shards[i], steps); text != "" {
			s.Moves = append(s.Moves, Move{Shard: w.shards[i].shard, Text: text, Leaves: leaves(w.shards[i].shard, steps)})
		}
	}
	return s
}

// leaves returns the server that a step takes out of a shard; empty if none does.
func leaves(shard uint32, steps []step) string {
	for _, st := range steps {
		if st.shard == shard && st.action == Remove {
			return st.server
		}
	}
	return ""
}

// explain says what placement does about a shard or waits for. It returns "" if the shard needs no
// change. It also returns "" if the shard has no leader, because placement cannot change such a
// shard.
func (p *planner) explain(s *worldShard, steps []step) string {
	if s.leader == "" {
		return ""
	}
	if i := slices.IndexFunc(steps, func(st step) bool { return st.shard == s.shard }); i >= 0 {
		return p.explainStep(s, steps[i])
	}
	leaving, kept := p.leaving(s), 0
	for _, id := range s.voters {
		if p.keepsReplica(id) {
			kept++
		}
	}
	switch {
	case len(s.nonvoters) > 0:
		return catalog.NameOf(s.nonvoters[0]) + " catches up" + because("to replace ", leaving)
	case kept < p.wanted && p.coming(s) != "":
		return fmt.Sprintf("%s gets a replica when it has answered for %v", p.coming(s), p.steadyAfter) +
			because("to replace ", leaving)
	case kept < p.wanted:
		return fmt.Sprintf("%d voters of %d stay%s, and no other node can take a replica", kept, p.wanted,
			because("not ", leaving))
	case leaving != "" || len(s.voters) > p.wanted:
		return "one voter more than wanted leaves when enough others answer and have everything" + because("", leaving)
	case p.superseded(s) != "":
		return fmt.Sprintf("%s, which started anew without its data, gets a replica when it has answered for %v and its "+
			"old incarnation has been silent for %v",
			p.superseded(s), p.steadyAfter, replacementAfter)
	default:
		return ""
	}
}

// explainStep says what a step does and why.
func (p *planner) explainStep(s *worldShard, st step) string {
	name, why := catalog.NameOf(st.server), p.why(st.server)
	leaving := p.leaving(s)
	switch st.action {
	case AddNonvoter:
		if leaving == "" && len(s.voters) >= p.wanted {
			leaving = "a node that has more"
		}
		return name + " gets a replica" + because("to replace ", leaving)
	case Promote:
		return name + " has caught up and becomes a voter" + because("to replace ", leaving)
	case Transfer:
		if why = p.why(s.leader); why == "" && p.betterLinked(st.server, s.leader) {
			why = "and some other nodes do not reach each other"
		} else if why == "" {
			why = "leads more shards"
		}
		return fmt.Sprintf("%s hands over to %s: %s %s", catalog.NameOf(s.leader), name, catalog.NameOf(s.leader), why)
	default:
		if why == "" {
			why = "is not needed"
		}
		return fmt.Sprintf("%s leaves: it %s", name, why)
	}
}

// coming returns a node that gets a replica of a shard if it goes on answering, "" if there is
// none.
func (p *planner) coming(s *worldShard) string {
	for i := range p.nodes {
		if n := &p.nodes[i]; n.fresh && !n.silent && n.keepsReplicas() && !slices.Contains(s.voters, n.server) &&
			!slices.Contains(s.nonvoters, n.server) {
			return catalog.NameOf(n.server)
		}
	}
	return ""
}

// superseded returns a voter of a shard whose new incarnation waits to replace it, "" if there is
// none.
func (p *planner) superseded(s *worldShard) string {
	for _, id := range s.voters {
		if n := p.byID[id]; n != nil && n.nextReplacement != "" && n.replacement == "" &&
			!slices.Contains(s.voters, n.nextReplacement) {
			return catalog.NameOf(id)
		}
	}
	return ""
}

// because returns a reason with a prefix, "" if there is no reason.
func because(before, reason string) string {
	if reason == "" {
		return ""
	}
	return ", " + before + reason
}

// leaving returns a voter that placement removes, and why; "" if all voters stay.
func (p *planner) leaving(s *worldShard) string {
	for _, id := range s.voters {
		if why := p.why(id); why != "" && !p.keepsReplica(id) {
			return catalog.NameOf(id) + ", which " + why
		}
	}
	return ""
}

// why says why placement moves replicas or leaderships off a node, "" if it does not.
func (p *planner) why(id string) string {
	n := p.byID[id]
	switch {
	case n == nil:
		return "was removed"
	case n.replacement != "":
		return "started anew without its data"
	case n.lost:
		return "has been silent for longer than the grace period"
	case n.draining:
		return "is draining"
	case n.silent:
		return "is silent"
	default:
		return ""
	}
}

// StatusOf returns the status that the catalog's leader reports. If two nodes report one,
// it returns the later leader's; if there is no leader, an empty one.
func StatusOf(reports map[string]*Report) Status {
	var status Status
	var term uint64
	for _, r := range reports {
		if g := r.Group(catalog.GroupName); g != nil && g.Serving && r.Placement != nil && g.Term >= term {
			status, term = *r.Placement, g.Term
		}
	}
	return status
}
