package ui

import (
	"cmp"
	"strconv"
	"strings"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/ui/fallback"
	"github.com/belfrydb/belfry/rpc/ui/format"
	"github.com/belfrydb/belfry/rpc/ui/health"
	"github.com/belfrydb/belfry/rpc/ui/markup"
)

func (p *Pages) showCluster(v *visit) (content, error) {
	c, err := p.admin.GetCluster(v.ctx, &belfryv1.GetClusterRequest{})
	if err != nil {
		return content{}, err
	}
	var moves []string
	for _, m := range c.Moves {
		moves = append(moves, "Shard "+strconv.Itoa(int(m.Shard))+": "+m.Text)
	}
	needed := health.Needed(c)
	var transfer g.Node
	if !p.cfg.ReadOnly && len(c.Nodes) > 1 {
		transfer = markup.Section("Hand over a leadership", v.transferForm(c))
	}
	return content{title: "Cluster", entry: "Cluster", live: true, body: g.Group{
		h.H1(g.Text("Cluster")), fallback.MarkCatalog(c, v.clock),
		health.Problems(c),
		markup.Section("Nodes", markup.Grid("Nodes",
			markup.Headings("Node", "State", "Restart it now?", "Leads", "Replicas", "Address", "Zone", "Version"),
			g.Map(c.Nodes, func(n *belfryv1.Node) g.Node { return v.nodeRow(n, needed[n.Name]) }))),
		markup.Section("Shards", markup.Grid("Shards", markup.Headings("Shard", "Leader", "Replicas", "Jobs", "Term",
			"Applied", "Clock"),
			g.Map(c.Shards, v.shardRow))),
		g.If(len(moves) > 0, markup.Section("Moves", markup.List("moves", moves))),
		transfer, v.mirrored(c.Nodes),
		markup.Section("The cluster", v.clusterFacts(c)),
	}}, nil
}

// transferForm has the leader of a shard hand over to another node.
func (v *visit) transferForm(c *belfryv1.GetClusterResponse) g.Node {
	var shards []markup.Option
	to := []markup.Option{{Text: "the voter that leads fewest"}}
	for _, s := range c.Shards {
		number := strconv.Itoa(int(s.Shard))
		shards = append(shards, markup.Option{Value: number, Text: number + ", led by " + cmp.Or(s.Leader, "none")})
	}
	for _, n := range c.Nodes {
		to = append(to, markup.Option{Value: n.Name, Text: n.Name})
	}
	return h.Div(h.Class("actions"), markup.Acting("transfer", nil, markup.Choice("Shard", "shard", v.Typed("shard",
		""), shards...),
		markup.Choice("to", "to", v.Typed("to", ""), to...), markup.Button("Hand over"),
		h.Span(h.Class("help"), g.Text("Placement keeps leaderships even, and may move this one again."))))
}

// clusterFacts shows the settings of the cluster, and what is true of it as a whole.
func (v *visit) clusterFacts(c *belfryv1.GetClusterResponse) g.Node {
	creates := "makes it"
	if c.NoAutoCreate {
		creates = "is refused"
	}
	return markup.Facts(markup.Fact("Voters of a shard", format.Grouped(c.ReplicationFactor)),
		markup.Fact("Voters needed for a change", format.Grouped(c.MinVoters)),
		markup.Fact("Silent nodes replaced after", format.Duration(c.GracePeriod)),
		markup.Fact("Put into an unknown queue", creates),
		markup.Fact("Format of the logs", format.Grouped(c.Format)), markup.Fact("Leader of the catalog",
			c.Catalog.GetLeader()),
		markup.FactOf("Last backup", v.lastBackup(c.Nodes)), markup.Fact("Id", c.ClusterId))
}

// lastBackup says when a node last sent a complete backup.
func (v *visit) lastBackup(nodes []*belfryv1.Node) g.Node {
	var last *belfryv1.Node
	for _, n := range nodes {
		if n.BackupAt != nil && (last == nil || n.BackupAt.AsTime().After(last.BackupAt.AsTime())) {
			last = n
		}
	}
	if last == nil {
		return g.Text("none, as far as the nodes that answer know")
	}
	return g.Group{v.when(last.BackupAt), g.Text(", " + v.clock.Relative(last.BackupAt) + ", from " + last.Name)}
}

