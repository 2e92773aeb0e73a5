package server

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/belfrydb/belfry/cluster"
	"github.com/belfrydb/belfry/cluster/gossip"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
)

// consent is what a node without a cluster has agreed to: who may found one. It agrees to one node only, whose name comes before its own, and for
// as long as it runs, since who was agreed to may have founded and be gone; so no two nodes get the consent of the same others. A later
// start of the same name takes the place of the earlier one: it would know of a cluster in its data directory.
type consent struct {
	self   string // server id
	shards int

	mu      sync.Mutex
	founder string // a server id, empty for nobody yet
	founds  bool   // this node is about to found: it gives way to nobody any more
}

// answer is what the node tells others, over the peer port: a node that only wants to know, with asker empty, and one that wants to found.
func (c *consent) answer(asker string) node.Introduction {
	c.mu.Lock()
	defer c.mu.Unlock()
	free := c.founder == "" || nameOf(c.founder) == nameOf(asker) || c.founder == c.self && !c.founds
	if asker != "" && free && nameOf(asker) < nameOf(c.self) {
		c.founder = asker
	}
	return node.Introduction{ServerID: c.self, Shards: c.shards, Founder: c.founder, Format: fsm.LatestFormat}
}

// leftTo returns the other node to which this one has left the founding, empty if there is none.
func (c *consent) leftTo() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.founder == c.self {
		return ""
	}
	return c.founder
}

// stand returns to whom the node leaves the founding: itself if it has agreed to nobody, which is not final before decide.
func (c *consent) stand() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.founder == "" {
		c.founder = c.self
	}
	return c.founder
}

// decide makes it final that this node founds. It reports false if the node has given way to another one meanwhile.
func (c *consent) decide() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.founds = c.founder == c.self
	return c.founds
}

// nameOf returns the name in a server id.
func nameOf(serverID string) string {
	name, _, _ := strings.Cut(serverID, ".")
	return name
}

// founding decides whether a node founds a cluster together with others, whom it asks one by one whether they leave it to this node.
type founding struct {
	self    gossip.Info
	expect  int // distinct names
	consent *consent
	ask     func(ctx context.Context, addr, asker string) (node.Introduction, error)
}

// ready says why nothing can be founded yet, going by what gossip knows; empty if the others are to be asked. It is for people.
func (f *founding) ready(members []gossip.Member) (why string) {
	names := []string{f.self.Name}
	for i := range members {
		m := &members[i]
		switch {
		case m.ServerID == f.self.ServerID:
		case m.Cluster != "":
			return fmt.Sprintf("%s has cluster %s, and does not answer", m.ServerID, m.Cluster)
		case m.Alive && m.Name == f.self.Name:
			return fmt.Sprintf("%s has this node's name: give each node a --node-id of its own", m.ServerID)
		case m.Alive:
			names = append(names, m.Name)
		case m.Name != f.self.Name && !returned(members, m.Name): // of this name it was an earlier life of this node, whose data directory would tell
			// It may have founded before it fell silent.
			return fmt.Sprintf("%s is silent, and may have founded the cluster: start it again, or this one if that one is gone for good", m.ServerID)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	switch {
	case len(names) < f.expect:
		return fmt.Sprintf("%d of %d nodes are there: %s", len(names), f.expect, strings.Join(names, ", "))
	case names[0] != f.self.Name:
		return "it is for " + names[0] + " to found it"
	default:
		return ""
	}
}

// founders returns the nodes that found the cluster, in order of their names: this one, and of those that are alive as many as are expected.
func (f *founding) founders(members []gossip.Member) []cluster.Founder {
	all := []gossip.Info{f.self}
	for i := range members {
		if m := &members[i]; m.Alive && m.Cluster == "" && m.ServerID != f.self.ServerID {
			all = append(all, m.Info)
		}
	}
	slices.SortStableFunc(all, func(a, b gossip.Info) int { return strings.Compare(a.Name, b.Name) })
	all = slices.CompactFunc(all, func(a, b gossip.Info) bool { return a.Name == b.Name })
	var founders []cluster.Founder
	for _, one := range all[:min(f.expect, len(all))] {
		founders = append(founders, cluster.Founder{ServerID: one.ServerID, Zone: one.Zone})
	}
	return founders
}

// returned reports whether a node of that name is alive.
func returned(members []gossip.Member, name string) bool {
	return slices.ContainsFunc(members, func(m gossip.Member) bool { return m.Alive && m.Name == name })
}

// try asks all others, and decides: it returns nothing if this node founds the cluster, else why it does not, for people.
func (f *founding) try(ctx context.Context, members []gossip.Member) (why string) {
	asked := map[string]string{} // to whom each leaves it
	for i := range members {
		m := &members[i]
		if !m.Alive || m.ServerID == f.self.ServerID {
			continue
		}
		asking, cancel := context.WithTimeout(ctx, helloWait)
		intro, err := f.ask(asking, m.PeerAddr, f.self.ServerID)
		cancel()
		switch {
		case err != nil:
			return fmt.Sprintf("%s does not answer: %s", m.ServerID, err)
		case intro.ServerID != m.ServerID:
			return fmt.Sprintf("at the address of %s there is %s", m.ServerID, intro.ServerID)
		case intro.ClusterID != "":
			return fmt.Sprintf("%s has cluster %s", m.ServerID, intro.ClusterID)
		case intro.Format < cluster.FoundingFormat:
			return fmt.Sprintf("%s runs an earlier version of belfry, which founds clusters in another way: run the same version on all nodes", m.ServerID)
		}
		asked[m.ServerID] = intro.Founder
	}
	self := f.self.ServerID
	if mine := f.consent.stand(); mine != self {
		return fmt.Sprintf("it was left to %s: start it again", mine)
	}
	for _, other := range slices.Sorted(maps.Keys(asked)) {
		// A node that gave way founds nothing: what others agreed to with it holds for the one to which it gave way, whose name comes before.
		founder := asked[other]
		for range asked {
			if next := asked[founder]; next != "" {
				founder = next
			}
		}
		if founder != self {
			return fmt.Sprintf("%s has left it to %s: start that one again", other, orNobody(founder))
		}
	}
	if !f.consent.decide() {
		return "another node asked to found it"
	}
	return ""
}

// orNobody writes a server id that may be missing.
func orNobody(serverID string) string {
	if serverID == "" {
		return "nobody"
	}
	return serverID
}
