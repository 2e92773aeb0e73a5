package ui

import (
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/ui/fallback"
	"github.com/belfrydb/belfry/rpc/ui/form"
	"github.com/belfrydb/belfry/rpc/ui/format"
	"github.com/belfrydb/belfry/rpc/ui/health"
	"github.com/belfrydb/belfry/rpc/ui/markup"
	"github.com/belfrydb/belfry/rpc/ui/outcome"
)

// nodePage is the page of a node.
func nodePage(n *belfryv1.Node) string {
	return markup.Query("node", "name", n.Name, "incarnation", n.Incarnation)
}

func (p *Pages) showNode(v *visit) (content, error) {
	c, err := p.admin.GetCluster(v.ctx, &belfryv1.GetClusterRequest{})
	if err != nil {
		return content{}, err
	}
	var node *belfryv1.Node
	for _, n := range c.Nodes {
		if n.Name == v.param("name") && (n.Incarnation == v.param("incarnation") || v.param("incarnation") == "") {
			node = n
		}
	}
	if node == nil {
		return content{}, fmt.Errorf("%w: no node %q has this incarnation", outcome.ErrAbsent, v.param("name"))
	}
	restart, why := health.Restart(node, health.Needed(c)[node.Name])
	title := g.Group{g.Text(node.Name), markup.Tag(format.Word(node.State)), g.If(node.Name == p.cfg.Name,
		markup.Tag("this node"))}
	body := g.Group{
		markup.Path("Cluster", "cluster"), h.H1(title), fallback.MarkCatalog(c, v.clock),
		g.Map(node.Conditions, func(c *belfryv1.NodeCondition) g.Node {
			return h.P(h.Class("warning"), h.Strong(g.Text(c.Kind)), g.Text(" since "), v.when(c.Since),
				g.Text(": "+c.Message))
		}),
		g.If(len(node.UnreachedBy) > 0,
			h.P(h.Class("warning"), g.Text("Not reached by "+strings.Join(node.UnreachedBy, ", ")+"."))),
		markup.Figures(markup.Figure{Name: "Leads", Value: format.Plural(int(node.Leads), "shard")},
			markup.Figure{Name: "Replicas", Value: format.Grouped(node.Replicas)},
			markup.Figure{Name: "Restart it now?", Value: restart, Note: why, Bad: why != ""}),
		h.Div(h.Class("columns"),
			markup.Section("Node", markup.Facts(v.timeFact("Silent since", node.SilentSince),
				markup.Fact("Clients reach it at", node.Address),
				markup.Fact("Nodes reach it at", node.PeerAddress), markup.Fact("Zone", node.Zone), markup.Fact("Version",
					node.Version),
				markup.Fact("Time-zone data", node.TimeZoneData),
				markup.Fact("Disk free", health.DiskFree(node)), markup.Fact("Clock", health.ClockOffset(node)),
				v.timeFact("Sent its last backup", node.BackupAt),
				markup.Fact("Reads formats up to", format.Grouped(node.Format)), markup.Fact("Incarnation", node.Incarnation))),
			markup.Section("Its replicas", v.nodeReplicas(c.Shards, node))),
	}
	if !p.cfg.ReadOnly {
		body = append(body, markup.Section("Actions", v.nodeActions(node)))
	}
	return content{title: node.Name, entry: "Cluster", live: true, body: body}, nil
}

// nodeReplicas shows which shards a node has, and how it takes part in each.
func (v *visit) nodeReplicas(shards []*belfryv1.Shard, node *belfryv1.Node) g.Node {
	var rows []g.Node
	for _, s := range shards {
		for _, r := range s.Replicas {
			if r.Node != node.Name || r.Incarnation != "" && r.Incarnation != node.Incarnation {
				continue
			}
			part := "votes"
			switch {
			case s.Leader == node.Name:
				part = "leads"
			case !r.Voter:
				part = "follows without a vote"
			}
			state := g.Text(part)
			if r.BehindSince != nil {
				state = g.Group{state, markup.Bad(" behind")}
			}
			if r.SnapshotAt != nil {
				state = g.Group{state, g.Text(", snapshot of "), v.when(r.SnapshotAt)}
			}
			rows = append(rows, markup.FactOf("Shard "+strconv.Itoa(int(s.Shard)), state))
		}
	}
	if len(rows) == 0 {
		return h.P(g.Text("None."))
	}
	return markup.Facts(rows...)
}

func (v *visit) nodeActions(n *belfryv1.Node) g.Node {
	hidden := []string{"name", n.Name, "incarnation", n.Incarnation}
	drain := markup.Acting("undrain", hidden, markup.Button("Stop draining: let it take replicas again"))
	if !n.Draining {
		drain = markup.Acting("drain", hidden,
			markup.Button(fmt.Sprintf("Drain: move %s and %s away", format.Plural(int(n.Leads), "leadership"),
				format.Plural(int(n.Replicas), "replica"))),
			h.Label(h.Input(h.Type("checkbox"), h.Name("force"), h.Value("yes")),
				g.Text(" although shards then have fewer voters")),
			h.Span(h.Class("help"), g.Text(health.Drain(n))))
	}
	remove := h.P(h.Class("help"),
		g.Text("A node that answers is not removed: drain it, stop it, and remove it then."))
	if n.State == belfryv1.NodeState_NODE_STATE_SILENT {
		remove = markup.Acting("remove-node", hidden, v.Confirmation("Type the name of the node", "confirm"),
			markup.DangerButton("Forget the node and its "+format.Plural(int(n.Replicas), "replica")),
			h.Span(h.Class("help"), g.Text("What it held is replaced from the other replicas. Its data directory must not be "+
				"started again.")))
	}
	return h.Div(h.Class("actions"), drain, remove)
}

func (p *Pages) drainNode(v *visit) (string, error) { return p.setDraining(v, true) }

func (p *Pages) undrainNode(v *visit) (string, error) { return p.setDraining(v, false) }

func (p *Pages) setDraining(v *visit, draining bool) (string, error) {
	res, err := p.admin.DrainNode(v.ctx, &belfryv1.DrainNodeRequest{
		Name: v.param("name"), Incarnation: v.param("incarnation"), Draining: proto.Bool(draining),
		Force: draining && v.param("force") == "yes",
	})
	if err != nil {
		return "", err
	}
	done := "undrain"
	if draining {
		done = "drain"
	}
	return markup.Query("node", "name", res.Node.Name, "incarnation", res.Node.Incarnation, "done", done), nil
}

// removeNode forgets a node for good. Its name must have been typed.
func (p *Pages) removeNode(v *visit) (string, error) {
	name := v.param("name")
	if err := form.Confirmed(v.param, "confirm", name, "forget the node"); err != nil {
		return "", err
	}
	_, err := p.admin.RemoveNode(v.ctx, &belfryv1.RemoveNodeRequest{Name: name, Incarnation: v.param("incarnation")})
	return markup.Query("cluster", "done", "remove-node"), err
}

// transferLeader has the leader of a shard hand over to another voter.
func (p *Pages) transferLeader(v *visit) (string, error) {
	shard, err := strconv.ParseUint(v.param("shard"), 10, 32)
	if err != nil {
		return "", formError("shard", "%q is no number of a shard", v.param("shard"))
	}
	res, err := p.admin.TransferLeader(v.ctx, &belfryv1.TransferLeaderRequest{Shard: uint32(shard), To: v.param("to")})
	if err != nil {
		return "", err
	}
	done := "transfer"
	if res.Leader == res.Previous {
		done = "transfer-same"
	}
	return markup.Query("cluster", "done", done), nil
}
