package cluster

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/belfrydb/belfry/cmd/belfry/cli/render"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// renderCluster shows the cluster: what is wrong, then nodes, then shards.
func renderCluster(w io.Writer, c *belfryv1.GetClusterResponse) {
	health := "healthy"
	switch n := len(c.Problems); {
	case n > 0:
		health = render.Count(n, "problem")
	case len(c.Nodes) == 1 && c.ReplicationFactor > 1:
		health = "healthy, and alone: no other node has a copy"
	}
	fmt.Fprintf(w, "cluster %s, which speaks format %d, asked %s: %s\n", c.ClusterId, c.Format, c.AnsweredBy, health)
	for _, problem := range c.Problems {
		fmt.Fprintf(w, "  %s\n", problem)
	}
	renderPlacement(w, c)
	for _, advice := range c.Advice {
		fmt.Fprintf(w, "  advice: %s\n", advice)
	}
	fmt.Fprintln(w)
	renderNodes(w, c.Nodes)
	fmt.Fprintln(w)
	renderShards(w, c)
}

// renderPlacement prints which nodes are silent since when, and for each shard what is done and
// why.
func renderPlacement(w io.Writer, c *belfryv1.GetClusterResponse) {
	for _, n := range c.Nodes {
		if n.SilentSince == nil {
			continue
		}
		since, name := n.SilentSince.AsTime().Format(time.RFC3339), labelOf(c, n)
		if replacement := replacementOf(c, n); replacement != nil {
			fmt.Fprintf(w, "  %s is silent since %s; %s, which started anew under its name, takes its places, and then it is "+
				"forgotten\n", name, since, labelOf(c, replacement))
			continue
		}
		if before := earlierOf(c, n); before != nil {
			fmt.Fprintf(w, "  %s is silent since %s; it holds nothing yet, and %s has its places\n", name, since,
				labelOf(c, before))
			continue
		}
		if n.Replicas == 0 {
			fmt.Fprintf(w, "  %s is silent since %s; it holds nothing: 'belfry cluster remove %s' forgets it\n", name, since,
				name)
			continue
		}
		fmt.Fprintf(w, "  %s is silent since %s; after %s its replicas are replaced if another node can take them\n", n.Name,
			since, c.GracePeriod.AsDuration())
	}
	renderMoves(w, c.Moves)
}

// renderMoves says what is done about which shard, and once what is the same of several.
func renderMoves(w io.Writer, moves []*belfryv1.ShardMove) {
	var texts []string // in the order of the first shard of each
	shards := map[string][]string{}
	for _, m := range moves {
		if shards[m.Text] == nil {
			texts = append(texts, m.Text)
		}
		shards[m.Text] = append(shards[m.Text], fmt.Sprint(m.Shard))
	}
	for _, text := range texts {
		noun := "shard"
		if len(shards[text]) > 1 {
			noun = "shards"
		}
		fmt.Fprintf(w, "  %s %s: %s\n", noun, strings.Join(shards[text], ", "), text)
	}
}

// earlierOf returns a node with replicas of the name of one that has none; nil if there is none. To
// remove the latter would be to remove the one that has come for these places.
func earlierOf(c *belfryv1.GetClusterResponse, empty *belfryv1.Node) *belfryv1.Node {
	for _, other := range c.Nodes {
		if other.Name == empty.Name && other.Incarnation != empty.Incarnation && empty.Replicas == 0 && other.Replicas > 0 {
			return other
		}
	}
	return nil
}

// replacementOf returns the one node that answers under the name of a silent one; nil if there is
// none, or more.
func replacementOf(c *belfryv1.GetClusterResponse, silent *belfryv1.Node) (replacement *belfryv1.Node) {
	for _, other := range c.Nodes {
		if other.Name != silent.Name || other.Incarnation == silent.Incarnation ||
			other.State == belfryv1.NodeState_NODE_STATE_SILENT {
			continue
		}
		if replacement != nil {
			return nil
		}
		replacement = other
	}
	return replacement
}

