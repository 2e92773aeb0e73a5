package rpc

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/rpc/backend/backendtest"
)

// withDashboard turns the dashboard on.
func withDashboard(cfg *Config) { cfg.Dashboard.Mode = DashboardOn }

// orderPage is the page of a job that putJobs puts.
const orderPage = "/ui/job?queue=shop%2Forders&id=order-1"

// noRedirects is a client that shows redirects instead of following them.
func noRedirects() *http.Client {
	return &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// form posts a form as a browser does from a page of the dashboard.
func (s *served) form(client *http.Client, path string, fields url.Values, headers ...string) answered {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url+path, strings.NewReader(fields.Encode()))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Sec-Fetch-Site", "same-origin")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	return s.do(client, req)
}

// putJobs puts two jobs into shop/orders, one of which is dead, and reserves one of a third queue.
func (s *served) putJobs() {
	s.t.Helper()
	for _, call := range [][2]string{
		{"put", `{"queue":"shop/orders","id":"order-1","delay":"1h","text":"{\"n\":12345678901234567890}",
			"headers":{"a":"b"}}`},
		{"put", `{"queue":"held","id":"held-1","text":"x"}`},
		{"reserve", `{"queues":["held"],"ttr":"1h"}`},
	} {
		if got := s.post("/v1/"+call[0], call[1]); got.status != http.StatusOK {
			s.t.Fatalf("%s: %d %s", call[0], got.status, got.body)
		}
	}
	s.die("shop/mails", "mail-1", "smtp: refused")
}

// TestDashboardPages: every page answers, shows what is there, and has the headers that keep a page
// of elsewhere from using it.
func TestDashboardPages(t *testing.T) {
	s := serve(t, withDashboard)
	s.putJobs()
	for page, shows := range map[string]string{
		"/ui/":                                   "1 dead",
		"/ui/queues":                             ">shop/orders</a>",
		"/ui/queues?filter=mails&sort=dead":      ">shop/mails</a>",
		"/ui/queue?queue=shop%2Forders":          "by minutes: ",
		"/ui/jobs?queue=shop%2Forders":           ">order-1</a>",
		"/ui/jobs?queue=shop%2Fmails&state=dead": "smtp: refused",
		"/ui/jobs?queue=held&state=reserved":     ">held-1</a>",
		orderPage:                                "12345678901234567890",
		"/ui/job?queue=held&id=held-1":           "Held until",
		"/ui/consumers":                          ">held</a>",
		"/ui/tasks":                              "There are no tasks.",
		"/ui/find?job=order":                     ">order-1</a>",
		"/ui/dead":                               "Make 1 ready again",
		"/ui/dead?queue=held":                    "There are no dead jobs.",
		"/ui/cluster":                            "this node",
		"/ui/namespaces":                         `<a href="namespace?name=shop">shop</a></th><td class="number"><a href="queues?filter=shop%2F">2</a>`,
		"/ui/tokens":                             "No token was made.",
		"/ui/settings":                           "Europe/Berlin",
		"/ui/login":                              "Log in",
	} {
		got := s.send(http.MethodGet, page, "")
		if got.status != http.StatusOK || !strings.Contains(got.body, shows) {
			t.Errorf("%s: %d, want a page with %q:\n%s", page, got.status, shows, got.body)
		}
		for name, want := range map[string]string{
			"Content-Type": "text/html; charset=utf-8", "Cache-Control": "no-store", "X-Frame-Options": "DENY",
			"X-Content-Type-Options": "nosniff", "X-Robots-Tag": "noindex, nofollow",
		} {
			if got.header.Get(name) != want {
				t.Errorf("%s: %s is %q, want %q", page, name, got.header.Get(name), want)
			}
		}
		policy := got.header.Get("Content-Security-Policy")
		if !strings.Contains(policy, "default-src 'self'") || !strings.Contains(policy, "frame-ancestors 'none'") ||
			strings.Contains(policy, "unsafe") {
			t.Errorf("%s: the content policy is %q", page, policy)
		}
		if strings.Contains(got.body, "style=") || strings.Contains(got.body, "onclick") {
			t.Errorf("%s has inline code, which the content policy stops", page)
		}
	}
	for page, status := range map[string]int{
		"/ui/queue?queue=none": http.StatusNotFound, "/ui/job?queue=held&id=none": http.StatusNotFound,
		"/ui/jobs?queue=held&state=acked": http.StatusBadRequest, "/ui/jobs?queue=held&after=noon": http.StatusBadRequest,
		"/ui/none": http.StatusNotFound, "/uix": http.StatusNotImplemented,
	} {
		if got := s.send(http.MethodGet, page, ""); got.status != status {
			t.Errorf("%s: %d, want %d", page, got.status, status)
		}
	}
}

