package cluster

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Story is what the leader of the catalog knows of the cluster that the nodes do not know of themselves.
type Story struct {
	// Silent are the nodes that do not answer.
	Silent []Silence `json:"silent,omitempty"`
	// Moves are the shards that are not where they should be.
	Moves []Move `json:"moves,omitempty"`
	// Behind are the voters that answer and do not get what their leaders have.
	Behind []Behind `json:"behind,omitempty"`
}

// Silence is a node that does not answer. Since is when it answered last, or when the leader of the catalog first asked it.
type Silence struct {
	ServerID string    `json:"serverId"`
	Since    time.Time `json:"since"`
}

// Move says, for people, what placement does about a shard and why.
type Move struct {
	Shard uint32 `json:"shard"`
	Text  string `json:"text"`
	// Leaves is the server that Text says leaves the shard; empty for other moves. Once it is no member, the move is history.
	Leaves string `json:"leaves,omitempty"`
}

// tell tells the story of a round.
func (p *placer) tell(w *world, steps []step) *Story {
	s := &Story{}
	for i := range w.nodes {
		if n := &w.nodes[i]; n.silent {
			s.Silent = append(s.Silent, Silence{ServerID: n.server, Since: p.heard[n.server]})
		}
	}
	planned := newPlanner(*w)
	for i := range w.shards {
		if text := planned.tell(&w.shards[i], steps); text != "" {
			s.Moves = append(s.Moves, Move{Shard: w.shards[i].shard, Text: text, Leaves: leaves(w.shards[i].shard, steps)})
		}
	}
	return s
}

// leaves returns the server that a step takes out of a shard; empty if none does.
func leaves(shard uint32, steps []step) string {
	for _, st := range steps {
		if st.shard == shard && st.action == remove {
			return st.server
		}
	}
	return ""
}

// tell says what is done about a shard, or waited for; nothing if all is well, or if it has no leader, which is not placement's to mend.
func (p *planner) tell(s *worldShard, steps []step) string {
	if s.leader == "" {
		return ""
	}
	if i := slices.IndexFunc(steps, func(st step) bool { return st.shard == s.shard }); i >= 0 {
		return p.tellStep(s, steps[i])
	}
	leaving, kept := p.leaving(s), 0
	for _, id := range s.voters {
		if p.stays(id) {
			kept++
		}
	}
	switch {
	case len(s.nonvoters) > 0:
		return nameOf(s.nonvoters[0]) + " catches up" + because("to replace ", leaving)
	case kept < p.wanted && p.coming(s) != "":
		return fmt.Sprintf("%s gets a replica when it has answered for %v", p.coming(s), p.steadyAfter) + because("to replace ", leaving)
	case kept < p.wanted:
		return fmt.Sprintf("%d voters of %d stay%s, and no other node can take a replica", kept, p.wanted, because("not ", leaving))
	case leaving != "" || len(s.voters) > p.wanted:
		return "one voter more than wanted leaves when enough others answer and have everything" + because("", leaving)
	case p.superseded(s) != "":
		return fmt.Sprintf("%s, which started anew without its data, gets a replica when it has answered for %v and its old incarnation has been silent for %v",
			p.superseded(s), p.steadyAfter, heirAfter)
	default:
		return ""
	}
}

// tellStep says what a step does and why.
func (p *planner) tellStep(s *worldShard, st step) string {
	name, why := nameOf(st.server), p.why(st.server)
	leaving := p.leaving(s)
	switch st.action {
	case addNonvoter:
		if leaving == "" && len(s.voters) >= p.wanted {
			leaving = "a node that has more"
		}
		return name + " gets a replica" + because("to replace ", leaving)
	case promote:
		return name + " has caught up and becomes a voter" + because("to replace ", leaving)
	case transfer:
		if why = p.why(s.leader); why == "" && p.betterLinked(st.server, s.leader) {
			why = "and some other nodes do not reach each other"
		} else if why == "" {
			why = "leads more shards"
		}
		return fmt.Sprintf("%s hands over to %s: %s %s", nameOf(s.leader), name, nameOf(s.leader), why)
	default:
		if why == "" {
			why = "is not needed"
		}
		return fmt.Sprintf("%s leaves: it %s", name, why)
	}
}

// coming names a node that will be given a replica of a shard if it goes on answering; empty if there is none.
func (p *planner) coming(s *worldShard) string {
	for i := range p.nodes {
		if n := &p.nodes[i]; n.fresh && !n.silent && n.stays() && !slices.Contains(s.voters, n.server) && !slices.Contains(s.nonvoters, n.server) {
			return nameOf(n.server)
		}
	}
	return ""
}

// superseded names a voter of a shard whose new incarnation is there and waits for its place; empty if there is none.
func (p *planner) superseded(s *worldShard) string {
	for _, id := range s.voters {
		if n := p.byID[id]; n != nil && n.awaitedHeir != "" && n.heir == "" && !slices.Contains(s.voters, n.awaitedHeir) {
			return nameOf(id)
		}
	}
	return ""
}

// because writes a reason that may be missing.
func because(before, reason string) string {
	if reason == "" {
		return ""
	}
	return ", " + before + reason
}

// leaving names a voter that is not to stay, and why; empty if all are.
func (p *planner) leaving(s *worldShard) string {
	for _, id := range s.voters {
		if why := p.why(id); why != "" && !p.stays(id) {
			return nameOf(id) + ", which " + why
		}
	}
	return ""
}

// why says what is wrong with a node; empty if nothing is.
func (p *planner) why(id string) string {
	n := p.byID[id]
	switch {
	case n == nil:
		return "was removed"
	case n.heir != "":
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

// nameOf returns the name in a server id.
func nameOf(serverID string) string {
	name, _, _ := strings.Cut(serverID, ".")
	return name
}

// storyOf returns the story that the leader of the catalog tells, of two the later one's; empty if nobody leads it.
func storyOf(reports map[string]*Report) Story {
	var story Story
	var term uint64
	for _, r := range reports {
		if g := r.group(groupName); g != nil && g.Serving && r.Story != nil && g.Term >= term {
			story, term = *r.Story, g.Term
		}
	}
	return story
}
