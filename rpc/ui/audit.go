package ui

import (
	"cmp"
	"strings"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/ui/format"
	"github.com/belfrydb/belfry/rpc/ui/markup"
	"github.com/belfrydb/belfry/rpc/ui/payload"
)

const (
	// auditOnPage is how many calls a page has.
	auditOnPage = 50
	// auditShownMax is how many characters of a request a page shows.
	auditShownMax = 300
)

// listAudit shows the last audited calls of all nodes.
func (p *Pages) listAudit(v *visit) (content, error) {
	call, token, failed := strings.TrimSpace(v.param("call")), strings.TrimSpace(v.param("token")), v.param("outcome")
	req := &belfryv1.ListAuditRequest{
		PageSize: auditOnPage, PageToken: v.param("from"), Procedure: call, Token: token, FailedOnly: failed == "failed",
	}
	res, err := p.admin.ListAudit(v.ctx, req)
	if err != nil {
		return content{}, err
	}
	table := h.P(g.Text("No call of this selection is kept."))
	if len(res.Records) > 0 {
		table = markup.Grid("Audited calls", markup.Headings("Ended", "Who", "Call", "Request", "Outcome", "Took", "Node"),
			g.Map(res.Records, v.auditRow))
	}
	filtered := []string{"call", call, "token", token, "outcome", failed}
	next := markup.Query("audit", append(filtered, "from", res.NextPageToken)...)
	return content{title: "Audit", entry: "Audit", live: req.PageToken == "", body: g.Group{
		h.H1(g.Text("Audit")), v.auditReach(res.Nodes),
		markup.Filter("audit", nil,
			markup.Field("Call", "call", h.Value(call), h.Type("search"), h.MaxLength("256"), h.Placeholder("PurgeQueue")),
			markup.Field("Token", "token", h.Value(token), h.Type("search"), h.MaxLength("64"), h.Placeholder("id or nobody")),
			markup.Choice("Outcome", "outcome", failed, markup.Option{Value: "", Text: "all"}, markup.Option{Value: "failed",
				Text: "failed or refused"}), markup.Button("Show")),
		table,
		h.P(h.Class("pager"),
			g.If(req.PageToken != "", markup.Link(markup.Query("audit", filtered...), "the newest")),
			g.If(res.NextPageToken != "", g.Group{g.Text(" "), h.A(h.Rel("next"), h.Href(next), g.Text("older calls"))})),
	}}, nil
}

// auditReach says how far the memory of the nodes reaches, and which nodes are missing.
func (v *visit) auditReach(nodes []*belfryv1.AuditNode) g.Node {
	var missing []string
	var kept g.Group
	for _, n := range nodes {
		if n.Since == nil {
			missing = append(missing, "The calls of node "+n.Name+" are missing, because it could not be asked: "+
				payload.Visible(n.Error))
			continue
		}
		kept = append(kept, g.If(len(kept) > 0, g.Text("; ")), g.Textf("node %s has %s, all since ", n.Name,
			format.Grouped(n.Kept)),
			v.when(n.Since))
	}
	return g.Group{
		markup.List("warning", missing),
		h.P(g.Text("Each node keeps its last "+format.Grouped(auditKept)+" calls in memory: "), kept,
			g.Text(". The log of each node has all of them.")),
	}
}

func (v *visit) auditRow(r *belfryv1.AuditRecord) g.Node {
	who := h.Td(h.Class("free"), g.If(r.TokenAbout != "", g.Text(payload.Visible(r.TokenAbout)+" · ")),
		h.Code(g.Text(cmp.Or(payload.Visible(r.Token), "nobody"))), g.Text(" · "+payload.Visible(r.Address)),
		g.If(r.Dashboard, markup.Tag("dashboard")))
	more, class := "", "free"
	if r.Outcome != "ok" {
		class += " bad"
	}
	if r.RefusedEntries > 0 {
		more = " · " + format.Grouped(r.RefusedEntries) + " entries, the first of " + payload.Visible(r.Queue)
	}
	if r.MadeToken != "" {
		more += " · made " + r.MadeToken
	}
	if r.Unrecorded > 0 {
		more += " · " + format.Grouped(r.Unrecorded) + " refused calls before have no record"
	}
	request := []rune(payload.Visible(r.Request))
	shown := string(request[:min(len(request), auditShownMax)])
	if len(request) > auditShownMax {
		shown += "… (belfry audit -o json shows more)"
	}
	procedure := payload.Visible(r.Procedure)
	return h.Tr(h.Td(v.when(r.EndedAt)), who,
		h.Td(h.Title(procedure), g.Text(procedure[strings.LastIndexByte(procedure, '/')+1:])),
		h.Td(h.Class("free"), h.Code(g.Text(shown))),
		h.Td(h.Class(class), h.Title("request_id "+payload.Visible(r.CallId)),
			g.Text(payload.Visible(r.Outcome)+more)),
		markup.Number(format.Duration(r.Took)), h.Td(g.Text(r.Node)))
}

// auditKept is how many audited calls a node keeps.
const auditKept = uint32(1000)