// die puts a job and fails its only attempt.
func (s *served) die(queue, id, failure string) {
	s.t.Helper()
	put := fmt.Sprintf(`{"queue":%q,"id":%q,"maxAttempts":1,"text":"x"}`, queue, id)
	if got := s.post("/v1/put", put); got.status != http.StatusOK {
		s.t.Fatalf("put: %d %s", got.status, got.body)
	}
	got := s.post("/v1/reserve", fmt.Sprintf(`{"queues":[%q]}`, queue))
	_, rest, _ := strings.Cut(got.body, `"lease":"`)
	lease, _, _ := strings.Cut(rest, `"`)
	if got := s.post("/v1/nack", fmt.Sprintf(`{"lease":%q,"error":%q}`, lease, failure)); got.status != http.StatusOK {
		s.t.Fatalf("nack: %d %s", got.status, got.body)
	}
}

// leaderless is a node whose shards lose their leaders.
type leaderless struct {
	*backendtest.Node
	lost atomic.Bool
}

func (n *leaderless) Query(ctx context.Context, shard uint32, q fsm.Query) (fsm.Reading, node.Witness, error) {
	if n.lost.Load() {
		return fsm.Reading{}, node.Witness{}, node.ErrNoLeader
	}
	return n.Node.Query(ctx, shard, q)
}

// TestDashboardWithoutLeaders: pages show what the replicas have, and say so.
func TestDashboardWithoutLeaders(t *testing.T) {
	n := &leaderless{}
	s := serve(t, withDashboard, func(cfg *Config) {
		n.Node = cfg.Node.(*backendtest.Node)
		cfg.Node = n
	})
	s.putJobs()
	n.lost.Store(true)
	for page, shows := range map[string]string{
		"/ui/": "1 dead", "/ui/queues": ">shop/orders</a>", "/ui/queue?queue=shop%2Forders": "by minutes: ",
		"/ui/queue-settings?queue=shop%2Forders": "Change settings", "/ui/find?job=order-1": "order-1",
		"/ui/namespace?name=shop":      `<dt>Queues</dt><dd><a href="queues?filter=shop%2F">2<`,
		"/ui/jobs?queue=shop%2Forders": ">order-1</a>", orderPage: "12345678901234567890", "/ui/dead": "smtp: refused",
		"/ui/consumers": "Consumers",
	} {
		got := s.send(http.MethodGet, page, "")
		if got.status != http.StatusOK || !strings.Contains(got.body, shows) ||
			!strings.Contains(got.body, "A shard has no leader that answers.") {
			t.Errorf("%s: %d, want %q and that it is stale: %s", page, got.status, shows, got.body)
		}
	}
}

// upgrading is a node in a cluster whose other nodes run an earlier version.
type upgrading struct{ *backendtest.Node }

func (n upgrading) Query(ctx context.Context, shard uint32, q fsm.Query) (fsm.Reading, node.Witness, error) {
	if q.Kind().Format() > 2 {
		return fsm.Reading{}, node.Witness{}, fmt.Errorf("asking n2: %w", node.ErrUnsupported)
	}
	return n.Node.Query(ctx, shard, q)
}

// TestDashboardWhileUpgrading: what a node of an earlier version does not know is left out of the page
// of a queue, and is said where a page is about nothing else.
func TestDashboardWhileUpgrading(t *testing.T) {
	s := serve(t, withDashboard, func(cfg *Config) { cfg.Node = upgrading{cfg.Node.(*backendtest.Node)} })
	s.putJobs()
	for page, want := range map[string]struct {
		status int
		text   string
	}{
		"/ui/queue?queue=shop%2Forders":         {http.StatusOK, "It is shown once all nodes run a version that knows it."},
		"/ui/jobs?queue=shop%2Forders":          {http.StatusOK, ">order-1</a>"},
		"/ui/jobs?queue=shop%2Forders&text=sum": {http.StatusNotImplemented, "not all nodes run a version that knows this"},
		"/ui/find?job=sum":                      {http.StatusNotImplemented, "not all nodes run a version that knows this"},
	} {
		if got := s.send(http.MethodGet, page, ""); got.status != want.status || !strings.Contains(got.body, want.text) {
			t.Errorf("%s: %d, want %d and %q: %s", page, got.status, want.status, want.text, got.body)
		}
	}
}

