package placement

import (
	"cmp"
	"slices"
	"time"
)

// worldNode is a node as placement sees it.
type worldNode struct {
	server, zone string
	// silent: the node does not answer at present. It keeps its replicas, but gets no new ones and
	// no leadership.
	silent bool
	// lost: the node has been silent for longer than the grace period, or was removed. Its replicas
	// are replaced.
	lost bool
	// draining: an operator wants it empty.
	draining bool
	// leaving: the node is about to stop. It gets no replicas or leaderships, and keeps its
	// replicas, since it is likely to come back.
	leaving bool
	// fresh: the node's process has not answered for long enough, or has stopped answering. The
	// node gets neither replicas nor votes. It gets leaderships only if no other node can lead.
	fresh bool
	// impaired: the node has a condition. It keeps its replicas and votes. It transfers its
	// leaderships by itself, and gets none while another voter can lead.
	impaired bool
	// cutOff is the number of answering nodes that the node does not reach, or that do not reach
	// it. It leads a shard only if none of the shard's voters has a lower cutOff.
	cutOff int
	// declines: the node gave a leadership back a moment ago, because its clock is wrong or it is
	// about to stop.
	declines bool
	// replacement is a newer incarnation of a silent node's name, which takes its replicas; "" if
	// there is none. nextReplacement is one that becomes the replacement if it goes on answering
	// and the node stays silent.
	replacement, nextReplacement string
}

// unsettled reports whether the node should lead only if no other node can.
func (n *worldNode) unsettled() bool { return n.declines || n.fresh }

// acceptsReplicas reports whether the node may be given replicas.
func (n *worldNode) acceptsReplicas() bool {
	return n.keepsReplicas() && !n.silent && !n.leaving && !n.fresh
}

// keepsReplicas reports whether the node may keep its replicas.
func (n *worldNode) keepsReplicas() bool { return !n.lost && !n.draining && n.replacement == "" }

// worldShard is a shard as its leader sees it.
type worldShard struct {
	shard uint32
	// leader is the server that serves; a shard without one cannot be changed.
	leader            string
	voters, nonvoters []string
	members           uint64 // the position of their configuration in the shard's log
	// recorded are the servers that should run a replica: the members, and one that is about to
	// become a member.
	recorded []string
	// caughtUp are the members whose logs have caught up with the leader's.
	caughtUp []string
	// quarantined are the servers on which a replica was set aside. Such a replica can only be
	// replaced.
	quarantined []string
}

// world is everything that placement depends on.
type world struct {
	nodes  []worldNode // by server id
	shards []worldShard
	// factor is the number of voters that a shard should have, if there are enough nodes. A shard
	// with fewer than minVoters accepts no mutations.
	factor, minVoters int
	// steadyAfter is how long a node must have answered before placement counts on it.
	steadyAfter time.Duration
}

// Action is what a step does.
type Action uint8

// The actions.
const (
	AddNonvoter Action = iota + 1
	Promote
	Remove
	Transfer
	Demote
)

// step is one change of one shard: its leader adds, promotes, demotes or removes server, or
// transfers the leadership to it.
type step struct {
	shard  uint32
	action Action
	server string
}

// plan returns the steps that can be taken now. There is at most one for each shard, and each is
// safe by itself, whatever happens to the others. If the world does not change otherwise, repeated
// plans and their steps come to an end.
//
// To move a replica, a non-voter catches up and becomes a voter before the old voter leaves. A
// shard never has fewer copies than before. Leaderships leave a draining node before replicas do.
// Replacing lost and draining replicas comes first. Replicas are balanced, one at a time, only when
// no other step is needed. Leaderships are balanced one at a time, among shards without another
// step.
func plan(w world) []step {
	p := newPlanner(w)
	var steps []step
	settled := true
	for i := range w.shards {
		s := &w.shards[i]
		if s.leader == "" {
			settled = false
			continue
		}
		if st, busy := p.repair(s); busy {
			settled = false
			if st.action != 0 {
				steps = append(steps, st)
			}
		}
	}
	links := p.linkLeaders(steps)
	if settled && len(links) == 0 {
		if st, ok := p.evenReplicas(); ok {
			return []step{st}
		}
	}
	steps = append(steps, links...)
	if st, ok := p.evenLeaders(steps); ok {
		steps = append(steps, st)
	}
	return steps
}