// mirrored shows the queues of Redisson that nodes bridge; nothing if there are none.
func (v *visit) mirrored(nodes []*belfryv1.Node) g.Node {
	var rows g.Group
	for _, n := range nodes {
		for _, q := range n.Mirrored {
			state := g.Text("works")
			if q.Waits != "" {
				state = g.Text("waits: " + q.Waits)
			}
			rows = append(rows, h.Tr(h.Th(h.Scope("row"), g.Text(q.RedisQueue)),
				h.Td(markup.Link(markup.Query("queue", "queue", q.Queue), q.Queue)), h.Td(g.Text(n.Name)), h.Td(state),
				markup.Number(format.Grouped(q.Came)), markup.Number(format.Grouped(q.Delivered)),
				markup.Number(format.Grouped(q.Dead)), markup.Number(format.Grouped(q.SetAside)),
				markup.Number(format.Grouped(q.Failed)), markup.Number(format.Grouped(q.Left)), h.Td(v.when(q.LookedAt)),
				h.Td(v.when(q.EarliestDueAt)), h.Td(g.Text(format.Duration(q.Lateness)))))
		}
	}
	return g.If(rows != nil, markup.Section("Mirrored from Redis", markup.Grid("Mirrored from Redis",
		markup.Headings("Queue of Redis", "Queue", "Node", "State", "Came", "Delivered", "Dead", "Set aside", "Failures",
			"Left in Redis", "Looked", "First due", "Lateness"), rows)))
}

// nodeRow shows a node. needed has the groups that would have no majority without it.
func (v *visit) nodeRow(n *belfryv1.Node, needed []string) g.Node {
	state := g.Group{g.Text(format.Word(n.State))}
	if n.SilentSince != nil {
		state = append(state, g.Text(" since "), v.when(n.SilentSince))
	}
	for _, c := range n.Conditions {
		state = append(state, h.Br(), h.Strong(g.Text(c.Kind+" ")), g.Text(c.Message))
	}
	if len(n.UnreachedBy) > 0 {
		state = append(state, h.Br(), g.Text("not reached by "+strings.Join(n.UnreachedBy, ", ")))
	}
	word, why := health.Restart(n, needed)
	restart := g.Text(word)
	if why != "" {
		restart = markup.Bad(word + ": " + why)
	}
	name := g.Group{markup.Link(nodePage(n), n.Name), g.If(n.Name == v.pages.cfg.Name, markup.Tag("this node"))}
	return h.Tr(h.Th(h.Scope("row"), name), h.Td(state), h.Td(restart), markup.Number(format.Grouped(n.Leads)),
		markup.Number(format.Grouped(n.Replicas)), h.Td(g.Text(n.Address)), h.Td(g.Text(n.Zone)), h.Td(g.Text(n.Version)))
}

func (v *visit) shardRow(s *belfryv1.Shard) g.Node {
	var replicas g.Group
	for i, r := range s.Replicas {
		replicas = append(replicas, g.If(i > 0, g.Text(", ")), g.Text(r.Node), g.If(!r.Voter, g.Text(" (no vote)")),
			g.If(r.Silent, markup.Bad(" silent")), g.If(r.BehindSince != nil, markup.Bad(" behind")))
	}
	leader := g.Text(s.Leader)
	if s.Leader == "" {
		leader = markup.Bad("none")
	}
	return h.Tr(h.Th(h.Scope("row"), g.Text(strconv.Itoa(int(s.Shard)))), h.Td(leader), h.Td(replicas),
		markup.Number(format.Grouped(s.Jobs)), markup.Number(format.Grouped(s.Term)),
		markup.Number(format.Grouped(s.AppliedIndex)),
		h.Td(v.when(s.Time), g.If(s.ClockAhead != nil, markup.Bad(" "+format.Duration(s.ClockAhead)+" ahead"))))
}