// TestDashboardLinks: a page of elsewhere may link to the dashboard, and still to nothing else.
func TestDashboardLinks(t *testing.T) {
	s := serve(t, withDashboard)
	for path, want := range map[string]int{
		"/ui/queues": http.StatusOK, "/metrics": http.StatusForbidden, "/q/orders": http.StatusForbidden,
	} {
		got := s.send(http.MethodGet, path, "", "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate")
		if got.status != want {
			t.Errorf("a link to %s: %d, want %d", path, got.status, want)
		}
	}
}

// TestDashboardActions: each action does what it says, and shows the page afterwards.
func TestDashboardActions(t *testing.T) {
	s := serve(t, withDashboard)
	s.putJobs()
	order := url.Values{"queue": {"shop/orders"}, "id": {"order-1"}}
	with := func(fields url.Values, pairs ...string) url.Values {
		all := url.Values{}
		for name := range fields {
			all.Set(name, fields.Get(name))
		}
		for i := 0; i < len(pairs); i += 2 {
			all.Set(pairs[i], pairs[i+1])
		}
		return all
	}
	for _, step := range []struct {
		action string
		fields url.Values
		page   string
		shows  string
	}{
		{"pause", url.Values{"queue": {"shop/orders"}}, "/ui/queue?queue=shop%2Forders", "paused</span>"},
		{"resume", url.Values{"queue": {"shop/orders"}}, "/ui/queue?queue=shop%2Forders", "Pause for"},
		{"pause", url.Values{"queue": {"shop/orders"}, "for": {"30m"}}, "/ui/queue?queue=shop%2Forders", "paused until"},
		{"resume", url.Values{"queue": {"shop/orders"}}, "/ui/queue?queue=shop%2Forders", "Pause for"},
		{"reschedule", with(order, "due", "2090-01-31 15:04"), orderPage, "2090-01-31 15:04:00.000 +00:00"},
		{"reschedule", with(order, "due", "2h"), orderPage, "delayed</span>"},
		{"run-now", order, orderPage, "ready</span>"},
		{"run-now", order, orderPage, "No consumer waits for jobs of this queue now."},
		{"pause", url.Values{"queue": {"shop/orders"}}, orderPage, ", so nobody gets the job."},
		{"resume", url.Values{"queue": {"shop/orders"}}, orderPage, "No consumer waits"},
		{"redrive", url.Values{"queue": {"shop/mails"}, "id": {"mail-1"}}, "/ui/job?queue=shop%2Fmails&id=mail-1",
			"ready</span>"},
		{"cancel", url.Values{"queue": {"held"}, "id": {"held-1"}, "force": {"yes"}}, "/ui/job?queue=held&id=held-1",
			"cancelled</span>"},
		{"purge", url.Values{"queue": {"shop/orders"}, "confirm": {"shop/orders"}, "state": {"ready"}},
			orderPage, "cancelled</span>"},
	} {
		got := s.form(noRedirects(), "/ui/"+step.action, step.fields)
		target := got.header.Get("Location")
		if got.status != http.StatusSeeOther || strings.HasPrefix(target, "/") {
			t.Fatalf("%s: %d to %q, want 303 to a relative page: %s", step.action, got.status, target, got.body)
		}
		after := s.send(http.MethodGet, "/ui/"+target, "")
		if after.status != http.StatusOK || !strings.Contains(after.body, `role="status"`) {
			t.Errorf("%s leads to %q: %d, want a page that says what was done", step.action, target, after.status)
		}
		if page := s.send(http.MethodGet, step.page, ""); !strings.Contains(page.body, step.shows) {
			t.Errorf("after %s: want %q in %s:\n%s", step.action, step.shows, step.page, page.body)
		}
	}
	for _, call := range []string{"UpdateQueue", "PurgeQueue", "Redrive"} {
		if !strings.Contains(s.log.String(), call) {
			t.Errorf("the audit log has no %s: %s", call, s.log.String())
		}
	}
}

