package ui

import (
	"bytes"
	"context"
	"net/http"
	"net/url"
	"strconv"

	"google.golang.org/protobuf/types/known/timestamppb"
	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/belfrydb/belfry/rpc/ui/fallback"
	"github.com/belfrydb/belfry/rpc/ui/format"
	"github.com/belfrydb/belfry/rpc/ui/inputs"
	"github.com/belfrydb/belfry/rpc/ui/look"
	"github.com/belfrydb/belfry/rpc/ui/markup"
	"github.com/belfrydb/belfry/rpc/ui/outcome"
)

// visit is one request for a page or an action.
type visit struct {
	inputs.Forms
	pages *Pages
	w     http.ResponseWriter
	r     *http.Request
	// ctx is the context for the calls of this visit.
	ctx   context.Context
	look  look.Look
	clock format.Clock
	// answer is the page that an act shows instead of going to another one.
	answer *content
}

func (p *Pages) visit(w http.ResponseWriter, r *http.Request) *visit {
	seen := look.Of(r)
	return &visit{
		pages: p, w: w, r: r, ctx: onBehalf(r.Context(), r), look: seen,
		clock: format.Clock{Now: p.cfg.Now(), Zone: seen.Zone},
	}
}

// token is the token of the visit, which tells its reads from those of others.
func (v *visit) token() string { return v.r.Header.Get("Authorization") }

// param returns a value of the query or of the form.
func (v *visit) param(name string) string { return v.r.FormValue(name) }

// content is what a page shows below its navigation.
type content struct {
	title string
	// entry is the entry of the navigation that the page belongs to.
	entry string
	body  g.Group
	// live says that the page may be refreshed: it shows what changes.
	live bool
	// soon says that what it shows is under way, and soon over.
	soon bool
	// target is the page to go to instead; empty for none.
	target string
}

// entries are the names and pages of the navigation.
func entries() [][2]string {
	return [][2]string{
		{"Overview", "./"}, {"Queues", "queues"}, {"Schedules", "schedules"}, {"Dead letters", "dead"},
		{"Consumers", "consumers"}, {"Tasks", "tasks"}, {"Cluster", "cluster"}, {"Namespaces", "namespaces"},
		{"Tokens", "tokens"}, {"Audit", "audit"}, {"Settings", "settings"},
	}
}

// send sends a page.
func (v *visit) send(status int, c content) {
	var page bytes.Buffer
	if err := v.document(c).Render(&page); err != nil {
		v.pages.cfg.Logger.ErrorContext(v.ctx, "the dashboard failed", "page", c.title, "error", err)
		http.Error(v.w, "the page cannot be shown; the log of the server says why", http.StatusInternalServerError)
		return
	}
	v.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	v.w.WriteHeader(status)
	// What fails here is the caller's connection, which net/http closes.
	_, _ = v.w.Write(bytes.ToValidUTF8(page.Bytes(), []byte("�")))
}

// document is the whole page.
func (v *visit) document(c content) g.Node {
	refresh := 0
	if c.live {
		refresh = v.look.Refresh
	}
	if c.soon {
		refresh = min(refresh, 1)
	}
	notice := outcome.Notice(v.r.URL.Query())
	version := "?v=" + url.QueryEscape(v.pages.cfg.Version)
	return h.Doctype(h.HTML(h.Lang("en"), h.Data("theme", v.look.Theme),
		h.Head(
			h.Meta(h.Charset("utf-8")),
			h.Meta(h.Name("viewport"), h.Content("width=device-width, initial-scale=1")),
			h.Meta(h.Name("color-scheme"), h.Content("light dark")),
			h.TitleEl(g.Text(c.title+" · Belfry")),
			h.Link(h.Rel("icon"), h.Type("image/svg+xml"), h.Href("static/icon.svg"+version)),
			h.Link(h.Rel("stylesheet"), h.Href("static/style.css"+version)),
			h.Script(h.Src("static/page.js"+version), h.Defer()),
		),
		h.Body(h.Data("refresh", strconv.Itoa(refresh)),
			h.A(h.Class("skip"), h.Href("#main"), g.Text("Skip to the content")),
			v.header(c.entry),
			h.Main(h.ID("main"), h.TabIndex("-1"),
				g.If(notice != "", h.P(h.Class("notice"), h.Role("status"), g.Text(notice))),
				fallback.Mark(fallback.AgeOf(v.ctx), v.clock),
				c.body),
			v.footer(),
		)))
}

func (v *visit) header(entry string) g.Node {
	return h.Header(
		h.P(h.Class("brand"), markup.Link("./", "Belfry")),
		h.Nav(h.Aria("label", "Pages"), h.Ul(g.Map(entries(), func(e [2]string) g.Node {
			return h.Li(h.A(h.Href(e[1]), g.If(e[0] == entry, h.Aria("current", "page")), g.Text(e[0])))
		}))),
		v.findBox(),
		g.If(v.r.Header.Get("Authorization") != "",
			h.Form(h.Method("post"), h.Action("logout"), h.Button(h.Class("quiet"), g.Text("Log out")))),
		// The script says here that the page is old. What is read aloud is said once, without the age.
		h.P(h.ID("lost"), h.Span(h.Role("status")), h.Span()),
	)
}

func (v *visit) footer() g.Node {
	cfg := &v.pages.cfg
	return h.Footer(h.P(
		g.Textf("Node %s, version %s · %s%s · times in ", cfg.Name, cfg.Version, v.clock.NowText(),
			fallback.KeptText(fallback.AgeOf(v.ctx))),
		markup.Link("settings", v.look.Zone.String())))
}

// when shows a time; nothing if it is not set.
func (v *visit) when(t *timestamppb.Timestamp) g.Node { return markup.Time(v.clock, t) }

// timeFact is a row of facts with a time. It is left out if the time is not set.
func (v *visit) timeFact(name string, t *timestamppb.Timestamp) g.Node {
	return markup.TimeFact(v.clock, name, t)
}

// redirect answers a form: the browser gets the page at target, relative to this one. A reload then
// repeats no action.
func (v *visit) redirect(target string) {
	v.w.Header().Set("Location", target) // http.Redirect would make it absolute, which a proxy's path breaks
	v.w.WriteHeader(http.StatusSeeOther)
}

// fail shows an error on a page of its own.
func (v *visit) fail(err error) {
	what := outcome.Of(err)
	v.send(what.Status, content{title: "Error", body: g.Group{
		h.H1(g.Text("That did not work")),
		h.P(h.Class("warning"), h.Role("alert"), h.Strong(g.If(what.Reason != "", g.Text(what.Reason+" "))),
			g.Text(what.Text)),
		h.P(markup.Link("./", "Overview")),
	}})
}

// here returns the page and its query, relative to the path of the pages; "./" for an action.
func (v *visit) here() string {
	if v.r.Method != http.MethodGet || len(v.r.URL.Path) <= len(v.pages.cfg.Path) {
		return "./"
	}
	here := v.r.URL.Path[len(v.pages.cfg.Path):]
	if v.r.URL.RawQuery != "" {
		here += "?" + v.r.URL.RawQuery
	}
	return here
}
