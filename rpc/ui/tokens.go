package ui

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/ui/form"
	"github.com/belfrydb/belfry/rpc/ui/format"
	"github.com/belfrydb/belfry/rpc/ui/inputs"
	"github.com/belfrydb/belfry/rpc/ui/markup"
	"github.com/belfrydb/belfry/rpc/ui/outcome"
	"github.com/belfrydb/belfry/rpc/ui/payload"
)

// tokensMax is how many tokens a page shows.
const tokensMax = 1000

func (p *Pages) listTokens(v *visit) (content, error) {
	res, err := p.admin.ListTokens(v.ctx, &belfryv1.ListTokensRequest{PageSize: tokensMax})
	if err != nil {
		return content{}, err
	}
	table := h.P(g.Text("No token was made. Root tokens are in a file of each node and are not shown."))
	if len(res.Tokens) > 0 {
		table = markup.Grid("Tokens", markup.Headings("Id", "Scopes", "About", "Made", "Ends"),
			g.Map(res.Tokens, func(t *belfryv1.Token) g.Node {
				return h.Tr(h.Th(h.Scope("row"), markup.Link(markup.Query("token", "id", t.Id), t.Id), g.If(t.Id == v.ownToken(),
					markup.Tag("yours"))),
					h.Td(h.Code(g.Text(strings.Join(t.Scopes, " ")))), h.Td(h.Class("free"), g.Text(payload.Visible(t.About))),
					h.Td(v.when(t.CreatedAt)), h.Td(v.tokenEnd(t)))
			}))
	}
	body := g.Group{h.H1(g.Text("Tokens")), v.catalogAge(), table,
		g.If(res.NextPageToken != "", h.P(g.Text("There are more: "), h.Code(g.Text("belfry token list"))))}
	switch {
	case v.token() == "":
		body = append(body, h.P(g.Text("This server asks for no token, so it makes none: start it with "),
			h.Code(g.Text("--root-tokens")), g.Text(".")))
	case !p.cfg.ReadOnly:
		body = append(body, markup.Section("Make a token", v.tokenForm()))
	}
	return content{title: "Tokens", entry: "Tokens", body: body}, nil
}

// ownToken returns the id of the token of this visit; nothing without one.
func (v *visit) ownToken() string {
	_, rest, _ := strings.Cut(v.r.Header.Get("Authorization"), "_")
	id, _, _ := strings.Cut(rest, "_")
	return id
}

func (v *visit) tokenEnd(t *belfryv1.Token) g.Node {
	switch {
	case t.NotAfter == nil:
		return g.Text("never")
	case !v.clock.Now.Before(t.NotAfter.AsTime()):
		return g.Group{g.Text("ended "), v.when(t.NotAfter)}
	default:
		return v.when(t.NotAfter)
	}
}

func (v *visit) tokenForm() g.Node {
	return inputs.Large("new-token",
		v.Row(inputs.Row{Label: "Scopes", Name: "scopes", Lines: "3", Attributes: []g.Node{h.Required()},
			Help: "1 to 32, ACTION[,ACTION…]:QUEUES with put, consume, view or admin, such as put,consume:shop/* · " +
				"view:* is " +
				"also the cluster, admin:* everything"}),
		v.Row(inputs.Row{Label: "About", Name: "about", Help: "for people; at most 256 bytes"}),
		v.Row(inputs.Row{Label: "Ends after", Name: "ttl", Help: "1s to 87660h, which is 10 years",
			Attributes: []g.Node{h.Placeholder("never")}}),
		h.P(h.Class("ends"), markup.Button("Make the token")))
}

// createToken makes a token and shows it. The text is in this answer and nowhere else, so the answer
// is no redirect.
func (p *Pages) createToken(v *visit) (string, error) {
	req, err := form.ReadToken(v.r.PostForm.Get)
	if err != nil {
		return "", err
	}
	made, err := p.admin.CreateToken(v.ctx, req)
	if err != nil {
		return "", err
	}
	v.answer = v.madeToken(made, nil)
	return "", nil
}

// madeToken shows a token once; more is what else there is to say.
func (v *visit) madeToken(made *belfryv1.CreateTokenResponse, more g.Node) *content {
	return &content{title: "Token made", entry: "Tokens", body: g.Group{
		markup.Path("Tokens", "tokens"), h.H1(g.Text("Token made")),
		h.P(h.Class("notice"), h.Role("status"), g.Text("Copy it now. It is shown this once and kept "+
			"nowhere; a reload of this page would make another one.")),
		markup.Copied("token", made.Token), more,
		markup.Facts(markup.Fact("Id", made.Record.Id), markup.Fact("Scopes", strings.Join(made.Record.Scopes, " ")),
			markup.Fact("About", payload.Visible(made.Record.About)), markup.FactOf("Ends", v.tokenEnd(made.Record))),
	}}
}