// TestDashboardRefusesActions: what must not act does not, and nothing changes.
func TestDashboardRefusesActions(t *testing.T) {
	s := serve(t, withDashboard)
	s.putJobs()
	order := url.Values{"queue": {"shop/orders"}, "id": {"order-1"}, "state": {"delayed"}, "due": {"0s"}}
	refused := func(what string, got answered, status int) {
		t.Helper()
		if got.status != status {
			t.Errorf("%s: %d, want %d: %s", what, got.status, status, got.body)
		}
	}
	refused("a purge without the name", s.form(noRedirects(), "/ui/purge",
		url.Values{"queue": {"shop/orders"}, "state": {"delayed"}, "confirm": {"shop/order"}}), http.StatusBadRequest)
	refused("a job that is held", s.form(noRedirects(), "/ui/cancel", url.Values{"queue": {"held"}, "id": {"held-1"}}),
		http.StatusConflict)
	refused("a time that is none", s.form(noRedirects(), "/ui/reschedule", url.Values{"queue": {"shop/orders"},
		"id": {"order-1"}, "due": {"soon"}}), http.StatusBadRequest)
	refused("a form without end", s.form(noRedirects(), "/ui/run-now", url.Values{"x": {strings.Repeat("x", 1<<20)}}),
		http.StatusBadRequest)
	if got := s.send(http.MethodGet, orderPage, ""); !strings.Contains(got.body, "delayed</span>") {
		t.Errorf("the job changed: %s", got.body)
	}

	reads := serve(t, func(cfg *Config) { cfg.Dashboard.Mode = DashboardRead })
	reads.putJobs()
	for _, action := range []string{
		"pause", "resume", "purge", "run-now", "reschedule", "cancel", "redrive", "choose", "act-chosen",
		"count", "act-all", "stop-task", "release-leases",
	} {
		refused(action+" where pages only show", reads.form(noRedirects(), "/ui/"+action, order), http.StatusForbidden)
	}
	if got := reads.send(http.MethodGet, orderPage, ""); strings.Contains(got.body, `<form method="post"`) {
		t.Errorf("a page that only shows has a form: %s", got.body)
	}
	if got := serve(t).send(http.MethodGet, "/ui/", ""); got.status != http.StatusNotImplemented {
		t.Errorf("without a dashboard: %d, want 501 as for any unknown path", got.status)
	}
}

// know sets the error while it is not known which tokens there are; nil when it is.
func (m *tokenMemory) know(unknown error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unknown = unknown
}