// planner holds what plan counts once.
type planner struct {
	world
	byID     map[string]*worldNode
	replicas map[string]int // by node, including replicas that are being added
	leads    map[string]int
	wanted   int // voters of each shard
}

func newPlanner(w world) *planner {
	p := &planner{world: w, byID: map[string]*worldNode{}, replicas: map[string]int{}, leads: map[string]int{}}
	takers := 0
	for i := range w.nodes {
		n := &w.nodes[i]
		p.byID[n.server] = n
		if !n.draining && n.replacement == "" {
			takers++ // also a lost one: without a spare node its replicas wait for it
		}
	}
	// A drain waits for another node, rather than stop the shard.
	p.wanted = max(1, min(w.factor, max(takers, w.minVoters)))
	for i := range w.shards {
		s := &w.shards[i]
		for _, id := range s.voters {
			p.replicas[id]++
		}
		for _, id := range s.nonvoters {
			p.replicas[id]++
		}
		if s.leader != "" {
			p.leads[s.leader]++
		}
	}
	return p
}

// keepsReplica reports whether a member may keep its replica.
func (p *planner) keepsReplica(id string) bool {
	n := p.byID[id]
	return n != nil && n.keepsReplicas()
}

// steady reports whether a member may get a vote. With a vote, the other members depend on its
// presence.
func (p *planner) steady(id string) bool {
	n := p.byID[id]
	return n != nil && n.acceptsReplicas()
}

// givesUp reports whether the planner should stop waiting for a member without a vote: it is
// silent, cannot be counted on, and there is another node. While a member catches up, its shard has
// no other change.
func (p *planner) givesUp(s *worldShard, id string) bool {
	n := p.byID[id]
	_, spare := p.candidate(s)
	return n != nil && n.silent && n.fresh && spare
}

// answers reports whether a member is known and not silent.
func (p *planner) answers(id string) bool {
	n := p.byID[id]
	return n != nil && !n.silent && !n.lost
}

// repair returns the next step that brings a shard to its wanted voters. busy without a step means
// waiting.
func (p *planner) repair(s *worldShard) (st step, busy bool) {
	if st, busy := p.expel(s); busy {
		return st, true
	}
	if !p.keepsReplica(s.leader) {
		if to, ok := p.successor(s, s.leader); ok {
			p.leads[s.leader]--
			p.leads[to]++
			return step{s.shard, Transfer, to}, true
		}
	}
	good := 0
	for _, id := range s.voters {
		if p.keepsReplica(id) {
			good++
		}
	}
	for _, id := range s.nonvoters {
		switch {
		case !p.keepsReplica(id), p.givesUp(s, id), good >= p.wanted && len(s.voters) >= p.wanted &&
			(p.awaited(s) || !p.replaces(s, id)):
			return step{s.shard, Remove, id}, true
		case slices.Contains(s.caughtUp, id) && p.steady(id):
			return step{s.shard, Promote, id}, true
		default:
			return step{}, true // it is catching up
		}
	}
	if good < p.wanted {
		if id, ok := p.candidate(s); ok {
			p.replicas[id]++
			return step{s.shard, AddNonvoter, id}, true
		}
	}
	if len(s.voters) > p.wanted || good < len(s.voters) && good >= p.wanted {
		return p.shrink(s)
	}
	if good < p.wanted {
		return step{}, true // there is no spare node
	}
	return step{}, false
}

