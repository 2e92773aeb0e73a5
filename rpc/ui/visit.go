package ui

import (
	"bytes"
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"connectrpc.com/connect"
	"github.com/belfrydb/belfry/rpc/ui/format"
	"github.com/belfrydb/belfry/rpc/ui/markup"
	"google.golang.org/protobuf/types/known/timestamppb"
	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"
)

// visit is one request for a page or an action.
type visit struct {
	pages *Pages
	w     http.ResponseWriter
	r     *http.Request
	// ctx is the context for the calls of this visit.
	ctx   context.Context
	look  look
	clock format.Clock
	// problem is why a form was refused; nil if none was.
	problem *problem
	// answer is the page that an act shows instead of going to another one.
	answer *content
}

func (p *Pages) visit(w http.ResponseWriter, r *http.Request) *visit {
	look := lookOf(r)
	return &visit{
		pages: p, w: w, r: r, ctx: onBehalf(r.Context(), r), look: look,
		clock: format.Clock{Now: p.cfg.Now(), Zone: look.zone},
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
}

// entries are the names and pages of the navigation.
func entries() [][2]string {
	return [][2]string{
		{"Overview", "./"}, {"Queues", "queues"}, {"Dead letters", "dead"}, {"Cluster", "cluster"},
		{"Namespaces", "namespaces"}, {"Tokens", "tokens"}, {"Audit", "audit"}, {"Settings", "settings"},
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
	_, _ = v.w.Write(page.Bytes())
}

// document is the whole page.
func (v *visit) document(c content) g.Node {
	refresh := 0
	if c.live {
		refresh = v.look.refresh
	}
	notice := noticeOf(v.r.URL.Query())
	version := "?v=" + url.QueryEscape(v.pages.cfg.Version)
	return h.Doctype(h.HTML(h.Lang("en"), h.Data("theme", v.look.theme),
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
		g.If(v.r.Header.Get("Authorization") != "",
			h.Form(h.Method("post"), h.Action("logout"), h.Button(h.Class("quiet"), g.Text("Log out")))),
		// The script says here that the page is old. What is read aloud is said once, without the age.
		h.P(h.ID("lost"), h.Span(h.Role("status")), h.Span()),
	)
}

func (v *visit) footer() g.Node {
	cfg := &v.pages.cfg
	return h.Footer(h.P(
		g.Textf("Node %s, version %s · %s · times in ", cfg.Name, cfg.Version, v.clock.NowText()),
		markup.Link("settings", v.look.zone.String())))
}

// when shows a time, and as its title how far away it is; nothing if it is not set.
func (v *visit) when(t *timestamppb.Timestamp) g.Node {
	if t == nil {
		return g.Text("")
	}
	return h.Time(h.DateTime(t.AsTime().UTC().Format(time.RFC3339Nano)), h.Title(v.clock.Relative(t)),
		g.Text(v.clock.Text(t)))
}

// timeFact is a row of facts with a time. It is left out if the time is not set.
func (v *visit) timeFact(name string, t *timestamppb.Timestamp) g.Node {
	return g.If(t != nil, markup.FactOf(name, v.when(t)))
}

// redirect answers a form: the browser gets the page at target, relative to this one. A reload then
// repeats no action.
func (v *visit) redirect(target string) {
	v.w.Header().Set("Location", target) // http.Redirect would make it absolute, which a proxy's path breaks
	v.w.WriteHeader(http.StatusSeeOther)
}

// fail shows an error on a page of its own.
func (v *visit) fail(err error) {
	problem := problemOf(err)
	v.send(problem.status, content{title: "Error", body: g.Group{
		h.H1(g.Text("That did not work")),
		h.P(h.Class("warning"), h.Role("alert"), h.Strong(g.If(problem.reason != "", g.Text(problem.reason+" "))),
			g.Text(problem.text)),
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

// statusOf returns the status of a page whose call failed.
func statusOf(code connect.Code) int {
	switch code {
	case connect.CodeNotFound:
		return http.StatusNotFound
	case connect.CodeInvalidArgument:
		return http.StatusBadRequest
	case connect.CodePermissionDenied:
		return http.StatusForbidden
	case connect.CodeUnauthenticated:
		return http.StatusUnauthorized
	case connect.CodeAlreadyExists, connect.CodeFailedPrecondition, connect.CodeAborted:
		return http.StatusConflict
	case connect.CodeResourceExhausted:
		return http.StatusTooManyRequests
	case connect.CodeUnavailable, connect.CodeCanceled, connect.CodeDeadlineExceeded:
		return http.StatusServiceUnavailable
	default:
		return http.StatusInternalServerError
	}
}

// notices are the sentences that a page shows after an action, by the name of the action.
func notices() map[string]string {
	return map[string]string{
		"pause": "The queue is paused.", "resume": "The queue is no longer paused.", "purge": "jobs are removed.",
		"delete-queue":   "jobs were deleted with the queue.",
		"queue-settings": "The settings are changed.", "new-queue": "The queue is made.",
		"pending": "shards have not applied the settings yet. They will.",
		"put":     "The job is put.", "put-again": "This job was put before. Nothing was changed.",
		"run-now": "The job is due now.", "reschedule": "The job has a new due time.", "cancel": "The job is cancelled.",
		"redrive": "The job is ready again.", "redrive-group": "jobs are ready again.",
		"drain":   "The node is being drained. It is empty when it has no replica and leads nothing.",
		"undrain": "The node takes replicas again.", "remove-node": "The node is forgotten.",
		"transfer": "The leadership was handed over.", "transfer-same": "That node leads the shard already.",
		"namespace": "The quota is set.", "delete-namespace": "The quota is removed.",
		"revoke-token": "The token is revoked.", "revoke-token-again": "There was no such token any more.",
		"settings": "The settings are kept in this browser.",
	}
}

// noticeOf returns the sentence about the action that led to a page, with the number of jobs if the
// action counted them; nothing if none did. The text comes from notices alone.
func noticeOf(q url.Values) string {
	sentence := notices()[q.Get("done")]
	if n, err := strconv.ParseUint(q.Get("n"), 10, 64); err == nil && sentence != "" {
		return format.Grouped(n) + " " + sentence
	}
	return sentence
}