// TestDashboardLogin: with tokens a page needs one, shows what it allows, and ends with it.
func TestDashboardLogin(t *testing.T) {
	store := newTokenMemory()
	s := serve(t, withDashboard, func(cfg *Config) { cfg.Authenticator, cfg.Catalog = store, store })
	root, _ := store.make(t, "admin:*")
	put := `{"queue":"shop/orders","id":"order-1","delay":"1h"}`
	if got := s.with(root, http.MethodPost, "/v1/put", put); got.status != http.StatusOK {
		t.Fatal(got.body)
	}
	store.know(errors.New("the catalog has not caught up"))
	if got := s.form(noRedirects(), "/ui/login", url.Values{"token": {root}}); strings.Contains(got.body, "not valid") ||
		got.header.Get("Set-Cookie") != "" {
		t.Errorf("while no token is known: %d %s", got.status, got.body)
	}
	store.know(nil)
	token, id := store.make(t, "view:*")
	client := noRedirects()
	client.Jar, _ = cookiejar.New(nil)
	get := func(path string) answered {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		return s.do(client, req)
	}
	if got := get("/ui/queue?queue=shop%2Forders"); got.status != http.StatusSeeOther ||
		got.header.Get("Location") != "login?next=queue%3Fqueue%3Dshop%252Forders" {
		t.Errorf("without a token: %d to %q, want the login", got.status, got.header.Get("Location"))
	}
	if got := s.form(client, "/ui/login", url.Values{"token": {root + "x"}}); got.status != http.StatusUnauthorized {
		t.Errorf("a wrong token: %d", got.status)
	}
	got := s.form(client, "/ui/login", url.Values{"token": {" " + token + "\n"}, "next": {"queue?queue=shop%2Forders"}})
	if got.status != http.StatusSeeOther || got.header.Get("Location") != "queue?queue=shop%2Forders" {
		t.Fatalf("a good token: %d to %q", got.status, got.header.Get("Location"))
	}
	cookie := got.header.Get("Set-Cookie")
	for _, want := range []string{"HttpOnly", "SameSite=Strict", "Max-Age=43200"} {
		if !strings.Contains(cookie, want) {
			t.Errorf("the cookie %q lacks %s", cookie, want)
		}
	}
	if strings.Contains(cookie, token) || strings.Contains(cookie, base64.StdEncoding.EncodeToString([]byte(token))) {
		t.Error("the cookie shows the token")
	}
	if got := get("/ui/queue?queue=shop%2Forders"); got.status != http.StatusOK {
		t.Errorf("logged in: %d %s", got.status, got.body)
	}
	for path, what := range map[string]string{orderPage: "a job", "/ui/tokens": "the tokens"} {
		if got := get(path); got.status != http.StatusForbidden || !strings.Contains(got.body, "FORBIDDEN") {
			t.Errorf("a token for numbers sees %s: %d", what, got.status)
		}
	}
	if got := s.form(client, "/ui/pause", url.Values{"queue": {"shop/orders"}}); got.status != http.StatusForbidden {
		t.Errorf("a token for numbers pauses: %d", got.status)
	}
	if _, err := store.EndToken(t.Context(), id, time.Now().Add(-time.Second)); err != nil {
		t.Fatal(err)
	}
	if got := get("/ui/"); got.status != http.StatusSeeOther || got.header.Get("Location") != "login" {
		t.Errorf("after the end of the token: %d to %q, want the login", got.status, got.header.Get("Location"))
	}
}

// TestDashboardHostileJobs: what a producer writes is shown and never runs, and the download has its
// bytes.
func TestDashboardHostileJobs(t *testing.T) {
	s := serve(t, withDashboard)
	texts := []string{
		"<script>alert(1)</script>", `"><img src=x onerror=alert(1)>`, "{{.}}", "javascript:alert(1)", "a\x00b",
		"abc\u202efdp.exe", "\xff\xfe\x80", strings.Repeat("<b>", 100_000), `{"n":18446744073709551616,"m":0.1e-400}`,
		"</pre><script>alert(1)</script>", "\r\nSet-Cookie: a=b", "🔔", "'';!--\"<XSS>=&{()}",
	}
	for i, text := range texts {
		id := fmt.Sprintf("job-%d", i)
		body := base64.StdEncoding.EncodeToString([]byte(text))
		header, err := json.Marshal(strings.ToValidUTF8(text[:min(len(text), 200)], "?"))
		if err != nil {
			t.Fatal(err)
		}
		put := fmt.Sprintf(`{"queue":"hostile","id":%q,"delay":"1h","data":%q,"headers":{"x":%s}}`, id, body, header)
		if got := s.post("/v1/put", put); got.status != http.StatusOK {
			t.Fatalf("%q: %d %s", text[:min(len(text), 40)], got.status, got.body)
		}
		page := s.send(http.MethodGet, "/ui/job?queue=hostile&id="+id, "")
		if page.status != http.StatusOK || strings.Count(page.body, "<script") != 1 || strings.Contains(page.body, "<img") ||
			strings.Contains(page.body, "<b>") || strings.ContainsAny(page.body, "\x00\u202e") || len(page.body) > 100<<10 {
			t.Errorf("%q: the page (%d, %d bytes) has what it must not have:\n%.3000s", text[:min(len(text), 40)], page.status,
				len(page.body), page.body)
		}
		got := s.send(http.MethodGet, "/ui/body?queue=hostile&id="+id, "")
		if got.body != text || got.header.Get("Content-Type") != "application/octet-stream" ||
			!strings.HasPrefix(got.header.Get("Content-Disposition"), "attachment") {
			t.Errorf("%q: the download differs: %.80q as %q", text[:min(len(text), 40)], got.body,
				got.header.Get("Content-Type"))
		}
	}
}
