package ui

import (
	"fmt"
	"strconv"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/ui/form"
	"github.com/belfrydb/belfry/rpc/ui/format"
	"github.com/belfrydb/belfry/rpc/ui/inputs"
	"github.com/belfrydb/belfry/rpc/ui/markup"
	"github.com/belfrydb/belfry/rpc/ui/sums"
)

// namespacesMax is how many namespaces a page shows.
const namespacesMax = 200

func (p *Pages) listNamespaces(v *visit) (content, error) {
	res, err := p.admin.ListNamespaces(v.ctx, &belfryv1.ListNamespacesRequest{})
	if err != nil {
		return content{}, err
	}
	queues, err := v.allQueues()
	if err != nil {
		return content{}, err
	}
	all := sums.Namespaces(queues.queues, res.Namespaces)
	var rows g.Group
	for _, n := range all[:min(len(all), namespacesMax)] {
		used := n.GetNamespaceResponse
		if n.HasQuota { // what is compared with a limit is of now, and of all queues
			used, err = p.admin.GetNamespace(v.ctx, &belfryv1.GetNamespaceRequest{Name: n.Namespace.Name})
			if err != nil {
				return content{}, err
			}
		}
		rows = append(rows, namespaceRow(used))
	}
	hidden := len(all) - len(rows)
	return content{title: "Namespaces", entry: "Namespaces", live: true, body: g.Group{
		h.H1(g.Text("Namespaces")), v.catalogAge(),
		h.P(h.Class("help"), g.Text("The namespace of a queue is the part of its name before the first slash: that of "+
			"shop/orders is shop. Its page sets a quota for its queues together.")),
		g.If(len(res.Namespaces) == 0, h.P(g.Text("No namespace has a quota."))),
		g.If(len(rows) > 0, markup.Grid("Namespaces", markup.Headings("Namespace", "Queues", "Jobs", "Bytes", "Reserved",
			"Puts per second"), rows)),
		g.If(hidden > 0, h.P(g.Textf("%d more are not shown.", hidden))),
		markup.Filter("namespace", nil, markup.Field("Show the namespace", "name", h.Required(), h.MaxLength("255")),
			markup.Button("Show")),
	}}, nil
}

// namespaceRow shows what is used of a quota.
func namespaceRow(n *belfryv1.GetNamespaceResponse) g.Node {
	quota := n.Namespace
	return h.Tr(h.Th(h.Scope("row"), markup.Link(markup.Query("namespace", "name", quota.Name), quota.Name)),
		h.Td(h.Class("number"), markup.Link(markup.Query("queues", "filter", quota.Name+"/"), format.Grouped(n.Queues))),
		markup.Number(usedOf(n.Jobs, quota.MaxJobs, format.Grouped[uint64])), markup.Number(usedOf(n.Bytes, quota.MaxBytes,
			format.Size)),
		markup.Number(usedOf(n.InFlight, quota.MaxInFlight, format.Grouped[uint64])),
		markup.Number(limitText(strconv.FormatUint(quota.PutsPerSecond, 10))))
}

// usedOf writes how much of a limit is used; 0 is no limit.
func usedOf(used, limit uint64, write func(uint64) string) string {
	if limit == 0 {
		return write(used)
	}
	return fmt.Sprintf("%s of %s (%.1f %%)", write(used), write(limit), 100*float64(used)/float64(limit))
}

func (p *Pages) showNamespace(v *visit) (content, error) {
	res, err := p.admin.GetNamespace(v.ctx, &belfryv1.GetNamespaceRequest{Name: v.param("name")})
	if err != nil {
		return content{}, err
	}
	quota := res.Namespace
	has := quota.MaxJobs+quota.MaxBytes+quota.MaxInFlight+quota.PutsPerSecond > 0
	body := g.Group{
		markup.Path("Namespaces", "namespaces"), h.H1(g.Text(quota.Name)), v.catalogAge(),
		markup.Figures(markup.Figure{Name: "Queues", Value: format.Grouped(res.Queues), Target: markup.Query("queues",
			"filter", quota.Name+"/")},
			markup.Figure{Name: "Jobs", Value: usedOf(res.Jobs, quota.MaxJobs, format.Grouped[uint64])},
			markup.Figure{Name: "Bytes", Value: usedOf(res.Bytes, quota.MaxBytes, format.Size)},
			markup.Figure{Name: "Reserved", Value: usedOf(res.InFlight, quota.MaxInFlight, format.Grouped[uint64])},
			markup.Figure{Name: "Puts per second", Value: limitText(strconv.FormatUint(quota.PutsPerSecond, 10))}),
		g.If(len(quota.PendingShards) > 0, h.P(h.Class("warning"),
			g.Textf("The quota does not hold yet in the shards %v.", quota.PendingShards))),
	}
	if !p.cfg.ReadOnly {
		body = append(body, markup.Section("Quota", v.quotaForm(quota)))
	}
	if has && !p.cfg.ReadOnly {
		body = append(body, markup.Section("Remove the quota", h.Div(h.Class("actions"),
			markup.Acting("delete-namespace", []string{"name", quota.Name},
				v.Confirmation("Type the name of the namespace", "confirm"), markup.DangerButton("Remove the quota"),
				h.Span(h.Class("help"), g.Text("Its "+format.Plural(int(res.Queues),
					"queue")+" and their jobs stay, without limits."))))))
	}
	return content{title: quota.Name, entry: "Namespaces", body: body}, nil
}

func (v *visit) quotaForm(n *belfryv1.Namespace) g.Node {
	limit := func(label, name string, value uint64, help string) g.Node {
		return v.Kept(inputs.Row{Label: label, Name: name, Value: strconv.FormatUint(value, 10),
			Help: help + "; 0 for no limit"})
	}
	return inputs.Large("namespace", markup.HiddenFields([]string{"name", n.Name}),
		limit("Jobs", "maxJobs", n.MaxJobs, "in all its queues together"),
		limit("Bytes", "maxBytes", n.MaxBytes, "of bodies, headers, chosen ids and keys, and of schedules"),
		limit("Reserved at one time", "maxInFlight", n.MaxInFlight, "jobs that consumers hold"),
		limit("Puts per second", "putsPerSecond", n.PutsPerSecond, "at most 1000000000"),
		h.P(h.Class("ends"), markup.Button("Set the quota")))
}

// setNamespace sets the limits that the person changed.
func (p *Pages) setNamespace(v *visit) (string, error) {
	req, err := form.ReadNamespace(v.r.PostForm.Get)
	if err != nil {
		return "", err
	}
	if req == nil {
		return "", formError("", "nothing was changed, so nothing was sent")
	}
	_, err = p.admin.SetNamespace(v.ctx, req)
	return markup.Query("namespace", "name", v.param("name"), "done", "namespace"), err
}

// deleteNamespace removes the quota of a namespace, whose name must have been typed.
func (p *Pages) deleteNamespace(v *visit) (string, error) {
	name := v.param("name")
	if err := form.Confirmed(v.param, "confirm", name, "remove the quota"); err != nil {
		return "", err
	}
	_, err := p.admin.DeleteNamespace(v.ctx, &belfryv1.DeleteNamespaceRequest{Name: name})
	return markup.Query("namespaces", "done", "delete-namespace"), err
}