// labelOf returns a node's name as a command takes it: with its incarnation if another has the same
// name.
func labelOf(c *belfryv1.GetClusterResponse, n *belfryv1.Node) string {
	for _, other := range c.Nodes {
		if other.Name == n.Name && other.Incarnation != n.Incarnation {
			return n.Name + "." + n.Incarnation
		}
	}
	return n.Name
}

// renderNodes shows the nodes, one a line.
func renderNodes(w io.Writer, nodes []*belfryv1.Node) {
	var lines [][]string
	for _, n := range nodes {
		state := render.Word(n.State)
		if n.Draining && n.State == belfryv1.NodeState_NODE_STATE_SILENT {
			state += ", draining"
		}
		lines = append(lines, []string{
			n.Name, state, render.OrDash(n.Address), render.OrDash(n.PeerAddress), render.OrDash(n.Zone),
			render.OrDash(n.Version), fmt.Sprint(n.Format), fmt.Sprint(n.Replicas), fmt.Sprint(n.Leads), n.Incarnation,
		})
	}
	render.Rows(w, []string{"NODE", "STATE", "CLIENTS", "PEERS", "ZONE", "VERSION", "FORMAT", "REPLICAS", "LEADS",
		"INCARNATION"}, lines)
}

// renderShards shows the shards, one a line, and the catalog after them.
func renderShards(w io.Writer, c *belfryv1.GetClusterResponse) {
	var lines [][]string
	for _, s := range c.Shards {
		voters, others := replicas(s.Replicas)
		line := []string{fmt.Sprint(s.Shard), render.OrDash(s.Leader), fmt.Sprint(s.Term), voters, others,
			render.Grouped(s.AppliedIndex), s.Digest, render.Jobs(s.Jobs)}
		if len(s.Replicas) == 0 { // no answering node has it, so its state is unknown
			line[2], line[5], line[6], line[7] = "-", "-", "-", "-"
		}
		lines = append(lines, line)
	}
	if g := c.Catalog; g != nil {
		voters, others := replicas(g.Replicas)
		lines = append(lines, []string{"catalog", render.OrDash(g.Leader), fmt.Sprint(g.Term), voters, others, "", "", ""})
	}
	render.Rows(w, []string{"SHARD", "LEADER", "TERM", "VOTERS", "OTHERS", "APPLIED", "DIGEST", "JOBS"}, lines)
}

// replicas names the voters and the others; those whose node does not answer have a question mark.
func replicas(all []*belfryv1.Replica) (voters, others string) {
	var vote, follow []string
	for _, r := range all {
		name := r.Node
		if r.Silent {
			name += "?"
		}
		if r.Voter {
			vote = append(vote, name)
		} else {
			follow = append(follow, name)
		}
	}
	return render.OrDash(strings.Join(vote, " ")), render.OrDash(strings.Join(follow, " "))
}

// renderDrain says what became of a drain.
func renderDrain(w io.Writer, n *belfryv1.Node) {
	switch {
	case !n.Draining:
		fmt.Fprintf(w, "%s takes replicas again\n", n.Name)
	case held(n) > 0:
		fmt.Fprintf(w, "%s is draining: %s left, leads %s\n", n.Name, render.Count(n.Replicas, "replica"),
			render.Count(n.Leads, "shard"))
	default:
		fmt.Fprintf(w, "%s is empty: once it is stopped, 'belfry cluster remove %s' forgets it\n", n.Name, n.Name)
	}
}

// renderRemoval says what will be gone, and whether there are nodes that can replace it.
func renderRemoval(w io.Writer, c *belfryv1.GetClusterResponse, n *belfryv1.Node) {
	holds, others := "it holds no replicas", uint32(0)
	for _, other := range c.Nodes {
		if other != n && other.State == belfryv1.NodeState_NODE_STATE_LIVE {
			others++
		}
	}
	switch {
	case n.Replicas > 0 && others < c.ReplicationFactor:
		holds = render.Count(n.Replicas, "replica") +
			" on it will be missed, because the other nodes are too few to replace what it holds"
	case n.Replicas > 0:
		holds = render.Count(n.Replicas, "replica") + " on it will be replaced from the others"
	}
	fmt.Fprintf(w, "Removing %s (%s, incarnation %s) is for good: %s.\n", n.Name, render.Word(n.State), n.Incarnation,
		holds)
}
