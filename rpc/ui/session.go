package ui

import (
	"net/http"
	"net/url"
	"strings"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/ui/login"
	"github.com/belfrydb/belfry/rpc/ui/markup"
)

// cookieName is the name of the cookie of a session. A browser takes one with the prefix __Host-
// only from this host and through TLS, so no other host of the domain can set it.
func cookieName(r *http.Request) string {
	if ThroughTLS(r) {
		return "__Host-belfry-session"
	}
	return "belfry-session"
}

// WithToken returns a request for a page with the token of its session as that of a call. A token
// that the request has already stays.
func (p *Pages) WithToken(r *http.Request) *http.Request {
	if p.cfg.Sessions == nil || r.Header.Get("Authorization") != "" {
		return r
	}
	cookie, err := r.Cookie(cookieName(r))
	if err != nil {
		return r
	}
	token := p.cfg.Sessions.Open(cookie.Value)
	if token == "" {
		return r
	}
	return withBearer(r, token)
}

// withBearer returns a request with a token as that of a call.
func withBearer(r *http.Request, token string) *http.Request {
	with := *r
	with.Header = r.Header.Clone()
	with.Header.Set("Authorization", "Bearer "+token)
	return &with
}

// Public reports whether a path needs no token: what a person needs to log in.
func (p *Pages) Public(path string) bool {
	return path == p.cfg.Path+"login" || strings.HasPrefix(path, p.cfg.Path+"static/")
}

// Refuse answers a request for a page from one whose token is not valid: with the page for the
// login.
func (p *Pages) Refuse(w http.ResponseWriter, r *http.Request) {
	v := p.visit(w, r)
	target := "login"
	if here := v.here(); here != "./" {
		target = markup.Query("login", "next", here)
	}
	v.redirect(target)
}

func (p *Pages) showLogin(w http.ResponseWriter, r *http.Request) {
	v := p.visit(w, r)
	v.send(http.StatusOK, loginPage(localPage(v.param("next")), ""))
}

// loginPage asks for a token, and leads to next afterwards.
func loginPage(next, problem string) content {
	return content{title: "Log in", body: g.Group{
		h.H1(g.Text("Log in")),
		g.If(problem != "", h.P(h.Class("warning"), h.Role("alert"), g.Text(problem))),
		h.Form(h.Method("post"), h.Action("login"), h.Class("stack"), markup.HiddenFields([]string{"next", next}),
			markup.Field("Token", "token", h.Type("password"), h.Required(), h.AutoComplete("off"),
				h.Aria("describedby", "token-help")),
			h.Span(h.ID("token-help"), h.Class("help"), h.Code(g.Text("belfry token create")),
				g.Text(" makes one. With the scope view:* you see numbers, with admin:* everything.")),
			markup.Button("Log in")),
	}}
}

// login keeps a token in a cookie if it is valid.
func (p *Pages) login(w http.ResponseWriter, r *http.Request) {
	v := p.visit(w, r)
	r.Body = http.MaxBytesReader(w, r.Body, formBytesMax)
	next, token := localPage(v.param("next")), strings.TrimSpace(v.param("token"))
	if p.cfg.Sessions == nil {
		v.redirect(next)
		return
	}
	// Every valid token allows this call.
	_, err := p.queues.GetRouting(onBehalf(r.Context(), withBearer(r, token)), &belfryv1.GetRoutingRequest{})
	f, refused := fault.FromConnect(err)
	switch {
	case refused && f.Reason == belfryv1.Reason_REASON_UNAUTHENTICATED:
		v.send(http.StatusUnauthorized, loginPage(next, "This token is not valid."))
		return
	case err != nil: // it is not known whether the token is valid
		v.fail(err)
		return
	}
	v.setSession(p.cfg.Sessions.Seal(token), int(login.Life.Seconds()))
	v.redirect(next)
}

// logout forgets the token in this browser. The token stays valid.
func (p *Pages) logout(w http.ResponseWriter, r *http.Request) {
	v := p.visit(w, r)
	v.setSession("", -1)
	v.redirect("login")
}

func (v *visit) setSession(value string, maxAge int) {
	http.SetCookie(v.w, &http.Cookie{
		Name: cookieName(v.r), Value: value, Path: "/", MaxAge: maxAge, HttpOnly: true, Secure: ThroughTLS(v.r),
		SameSite: http.SameSiteStrictMode,
	})
}

// localPage returns a page to go to after the login: one of these pages, and nothing of elsewhere.
func localPage(next string) string {
	target, err := url.Parse(next)
	if err != nil || target.IsAbs() || target.Host != "" || strings.ContainsAny(target.Path, "/\\:") ||
		strings.HasPrefix(target.Path, ".") || target.Path == "" {
		return "./"
	}
	// Written again, so that nothing of the text that was given is kept.
	if values := target.Query(); len(values) > 0 {
		return target.Path + "?" + values.Encode()
	}
	return target.Path
}
