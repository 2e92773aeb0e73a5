// Package health says on pages how a cluster and its nodes are.
package health

import (
	"slices"
	"strconv"
	"strings"
	"time"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/findings"
	"github.com/belfrydb/belfry/rpc/ui/format"
	"github.com/belfrydb/belfry/rpc/ui/markup"
)

// Summary says how a cluster is, and what 'belfry doctor' says of it; nil stands for a cluster that
// the person may not see.
func Summary(c *belfryv1.GetClusterResponse) g.Node {
	if c == nil {
		return h.P(g.Text("Your token does not show the state of the cluster."))
	}
	var wrong, advice []findings.Finding
	for _, f := range findings.Of(c) {
		if f.Advice {
			advice = append(advice, f)
		} else {
			wrong = append(wrong, f)
		}
	}
	state := g.Group{g.Text(": healthy")}
	if len(wrong) > 0 {
		state = g.Group{g.Text(": "), markup.Bad(format.Plural(len(wrong), "problem"))}
	}
	if len(advice) > 0 {
		state = append(state, g.Text(", "+format.Plural(len(advice), "piece")+" of advice"))
	}
	return g.Group{
		h.P(markup.Link("cluster", format.Plural(len(c.Nodes), "node")+", "+format.Plural(len(c.Shards), "shard")), state),
		table("What looks wrong", wrong), table("Advice", advice),
	}
}

// table shows findings; nothing if there are none.
func table(name string, all []findings.Finding) g.Node {
	return g.If(len(all) > 0, markup.Grid(name, markup.Headings(name, "What to do"),
		g.Map(all, func(f findings.Finding) g.Node {
			return h.Tr(h.Th(h.Scope("row"), h.Class("free"), g.Text(f.What)), h.Td(h.Class("free"), g.Text(f.Do)))
		})))
}

// Problems lists what is wrong in a cluster, and then what would make it safer.
func Problems(c *belfryv1.GetClusterResponse) g.Node {
	var advice []string
	for _, a := range c.Advice {
		advice = append(advice, "Advice: "+a)
	}
	return g.Group{
		g.If(len(c.Problems) == 0, h.P(g.Text("Healthy."))),
		markup.List("problems", c.Problems), markup.List("advice", advice),
	}
}

// Needed returns for each node the groups that would have no majority if it stopped, because too many
// of their other voters are silent or behind already: shards, and the catalog.
func Needed(c *belfryv1.GetClusterResponse) map[string][]string {
	of := map[string][]string{}
	for _, s := range c.GetShards() {
		need(of, "shard "+strconv.Itoa(int(s.Shard)), s.Voters, s.Replicas)
	}
	need(of, "the catalog", c.GetCatalog().GetVoters(), c.GetCatalog().GetReplicas())
	return of
}

// need adds a group to the nodes that it needs. One with a single voter is left out: it stops with its
// node whenever that is.
func need(of map[string][]string, group string, voters []string, replicas []*belfryv1.Replica) {
	var well []string
	for _, r := range replicas {
		if r.Voter && !r.Silent && r.BehindSince == nil {
			well = append(well, r.Node)
		}
	}
	majority := len(voters)/2 + 1
	for _, node := range voters {
		if slices.Contains(well, node) && len(well)-1 < majority && len(voters) > 1 {
			of[node] = append(of[node], group)
		}
	}
}

// Restart says whether a node can be restarted now, and why not. needed has the groups that would have
// no majority without it.
func Restart(n *belfryv1.Node, needed []string) (word, why string) {
	switch {
	case silent(n):
		return "it does not answer", ""
	case len(needed) == 0:
		return "yes", ""
	default:
		return "no", "without it there would be no majority of " + strings.Join(needed, ", ")
	}
}

// Drain says what follows when a node is drained.
func Drain(n *belfryv1.Node) string {
	if silent(n) {
		return "It does not answer. Drained, its replicas are replaced at once, and not only after the grace period."
	}
	return "It goes on serving, and everything moves to nodes that can take it."
}

func silent(n *belfryv1.Node) bool { return n.State == belfryv1.NodeState_NODE_STATE_SILENT }

// DiskFree says how much of a node's disk is free, and below how much puts are refused; nothing if the
// node does not say.
func DiskFree(n *belfryv1.Node) string {
	if n.DiskFreeBytes == 0 && n.DiskLowBytes == 0 {
		return ""
	}
	return format.Size(n.DiskFreeBytes) + "; below " + format.Size(n.DiskLowBytes) + " puts are refused"
}

// ClockOffset says how far a node's clock is from the others; nothing if it compared none.
func ClockOffset(n *belfryv1.Node) string {
	if n.ClockOffset == nil {
		return ""
	}
	offset := n.ClockOffset.AsDuration().Round(10 * time.Microsecond)
	if offset < 0 {
		return (-offset).String() + " behind the median of the nodes"
	}
	return offset.String() + " ahead of the median of the nodes"
}
