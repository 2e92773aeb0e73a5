package placement

import (
	"slices"
	"time"
)

// cutFor is how long two nodes count as cut off from each other after the last report of it.
// Leaderships must not follow a link that comes and goes.
const cutFor = 10 * time.Second

// noteCuts counts, for each node, the answering nodes that it does not reach or that do not reach
// it. A pair is cut off once two rounds in a row have reported it. A node that has just started
// does not count. The others find it again one after the other, and until then the last one seems
// to be cut off.
func (p *Placer) noteCuts(nodes []worldNode, reports map[string]*Report) {
	said := map[[2]string]bool{}
	for id, r := range reports {
		for _, u := range r.Unreached {
			if reports[u.ServerID] == nil || p.fresh(id) || p.fresh(u.ServerID) {
				continue
			}
			pair := [2]string{min(id, u.ServerID), max(id, u.ServerID)}
			said[pair] = true
			if _, cut := p.cuts[pair]; cut || p.saidCut[pair] {
				p.cuts[pair] = p.now()
			}
		}
	}
	p.saidCut = said
	for pair, at := range p.cuts {
		if p.now().Sub(at) >= cutFor {
			delete(p.cuts, pair)
		}
	}
	for i := range nodes {
		for pair := range p.cuts {
			if slices.Contains(pair[:], nodes[i].server) {
				nodes[i].cutOff++
			}
		}
	}
}

// betterLinked reports whether a voter should lead instead of the leader because it is cut off from
// fewer of the answering nodes.
func (p *planner) betterLinked(to, leader string) bool {
	a, b := p.byID[to], p.byID[leader]
	return a != nil && b != nil && a.cutOff < b.cutOff && !a.impaired && !a.unsettled()
}

// linkLeaders transfers the leaderships of shards without another step to voters that are linked
// better. This comes to an end: here a leadership only moves to a node that is cut off from fewer
// nodes, and balancing does not undo it.
func (p *planner) linkLeaders(steps []step) (more []step) {
	for i := range p.shards {
		s := &p.shards[i]
		if s.leader == "" || slices.ContainsFunc(steps, func(st step) bool { return st.shard == s.shard }) {
			continue
		}
		if to, ok := p.successor(s, s.leader); ok && p.betterLinked(to, s.leader) {
			p.leads[s.leader]--
			p.leads[to]++
			more = append(more, step{s.shard, Transfer, to})
		}
	}
	return more
}
