package admin

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belfrydb/belfry/rpc/backend"
)

// listedMost is how many shards or nodes a sentence lists.
const listedMost = 16

// problems returns the problems of the cluster, as sentences for people.
func (v *clusterView) problems() (all []string) {
	unreached := v.unreached()
	for i := range v.members {
		m := &v.members[i]
		if runs := slices.ContainsFunc(unreached, func(u unreachedNode) bool { return u.member == m }); !m.Answers && !runs {
			all = append(all, "node "+v.label(m)+" does not answer")
		} else if len(m.Quarantined) > 0 {
			all = append(all, fmt.Sprintf(
				"node %s has set aside replicas whose state differs from the others', or cannot be restored: %s", v.label(m),
				list(m.Quarantined)))
		}
		for _, c := range v.members[i].Conditions {
			all = append(all, fmt.Sprintf("node %s has %s since %s: %s", v.label(&v.members[i]), c.Kind,
				c.Since.UTC().Format(time.RFC3339), c.Message))
		}
	}
	all = append(all, v.reachProblems()...)
	if !slices.ContainsFunc(v.members, func(m backend.Member) bool { return m.Name == v.answeredBy }) {
		all = append(all, "the node that answers this, "+v.answeredBy+", is not recorded as a node of the cluster yet")
	}
	if len(v.catalog.Voters) > 0 && v.catalog.leader == nil {
		all = append(all, "the catalog has no leader"+v.majorityMissing(&v.catalog))
	} else if silent := v.silentVotes(); len(silent) > 0 {
		all = append(all, "voters of the catalog that do not answer: "+list(silent))
	}
	var thin, restoring []string
	for i := range v.shards {
		g := &v.shards[i]
		if g.leader != nil && len(g.Voters) >= v.votersWanted && g.votersAnswering() < v.votersWanted {
			thin = append(thin, strconv.Itoa(i))
		}
		if g.Restoring {
			restoring = append(restoring, strconv.Itoa(i))
		}
	}
	all = append(all, v.headless()...)
	if text := v.aheadOfTime(); text != "" {
		all = append(all, text)
	}
	if len(thin) > 0 {
		all = append(all, fmt.Sprintf("with fewer than %d voters that answer: %s", v.votersWanted, shardList(thin)))
	}
	if text := v.tooFewVoters(); text != "" {
		all = append(all, text)
	}
	all = append(all, v.underReplicated()...)
	all = append(all, v.behind()...)
	if len(restoring) > 0 {
		all = append(all, "a restore has begun and not ended, and until it has, they do nothing else: "+shardList(restoring))
	}
	for i := range v.shards {
		if text := v.difference(&v.shards[i]); text != "" {
			all = append(all, text)
		}
	}
	return all
}

// headless says which shards have no leader, and the reason if it is visible. Shards with the same
// reason share a sentence.
func (v *clusterView) headless() (all []string) {
	var reasons []string // in the order of the first shard that has it
	shards := map[string][]string{}
	for i := range v.shards {
		g := &v.shards[i]
		if g.leader != nil {
			continue
		}
		why := v.majorityMissing(g)
		if shards[why] == nil {
			reasons = append(reasons, why)
		}
		shards[why] = append(shards[why], strconv.Itoa(i))
	}
	for _, why := range reasons {
		all = append(all, "without a leader: "+shardList(shards[why])+why)
	}
	return all
}

// majorityMissing says how many voters a group needs and which do not answer, if too few answer for
// a leader; else it returns "".
func (v *clusterView) majorityMissing(g *groupView) string {
	needed := len(g.Voters)/2 + 1
	if len(g.Voters) == 0 || g.votersAnswering() >= needed {
		return ""
	}
	var silent []string
	for _, id := range g.Voters {
		if g.held[id] == nil {
			silent = append(silent, v.labelOf(id))
		}
	}
	return fmt.Sprintf("; %d of %d voters are needed, and these do not answer: %s", needed, len(g.Voters), list(silent))
}

// silentVotes names the voters of the catalog that do not answer. It leaves out nodes that problems
// already reports as silent. A vote that remains after its node is forgotten costs the catalog as
// much as any other.
func (v *clusterView) silentVotes() (silent []string) {
	for _, id := range v.catalog.Voters {
		if m := v.byServer[id]; v.catalog.held[id] == nil && (m == nil || m.Answers) {
			silent = append(silent, v.labelOf(id))
		}
	}
	return silent
}

// underReplicated says which shards have fewer voters than they should have, and whether there are
// too few nodes for more. It reports such shards even if no node can hold a further replica: that
// does not make a shard safer.
func (v *clusterView) underReplicated() (all []string) {
	byVoters := map[int][]string{}
	for i := range v.shards {
		if g := &v.shards[i]; g.leader != nil && len(g.Voters) < v.votersWanted {
			byVoters[len(g.Voters)] = append(byVoters[len(g.Voters)], strconv.Itoa(i))
		}
	}
	staying := len(v.members)
	for i := range v.members {
		if v.members[i].Draining {
			staying--
		}
	}
	for voters := range v.votersWanted {
		if len(byVoters[voters]) == 0 {
			continue
		}
		text := fmt.Sprintf("under-replicated (wanted %d voters, has %d): %s", v.votersWanted, voters,
			shardList(byVoters[voters]))
		if staying < v.votersWanted {
			text += fmt.Sprintf("; only %d of the nodes can keep a replica: add one, or lower the replication factor", staying)
		}
		all = append(all, text)
	}
	return all
}

// votersAnswering counts the voters whose nodes answer.
func (g *groupView) votersAnswering() (n int) {
	for _, id := range g.Voters {
		if g.held[id] != nil {
			n++
		}
	}
	return n
}

// difference says that two members of a shard differ although they have applied the same entries;
// it returns "" if none do. Members at different positions are not compared.
func (v *clusterView) difference(g *groupView) string {
	members := slices.Concat(g.Voters, g.Nonvoters)
	for i, a := range members {
		for _, b := range members[:i] {
			x, y := g.held[a], g.held[b]
			if x != nil && y != nil && x.DigestIndex == y.DigestIndex && x.Digest != y.Digest {
				return fmt.Sprintf("the replicas of shard %d on %s and %s differ at index %d", g.Shard, v.labelOf(b), v.labelOf(a),
					x.DigestIndex)
			}
		}
	}
	return ""
}

// label returns a node's name, with its incarnation if another has the same name.
func (v *clusterView) label(m *backend.Member) string {
	for i := range v.members {
		if other := &v.members[i]; other.Name == m.Name && other.ServerID != m.ServerID {
			return m.ServerID
		}
	}
	return m.Name
}

// labelOf is label for a server id, which may belong to a node that is not recorded.
func (v *clusterView) labelOf(serverID string) string {
	if m := v.byServer[serverID]; m != nil {
		return v.label(m)
	}
	return serverID
}

// shardList formats numbers of shards.
func shardList(numbers []string) string {
	if len(numbers) == 1 {
		return "shard " + numbers[0]
	}
	return "shards " + list(numbers)
}

// list joins the first words, and says how many more there are.
func list(words []string) string {
	if len(words) > listedMost {
		return fmt.Sprintf("%s and %d more", strings.Join(words[:listedMost], ", "), len(words)-listedMost)
	}
	return strings.Join(words, ", ")
}