// awaited reports whether a voter is silent and may come back. Until it comes back or is lost, the
// shard is not changed for balance: with one more voter it could lose fewer of the remaining ones.
func (p *planner) awaited(s *worldShard) bool {
	return slices.ContainsFunc(s.voters, func(id string) bool { return p.keepsReplica(id) && !p.answers(id) })
}

// expel returns the step that removes a member whose replica was set aside. Its server may become a
// member again, as any other node may, without data.
func (p *planner) expel(s *worldShard) (st step, busy bool) {
	for _, id := range s.quarantined {
		votes := slices.Contains(s.voters, id)
		switch {
		case slices.Contains(s.nonvoters, id), votes && p.safeWithout(s, id):
			return step{s.shard, Remove, id}, true
		case votes:
			busy = true
		}
	}
	return step{}, busy
}

// replaces reports whether a non-voter should take the place of a voter: it is better placed than
// one of them.
func (p *planner) replaces(s *worldShard, id string) bool {
	worst := p.worst(s, append(slices.Clone(s.voters), id))
	return worst != id
}

// shrink returns the step that removes the worst placed voter of the shard. It waits for a silent
// voter that may come back.
func (p *planner) shrink(s *worldShard) (step, bool) {
	id := p.worst(s, s.voters)
	if p.keepsReplica(id) && !p.answers(id) || !p.safeWithout(s, id) {
		return step{}, true
	}
	if id != s.leader {
		p.replicas[id]--
		return step{s.shard, Remove, id}, true
	}
	if to, ok := p.successor(s, id); ok {
		return step{s.shard, Transfer, to}, true
	}
	return step{}, true
}

// soundWithout returns how many of the other voters must be sound before a voter of a shard may
// leave. It is a majority of them. If the leaving voter is sound itself, it is also at least the
// wanted number, or all of them if they are fewer.
func soundWithout(s *worldShard, sound bool, wanted int) int {
	left := len(s.voters) - 1
	if !sound {
		return left/2 + 1
	}
	return max(left/2+1, min(wanted, left))
}

// safeWithout reports whether the shard may lose a voter: enough of those that remain must be
// sound.
func (p *planner) safeWithout(s *worldShard, id string) bool {
	sound := 0
	for _, v := range s.voters {
		if v != id && p.sound(s, v) {
			sound++
		}
	}
	return sound >= soundWithout(s, p.sound(s, id), p.wanted)
}

// sound reports whether a member answers and has everything.
func (p *planner) sound(s *worldShard, id string) bool {
	return p.answers(id) && slices.Contains(s.caughtUp, id)
}

// successor returns the voter that should lead instead of id.
func (p *planner) successor(s *worldShard, id string) (string, bool) {
	var best string
	for _, v := range s.voters {
		if v == id || !p.keepsReplica(v) || !p.sound(s, v) || p.byID[v].leaving {
			continue
		}
		if best == "" || cmp.Or(compareBool(p.byID[v].impaired, p.byID[best].impaired),
			cmp.Compare(p.byID[v].cutOff, p.byID[best].cutOff),
			compareBool(p.byID[v].unsettled(), p.byID[best].unsettled()), cmp.Compare(p.leads[v], p.leads[best])) < 0 {
			best = v
		}
	}
	return best, best != ""
}

// candidate returns the node that should get a new replica. A node that was chosen before comes
// first, then the new incarnation of a voter's node, then nodes without a condition. Among those it
// prefers the zone with the fewest of the shard's good voters, and then the node with the fewest
// replicas.
func (p *planner) candidate(s *worldShard) (string, bool) {
	zones := p.zonesOf(s.voters)
	replacements := p.replacements(s)
	var best *worldNode
	for i := range p.nodes {
		n := &p.nodes[i]
		if !n.acceptsReplicas() || slices.Contains(s.quarantined, n.server) || slices.Contains(s.voters, n.server) ||
			slices.Contains(s.nonvoters, n.server) {
			continue
		}
		if slices.Contains(s.recorded, n.server) {
			return n.server, true
		}
		if best == nil || cmp.Or(compareBool(replacements[best.server], replacements[n.server]),
			compareBool(n.impaired, best.impaired), cmp.Compare(zones[n.zone], zones[best.zone]),
			cmp.Compare(p.replicas[n.server], p.replicas[best.server])) < 0 {
			best = n
		}
	}
	if best == nil {
		return "", false
	}
	return best.server, true
}