// findToken reads what is kept of a token.
func (p *Pages) findToken(ctx context.Context, id string) (*belfryv1.Token, error) {
	req := &belfryv1.ListTokensRequest{PageSize: tokensMax}
	for {
		res, err := p.admin.ListTokens(ctx, req)
		if err != nil {
			return nil, err
		}
		for _, t := range res.Tokens {
			if t.Id == id {
				return t, nil
			}
		}
		if req.PageToken = res.NextPageToken; req.PageToken == "" {
			return nil, fmt.Errorf("%w: there is no token %q; it was revoked, or it is in a file of the nodes",
				outcome.ErrAbsent, id)
		}
	}
}

func (p *Pages) showToken(v *visit) (content, error) {
	t, err := p.findToken(v.ctx, v.param("id"))
	if err != nil {
		return content{}, err
	}
	body := g.Group{
		markup.Path("Tokens", "tokens"), h.H1(g.Text(t.Id), g.If(t.Id == v.ownToken(), markup.Tag("yours"))), v.catalogAge(),
		markup.Facts(markup.Fact("Scopes", strings.Join(t.Scopes, " ")), markup.Fact("About", payload.Visible(t.About)),
			v.timeFact("Made", t.CreatedAt), markup.Fact("Made with the token", t.CreatedBy), markup.FactOf("Ends",
				v.tokenEnd(t))),
	}
	if !p.cfg.ReadOnly {
		body = append(body, markup.Section("Actions", v.tokenActions(t)))
	}
	return content{title: "Token " + t.Id, entry: "Tokens", body: body}, nil
}

func (v *visit) tokenActions(t *belfryv1.Token) g.Node {
	hidden := []string{"id", t.Id}
	return h.Div(h.Class("actions"),
		markup.Acting("rotate-token", hidden,
			v.Field("Let the old one end after", "overlap", markup.Width("8"), h.Placeholder(overlapByDefault),
				h.Aria("describedby", "overlap-help")),
			markup.Button("Replace it by a new one"),
			h.Span(h.ID("overlap-help"), h.Class("help"),
				g.Text("The new one allows the same, for as long as this one was made for."))),
		markup.Acting("revoke-token", hidden, v.Confirmation("Type the id", "confirm"),
			markup.DangerButton("Revoke it now"),
			h.Span(h.Class("help"),
				g.Text("Every call with it is refused from now on. Tokens that were made with it go on."))))
}

const (
	// overlapByDefault is for how long a token that was replaced may still be used, as on the command
	// line.
	overlapByDefault = "1h"
	// overlapMax is the longest of these times, which is that of the API.
	overlapMax = 87660 * time.Hour
)

// rotateToken makes a token that allows what another one does, and has that one end a little later.
func (p *Pages) rotateToken(v *visit) (string, error) {
	text := strings.TrimSpace(v.param("overlap"))
	if text == "" {
		text = overlapByDefault
	}
	overlap, err := form.Duration("overlap", text)
	if err != nil {
		return "", err
	}
	if d := overlap.AsDuration(); d < 0 || d > overlapMax { // known before the new token is made
		return "", formError("overlap", "%q is out of range: 0s to 87660h, which is 10 years", text)
	}
	old, err := p.findToken(v.ctx, v.param("id"))
	if err != nil {
		return "", err
	}
	if old.NotAfter != nil && !v.clock.Now.Before(old.NotAfter.AsTime()) {
		return "", formError("id", "the token %s has ended; make another one", old.Id)
	}
	made, err := p.admin.CreateToken(v.ctx, &belfryv1.CreateTokenRequest{
		Scopes: old.Scopes, About: old.About, Ttl: old.Ttl,
	})
	if err != nil {
		return "", err
	}
	v.answer = v.madeToken(made, p.endOld(v, old.Id, overlap))
	return "", nil
}

// endOld ends a token that was replaced, and says so. A failure is said too: the new token must be
// shown in any case.
func (p *Pages) endOld(v *visit, id string, overlap *durationpb.Duration) g.Node {
	if _, err := p.admin.DeleteToken(v.ctx, &belfryv1.DeleteTokenRequest{Id: id, After: overlap}); err != nil {
		return h.P(h.Class("warning"), h.Role("alert"), g.Text("The old token "+id+" goes on: "+outcome.Of(err).Text))
	}
	return h.P(g.Text("The old token " + id + " ends in " + format.Span(overlap.AsDuration()) + "."))
}

// revokeToken ends a token at once. Its id must have been typed.
func (p *Pages) revokeToken(v *visit) (string, error) {
	id := v.param("id")
	if err := form.Confirmed(v.param, "confirm", id, "revoke the token"); err != nil {
		return "", err
	}
	res, err := p.admin.DeleteToken(v.ctx, &belfryv1.DeleteTokenRequest{Id: id})
	if err != nil {
		return "", err
	}
	if !res.Found {
		return markup.Query("tokens", "done", "revoke-token-again"), nil
	}
	return markup.Query("tokens", "done", "revoke-token"), nil
}
