package server

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/belfrydb/belfry/cluster/catalog"
	"github.com/belfrydb/belfry/cluster/gossip"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node/peer"
)

// consent records which node may found a cluster, in the view of a node without one. A node agrees
// to only one founder, whose name sorts before its own, for as long as its process runs: the
// founder may have founded the cluster and be gone. So no two nodes get the consent of the same
// others. A later start of the same name replaces the earlier one: it would know of a cluster from
// its data directory.
type consent struct {
	self   string // server id
	shards int

	mu      sync.Mutex
	founder string // a server id, empty for none yet
	founds  bool   // this node is about to found, and no longer yields to another
}

// answer returns what the node tells another node over the peer port. asker is the node that wants
// to found the cluster; it is empty if the other node only asks.
func (c *consent) answer(asker string) peer.Introduction {
	c.mu.Lock()
	defer c.mu.Unlock()
	free := c.founder == "" || nameOf(c.founder) == nameOf(asker) || c.founder == c.self && !c.founds
	if asker != "" && free && nameOf(asker) < nameOf(c.self) {
		c.founder = asker
	}
	return peer.Introduction{ServerID: c.self, Shards: c.shards, Founder: c.founder, Format: fsm.LatestFormat}
}

// leftTo returns the other node that this one has agreed to as founder, empty if there is none.
func (c *consent) leftTo() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.founder == c.self {
		return ""
	}
	return c.founder
}

// stand returns the founder that the node agrees to. If it has agreed to none yet, that becomes the
// node itself, which is not final before decide.
func (c *consent) stand() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.founder == "" {
		c.founder = c.self
	}
	return c.founder
}

// decide makes it final that this node founds. It reports false if the node has agreed to another
// founder meanwhile.
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

// founding decides whether a node founds a cluster together with others. It asks each of them for
// its consent.
type founding struct {
	self    gossip.Info
	expect  int // distinct names
	consent *consent
	ask     func(ctx context.Context, addr, asker string) (peer.Introduction, error)
}

// ready returns why gossip shows that this node cannot found a cluster yet, as text for people. It
// is empty if the node should ask the others.
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
		case m.Name != f.self.Name && !returned(members, m.Name):
			// It may have founded before it fell silent. A silent member with this node's name was an
			// earlier start of this node, and the data directory would show its cluster.
			return fmt.Sprintf("%s is silent, and may have founded the cluster: start it again, or this one if that one is "+
				"gone for good", m.ServerID)
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

// founders returns the nodes that found the cluster, in the order of their names: the first
// f.expect of this node and the live members without a cluster.
func (f *founding) founders(members []gossip.Member) []catalog.Founder {
	all := []gossip.Info{f.self}
	for i := range members {
		if m := &members[i]; m.Alive && m.Cluster == "" && m.ServerID != f.self.ServerID {
			all = append(all, m.Info)
		}
	}
	slices.SortStableFunc(all, func(a, b gossip.Info) int { return strings.Compare(a.Name, b.Name) })
	all = slices.CompactFunc(all, func(a, b gossip.Info) bool { return a.Name == b.Name })
	var founders []catalog.Founder
	for _, one := range all[:min(f.expect, len(all))] {
		founders = append(founders, catalog.Founder{ServerID: one.ServerID, Zone: one.Zone})
	}
	return founders
}

// returned reports whether a node of that name is alive.
func returned(members []gossip.Member, name string) bool {
	return slices.ContainsFunc(members, func(m gossip.Member) bool { return m.Alive && m.Name == name })
}

// try asks all others and decides. It returns an empty text if this node founds the cluster, else
// why it does not, as text for people.
func (f *founding) try(ctx context.Context, members []gossip.Member) (why string) {
	asked := map[string]string{} // the founder that each node agrees to
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
		case intro.Format < catalog.FoundingFormat:
			return fmt.Sprintf("%s runs an earlier version of belfry, which founds clusters in another way: run the same "+
				"version on all nodes", m.ServerID)
		}
		asked[m.ServerID] = intro.Founder
	}
	self := f.self.ServerID
	if mine := f.consent.stand(); mine != self {
		return fmt.Sprintf("it was left to %s: start it again", mine)
	}
	for _, other := range slices.Sorted(maps.Keys(asked)) {
		// A node that yielded does not found. Consent to it counts for the node that it yielded to,
		// whose name sorts before its own.
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

// orNobody returns a server id, or "nobody" for an empty one.
func orNobody(serverID string) string {
	if serverID == "" {
		return "nobody"
	}
	return serverID
}
