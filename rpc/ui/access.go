package ui

import (
	"fmt"
	"strings"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// namespacesMax is how many namespaces a page shows.
const namespacesMax = 200

func (p *Pages) listNamespaces(v *visit) (content, error) {
	res, err := p.admin.ListNamespaces(v.ctx, &belfryv1.ListNamespacesRequest{})
	if err != nil {
		return content{}, err
	}
	var rows g.Group
	for _, n := range res.Namespaces[:min(len(res.Namespaces), namespacesMax)] {
		used, err := p.admin.GetNamespace(v.ctx, &belfryv1.GetNamespaceRequest{Name: n.Name})
		if err != nil {
			return content{}, err
		}
		rows = append(rows, namespaceRow(used))
	}
	table := h.P(g.Text("No namespace has a quota."))
	if len(rows) > 0 {
		table = grid("Namespaces", headings("Namespace", "Queues", "Jobs", "Bytes", "Reserved", "Puts per second"), rows)
	}
	hidden := len(res.Namespaces) - len(rows)
	return content{title: "Namespaces", entry: "Namespaces", live: true, body: g.Group{
		h.H1(g.Text("Namespaces")), table,
		g.If(hidden > 0, h.P(g.Textf("%d more are not shown.", hidden))),
	}}, nil
}

// namespaceRow shows what is used of a quota.
func namespaceRow(n *belfryv1.GetNamespaceResponse) g.Node {
	quota := n.Namespace
	of := func(used, limit uint64, write func(uint64) string) g.Node {
		if limit == 0 {
			return number(write(used))
		}
		return number(fmt.Sprintf("%s of %s (%.1f %%)", write(used), write(limit), 100*float64(used)/float64(limit)))
	}
	puts := "no limit"
	if quota.PutsPerSecond > 0 {
		puts = grouped(quota.PutsPerSecond)
	}
	return h.Tr(h.Th(h.Scope("row"), link(query("queues", "filter", quota.Name+"/"), quota.Name)),
		number(grouped(n.Queues)), of(n.Jobs, quota.MaxJobs, grouped[uint64]), of(n.Bytes, quota.MaxBytes, size),
		of(n.InFlight, quota.MaxInFlight, grouped[uint64]), number(puts))
}

func (p *Pages) listTokens(v *visit) (content, error) {
	res, err := p.admin.ListTokens(v.ctx, &belfryv1.ListTokensRequest{PageSize: queuesAtOnce})
	if err != nil {
		return content{}, err
	}
	table := h.P(g.Text("No token was made. Root tokens are in a file of each node and are not shown."))
	if len(res.Tokens) > 0 {
		table = grid("Tokens", headings("Id", "Scopes", "About", "Made", "Ends"),
			g.Map(res.Tokens, func(t *belfryv1.Token) g.Node {
				ends := g.Text("never")
				if t.NotAfter != nil {
					ends = v.when(t.NotAfter)
				}
				return h.Tr(h.Th(h.Scope("row"), g.Text(t.Id)), h.Td(h.Code(g.Text(strings.Join(t.Scopes, " ")))),
					h.Td(h.Class("free"), g.Text(visible(t.About))), h.Td(v.when(t.CreatedAt)), h.Td(ends))
			}))
	}
	return content{title: "Tokens", entry: "Tokens", body: g.Group{
		h.H1(g.Text("Tokens")), table,
		g.If(res.NextPageToken != "", h.P(g.Text("There are more: "), h.Code(g.Text("belfry token list")))),
	}}, nil
}