// replacements returns the nodes that take over replicas of the shard's voters.
func (p *planner) replacements(s *worldShard) map[string]bool {
	all := map[string]bool{}
	for _, id := range s.voters {
		if n := p.byID[id]; n != nil && n.replacement != "" {
			all[n.replacement] = true
		}
	}
	return all
}

// zonesOf counts the good members by zone.
func (p *planner) zonesOf(members []string) map[string]int {
	zones := map[string]int{}
	for _, id := range members {
		if p.keepsReplica(id) {
			zones[p.byID[id].zone]++
		}
	}
	return zones
}

// worst returns the member that the shard can best do without. A member that may not keep its
// replica comes first, then one of the fullest zone, then the one whose node has most replicas.
// Silence does not count before the grace period is over.
func (p *planner) worst(s *worldShard, members []string) string {
	zones := p.zonesOf(members)
	rank := func(id string) (keeps bool, crowd, load int) {
		crowd = 0
		if n := p.byID[id]; n != nil {
			crowd = zones[n.zone]
		}
		return p.keepsReplica(id), crowd, p.replicas[id]
	}
	return slices.MinFunc(members, func(a, b string) int {
		aKeeps, aCrowd, aLoad := rank(a)
		bKeeps, bCrowd, bLoad := rank(b)
		return cmp.Or(
			compareBool(aKeeps, bKeeps), cmp.Compare(bCrowd, aCrowd), cmp.Compare(bLoad, aLoad),
			compareBool(a == s.leader, b == s.leader), cmp.Compare(b, a),
		)
	})
}

// compareBool orders false before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	default:
		return 1
	}
}

// evenReplicas moves one replica from a node to one with at least two fewer, if no zone gets
// fuller by it. It leaves a shard with a silent voter unchanged.
func (p *planner) evenReplicas() (step, bool) {
	for i := range p.shards {
		s := &p.shards[i]
		if p.awaited(s) {
			continue
		}
		for _, from := range s.voters {
			for j := range p.nodes {
				to := &p.nodes[j]
				if !to.acceptsReplicas() || to.impaired || slices.Contains(s.quarantined, to.server) ||
					slices.Contains(s.voters, to.server) || p.replicas[from]-p.replicas[to.server] < 2 {
					continue
				}
				zones := p.zonesOf(s.voters)
				if to.zone != p.byID[from].zone && zones[to.zone] >= zones[p.byID[from].zone] {
					continue
				}
				return step{s.shard, AddNonvoter, to.server}, true
			}
		}
	}
	return step{}, false
}

// evenLeaders transfers one leadership, of a shard without another step. Either the leader's node
// may not keep its replica, or it leads at least two more shards than the new leader's node and is
// linked no better.
func (p *planner) evenLeaders(steps []step) (step, bool) {
	for i := range p.shards {
		s := &p.shards[i]
		if s.leader == "" || slices.ContainsFunc(steps, func(st step) bool { return st.shard == s.shard }) {
			continue
		}
		to, ok := p.successor(s, s.leader)
		if ok && (!p.keepsReplica(s.leader) || !p.byID[to].impaired && !p.byID[to].unsettled() &&
			p.byID[to].cutOff <= p.byID[s.leader].cutOff && p.leads[s.leader]-p.leads[to] >= 2) {
			return step{s.shard, Transfer, to}, true
		}
	}
	return step{}, false
}
