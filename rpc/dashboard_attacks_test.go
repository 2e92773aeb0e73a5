package rpc

import (
	"bufio"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/belfrydb/belfry/fsm"
)

// secretText is in every job that an attack must not show.
const secretText = "SECRET-BODY"

// attacked is a server with tokens, and people who are logged in to its dashboard.
type attacked struct {
	*served
	store *tokenMemory
	// later is how far the clock of the server is ahead.
	later atomic.Int64
	// tokens and cookies are by name: root may do everything, view sees numbers, and shop may do
	// everything to the queues of the namespace shop.
	tokens, cookies map[string]string
	// task is the id of a task in bank/orders.
	task string
	// versions are those of the schedule night of each queue.
	versions map[string]string
}

func newAttacked(t *testing.T) *attacked {
	t.Helper()
	a := &attacked{
		store: newTokenMemory(), tokens: map[string]string{}, cookies: map[string]string{}, versions: map[string]string{},
	}
	a.served = serve(t, withDashboard, func(cfg *Config) {
		cfg.Authenticator, cfg.Catalog = a.store, a.store
		cfg.Now = func() time.Time { return time.Now().Add(time.Duration(a.later.Load())) }
	})
	a.node.Format = fsm.LatestFormat
	for name, scope := range map[string]string{"root": "admin:*", "view": "view:*", "shop": "admin,consume,put:shop/*"} {
		a.tokens[name], _ = a.store.make(t, scope)
		a.cookies[name] = a.login(name)
	}
	call := func(path, body string) string {
		got := a.with(a.tokens["root"], http.MethodPost, "/v1/"+path, body)
		if got.status != http.StatusOK {
			t.Fatalf("%s %s: %d %s", path, body, got.status, got.body)
		}
		return got.body
	}
	for _, queue := range []string{"shop/orders", "bank/orders"} {
		for _, id := range []string{"waits", "dies"} {
			call("put", fmt.Sprintf(`{"queue":%q,"id":%q,"text":%q,"headers":{"x":%q},"maxAttempts":1,"delay":%q}`, queue, id,
				secretText, secretText, map[string]string{"waits": "1h", "dies": "0s"}[id]))
		}
		var held struct{ Jobs []struct{ Lease string } }
		if err := json.Unmarshal([]byte(call("reserve", fmt.Sprintf(`{"queues":[%q]}`, queue))), &held); err != nil {
			t.Fatal(err)
		}
		call("nack", fmt.Sprintf(`{"lease":%q,"error":%q}`, held.Jobs[0].Lease, secretText))
	}
	for _, queue := range []string{"shop/orders", "bank/orders"} {
		call("put", fmt.Sprintf(`{"queue":%q,"id":"keyed","key":"k-%s","delay":"1h"}`, queue, secretText))
		put := fmt.Sprintf(`{"queue":%q,"name":"night","spec":{"cron":"0 2 * * *"},"job":{"text":%q}}`, queue, secretText)
		a.versions[queue] = scheduleVersion(t, call("put-schedule", put))
	}
	call("put", `{"queue":"bank/orders","id":"held"}`)
	got := a.send(http.MethodPost, "/v1/reserve", `{"queues":["bank/orders"],"ttr":"3600s"}`, "Content-Type",
		"application/json", "Authorization", "Bearer "+a.tokens["root"], "Belfry-Client", "teller")
	if !strings.Contains(got.body, `"held"`) {
		t.Fatal(got.body)
	}
	var begun struct{ Task struct{ ID string } }
	started := call("start-task", `{"queue":"bank/orders","state":"DEAD","act":"COUNT"}`)
	if err := json.Unmarshal([]byte(started), &begun); err != nil {
		t.Fatal(err)
	}
	a.task = begun.Task.ID
	return a
}

// login returns the cookie of a new session.
func (a *attacked) login(name string) string {
	a.t.Helper()
	got := a.form(noRedirects(), "/ui/login", url.Values{"token": {a.tokens[name]}})
	cookie, _, ok := strings.Cut(got.header.Get("Set-Cookie"), ";")
	if !ok || got.status != http.StatusSeeOther {
		a.t.Fatalf("logging in as %s: %d %s", name, got.status, got.body)
	}
	return cookie
}

// state describes what an attack must not change.
func (a *attacked) state() string {
	a.t.Helper()
	var all strings.Builder
	for _, queue := range []string{"shop/orders", "bank/orders"} {
		for _, state := range []string{"DELAYED", "READY", "RESERVED", "DEAD"} {
			got := a.with(a.tokens["root"], http.MethodPost, "/v1/list", fmt.Sprintf(`{"queue":%q,"state":%q}`, queue, state))
			var list struct{ Jobs []struct{ ID, DueAt string } }
			if err := json.Unmarshal([]byte(got.body), &list); err != nil {
				a.t.Fatal(err)
			}
			fmt.Fprintln(&all, queue, state, list)
		}
		for _, rooms := range []string{"list-schedules", "list-keys"} {
			got := a.with(a.tokens["root"], http.MethodPost, "/v1/"+rooms, fmt.Sprintf(`{"queue":%q}`, queue))
			var list struct {
				Schedules []struct {
					Name   string
					Paused bool
					Counts struct{ Backfilled string }
				}
				Keys []struct {
					Key    string
					Paused bool
					Counts struct{ Delayed int }
				}
			}
			if err := json.Unmarshal([]byte(got.body), &list); err != nil {
				a.t.Fatal(err)
			}
			fmt.Fprintln(&all, queue, rooms, list)
		}
		got := a.with(a.tokens["root"], http.MethodPost, "/v1/get-queue", fmt.Sprintf(`{"queue":%q}`, queue))
		fmt.Fprintln(&all, queue, "paused", strings.Contains(got.body, `"paused":true`), "limit",
			strings.Contains(got.body, `"maxJobs":`))
	}
	names := a.with(a.tokens["root"], http.MethodPost, "/v1/list-queues", `{}`).body
	fmt.Fprintln(&all, strings.Count(names, `"name":`), "queues", len(a.store.Tokens()), "tokens")
	tasks := a.with(a.tokens["root"], http.MethodPost, "/v1/list-tasks", `{}`).body
	fmt.Fprintln(&all, strings.Count(tasks, `"startedAt":`), "tasks", strings.Count(tasks, `"stopping":true`), "stopping")
	return all.String()
}

// attempt is a request, byte for byte as a browser under attack or an attacker sends it.
type attempt struct {
	name           string
	method, target string
	cookie         string
	headers        []string
	body           string
}

// try sends an attempt. It returns what the server answers.
func (a *attacked) try(x attempt) answered {
	a.t.Helper()
	text := x.method + " " + x.target + " HTTP/1.1\r\nConnection: close\r\n"
	if !slices.Contains(x.headers, "Host") {
		text += "Host: " + a.addr + "\r\n"
	}
	if x.cookie != "" {
		text += "Cookie: " + x.cookie + "\r\n"
	}
	if x.body != "" {
		text += fmt.Sprintf("Content-Length: %d\r\n", len(x.body))
	}
	for i := 0; i < len(x.headers); i += 2 {
		text += x.headers[i] + ": " + x.headers[i+1] + "\r\n"
	}
	conn := a.raw(text + "\r\n" + x.body)
	res, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: x.method})
	if err != nil {
		a.t.Fatalf("%s: %v", x.name, err)
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		a.t.Fatalf("%s: %v", x.name, err)
	}
	if err := conn.Close(); err != nil {
		a.t.Fatalf("%s: %v", x.name, err)
	}
	return answered{status: res.StatusCode, header: res.Header, body: string(body)}
}

// formType is what a browser says of a form.
const formType = "application/x-www-form-urlencoded"

// attackForms are forms for each action: those about queues succeed for root.
func (a *attacked) attackForms(queue string) map[string]string {
	fields := func(pairs ...string) string {
		values := url.Values{"queue": {queue}}
		for i := 0; i < len(pairs); i += 2 {
			values.Set(pairs[i], pairs[i+1])
		}
		return values.Encode()
	}
	view := strings.Split(a.tokens["view"], "_")[1]
	waits, dies := []string{"id", "waits", "due", "2h", "state", "delayed"}, []string{"id", "dies"}
	night := fields("name", "night", "names", "night", "at", "2026-01-01", "from", "2026-01-01", "to", "2026-01-03",
		"version", a.versions[queue], "confirm", "night")
	key := fields("key", "k-"+secretText, "confirm", "k-"+secretText)
	return map[string]string{
		"pause-schedule": night, "resume-schedule": night, "pause-schedules": night, "resume-schedules": night,
		"trigger-schedule": night, "backfill-schedule": night, "delete-schedule": night,
		"pause-key": key, "resume-key": key, "purge-key": key,
		"pause": fields(), "resume": fields(), "purge": fields("confirm", queue, "state", "delayed"),
		"run-now": fields(waits...), "reschedule": fields(waits...), "cancel": fields(waits...), "redrive": fields(dies...),
		"act-all":    fields("state", "dead", "cause", secretText, "act", "redrive", "max", "1"),
		"act-chosen": fields("state", "delayed", "act", "cancel", "confirm", "yes", "jobs", "waits"),
		"release-leases": fields("client", "teller@127.0.0.1", "max", "1", "before", "2100-01-01",
			"confirm", "yes"),
		"count": fields("state", "dead"), "stop-task": fields("id", a.task),
		"queue-settings": fields("maxJobs", "7"),
		"put":            fields("body", "x"), "delete-queue": fields("confirm-delete", queue),
		"new-queue": url.Values{"queue": {queue + "-new"}, "partitions": {"1"}}.Encode(),
		"drain":     "name=n1", "undrain": "name=n1", "remove-node": "name=n1&confirm=n1", "transfer": "shard=0&to=n1",
		"namespace": "name=shop&maxJobs=5", "delete-namespace": "name=shop&confirm=shop",
		"new-token": "scopes=admin:*", "rotate-token": "id=" + view, "revoke-token": "id=" + view + "&confirm=" + view,
	}
}

// forgeries are requests that a page of elsewhere makes the browser of root send, or that look like
// one. Each would act if it were not refused.
func (a *attacked) forgeries() (all []attempt) {
	own := "http://" + a.addr
	host, _, _ := strings.Cut(a.addr, ":")
	for name, headers := range map[string][]string{
		"of another host":                 {"Origin", "https://evil.example"},
		"of another port":                 {"Origin", "http://" + host + ":1"},
		"of another scheme":               {"Origin", own, "X-Forwarded-Proto", "https"},
		"null":                            {"Origin", "null"},
		"of a file":                       {"Origin", "file://"},
		"of a subdomain":                  {"Origin", "http://x." + a.addr},
		"that begins as ours":             {"Origin", own + ".evil.example"},
		"with ours as its user":           {"Origin", own + "@evil.example"},
		"with ours as its path":           {"Origin", "https://evil.example/" + own},
		"of two, one ours":                {"Origin", own + " https://evil.example"},
		"that is none":                    {"Origin", "http://["},
		"cross-site":                      {"Sec-Fetch-Site", "cross-site"},
		"same-site":                       {"Sec-Fetch-Site", "same-site"},
		"cross-site that claims ours":     {"Sec-Fetch-Site", "cross-site", "Origin", own},
		"cross-site in other letters":     {"Sec-Fetch-Site", "Same-Origin", "Origin", own},
		"with a forwarded host":           {"Origin", "https://evil.example", "X-Forwarded-Host", "evil.example"},
		"with a referer that is ours":     {"Origin", "https://evil.example", "Referer", own + "/ui/"},
		"of another host, method changed": {"Origin", "https://evil.example", "X-HTTP-Method-Override", "GET"},
	} {
		cookie := a.cookies["root"]
		if slices.Contains(headers, "X-Forwarded-Proto") {
			cookie = "__Host-" + cookie
		}
		for action, form := range a.attackForms("bank/orders") {
			all = append(all, attempt{action + " from an origin " + name, http.MethodPost, "/ui/" + action, cookie,
				append([]string{"Content-Type", formType}, headers...), form})
		}
	}
	for _, kind := range []string{"text/plain", "multipart/form-data; boundary=x", "", "application/json"} {
		headers := []string{"Origin", "https://evil.example"}
		if kind != "" {
			headers = append(headers, "Content-Type", kind)
		}
		for action, form := range a.attackForms("bank/orders") {
			all = append(all, attempt{action + " as " + kind, http.MethodPost, "/ui/" + action + "?" + form, a.cookies["root"],
				headers, form})
		}
	}
	return all
}

// TestDashboardForgeries: no page of elsewhere acts with the session of a person. The same requests
// without what gives them away act, so each attempt could succeed.
func TestDashboardForgeries(t *testing.T) {
	a := newAttacked(t)
	before := a.state()
	for _, path := range a.server.handler.dashboard.Forms() {
		if _, ok := a.attackForms("x")[path]; !ok && !slices.Contains(slices.Concat(browserForms, showForms), path) {
			t.Errorf("the action %s has no form in attackForms, which is used in attempts", path)
		}
	}
	for _, x := range a.forgeries() {
		if got := a.try(x); got.status != http.StatusForbidden {
			t.Errorf("%s: %d, want 403: %.200s", x.name, got.status, got.body)
		}
	}
	for action, form := range a.attackForms("bank/orders") {
		for _, x := range []attempt{
			{"GET", http.MethodGet, "/ui/" + action + "?" + form, "", nil, ""},
			{"GET with a body", http.MethodGet, "/ui/" + action, "", []string{"Content-Type", formType}, form},
			{"HEAD", http.MethodHead, "/ui/" + action + "?" + form, "", nil, ""},
			{"OPTIONS", http.MethodOptions, "/ui/" + action + "?" + form, "", nil, ""},
			{"PUT", http.MethodPut, "/ui/" + action, "", []string{"Content-Type", formType}, form},
			{"a GET that says POST", http.MethodGet, "/ui/" + action + "?_method=POST&" + form, "",
				[]string{"X-HTTP-Method-Override", "POST", "X-Method-Override", "POST"}, ""},
		} {
			x.cookie = a.cookies["root"]
			shows := x.method == http.MethodGet || x.method == http.MethodHead
			page := shows && slices.Contains([]string{"new-queue", "namespace", "put", "queue-settings"}, action)
			if got := a.try(x); got.status != http.StatusMethodNotAllowed && (!page || got.status == http.StatusSeeOther) {
				t.Errorf("%s of %s: %d, want 405", x.name, action, got.status)
			}
		}
	}
	if after := a.state(); after != before {
		t.Errorf("an attempt changed\n%sto\n%s", before, after)
	}
	for _, cross := range []string{"login", "logout", "settings"} {
		got := a.try(attempt{"", http.MethodPost, "/ui/" + cross, a.cookies["root"],
			[]string{"Origin", "https://evil.example", "Content-Type", formType},
			url.Values{"token": {a.tokens["shop"]}, "theme": {"dark"}}.Encode()})
		if got.status != http.StatusForbidden || got.header.Get("Set-Cookie") != "" {
			t.Errorf("%s from elsewhere: %d and the cookie %q", cross, got.status, got.header.Get("Set-Cookie"))
		}
	}
	order, _ := dashboardForms("1")
	for _, action := range order {
		for _, headers := range [][]string{{"Origin", "http://" + a.addr}, {"Sec-Fetch-Site", "same-origin"}} {
			x := attempt{action, http.MethodPost, "/ui/" + action, a.cookies["root"],
				append([]string{"Content-Type", formType}, headers...), a.attackForms("shop/orders")[action]}
			got := a.try(x)
			if again := got.status == http.StatusNotFound || got.status == http.StatusConflict; got.status !=
				http.StatusSeeOther && !again {
				t.Errorf("%s of our own page with %v: %d %.300s", action, headers, got.status, got.body)
			}
		}
	}
	if after := a.state(); after == before {
		t.Error("our own pages changed nothing, so these attempts show nothing")
	}
}

// protectedPaths are pages, errors, downloads and static files, with the session that asks.
func protectedPaths() map[string]string {
	return map[string]string{
		"/ui/": "root", "/ui": "root", "/ui/queues": "root", "/ui/queue?queue=bank/orders": "root", "/ui/dead": "root",
		"/ui/jobs?queue=bank/orders": "root", "/ui/job?queue=bank/orders&id=waits": "root", "/ui/cluster": "root",
		"/ui/body?queue=bank/orders&id=waits": "root", "/ui/namespaces": "root", "/ui/tokens": "root", "/ui/audit": "root",
		"/ui/settings": "root", "/ui/login": "", "/ui/login?next=queues": "root", "/ui/none": "root", "/ui/pause": "root",
		"/ui/queue?queue=none": "root", "/ui/jobs?queue=a&after=x": "root", "/ui/jobs?queue=bank/orders&state=dead": "shop",
		"/ui/queues?filter=a": "", "/ui/body?queue=bank/orders&id=none": "root", "/ui//queues": "root",
		"/ui/schedules": "root", "/ui/schedule?queue=bank/orders&name=night": "root", "/ui/keys?queue=bank/orders": "root",
		"/ui/backfill?queue=bank/orders&name=night&from=x": "root", "/ui/key?queue=bank/orders&key=k": "shop",
		"/ui/static/../queues": "", "/ui/static/style.css": "", "/ui/static/none.css": "", "/ui/static/": "",
	}
}

// TestDashboardHeaders: no answer can be shown in a frame, taken for another type or kept by a cache,
// also no error, redirect or download.
func TestDashboardHeaders(t *testing.T) {
	a := newAttacked(t)
	check := func(what string, got answered, keeps bool) {
		t.Helper()
		policy := got.header.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'self'", "frame-ancestors 'none'", "form-action 'self'", "base-uri 'none'",
			"object-src 'none'"} {
			if !strings.Contains(policy, want) || strings.Contains(policy, "unsafe") {
				t.Errorf("%s (%d): the policy is %q, want %s", what, got.status, policy, want)
			}
		}
		for name, want := range map[string]string{"X-Frame-Options": "DENY", "X-Content-Type-Options": "nosniff",
			"Referrer-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin"} {
			if value := got.header.Get(name); value != want {
				t.Errorf("%s (%d): %s is %q, want %q", what, got.status, name, value, want)
			}
		}
		if cache := got.header.Get("Cache-Control"); !keeps && cache != "no-store" || strings.Contains(cache, "public") {
			t.Errorf("%s (%d): Cache-Control is %q", what, got.status, cache)
		}
		for _, name := range []string{"ETag", "Last-Modified", "Access-Control-Allow-Origin"} {
			if value := got.header.Get(name); value != "" {
				t.Errorf("%s (%d): %s is %q", what, got.status, name, value)
			}
		}
	}
	for path, who := range protectedPaths() {
		for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodOptions} {
			got := a.try(attempt{path, method, path, a.cookies[who], []string{"If-None-Match", "*", "If-Modified-Since",
				time.Now().UTC().Format(http.TimeFormat), "Sec-Fetch-Site", "same-origin"}, ""})
			if path == "/ui/static/" && method == http.MethodGet && got.status != http.StatusNotFound {
				t.Errorf("the folder of static files is listed: %d %s", got.status, got.body)
			}
			keeps := path == "/ui/static/style.css" && (got.status == http.StatusOK || got.status == http.StatusNotModified)
			check(method+" "+path, got, keeps)
			if got.status == http.StatusNotModified && !keeps {
				t.Errorf("%s %s: 304", method, path)
			}
		}
	}
	check("a forgery", a.try(attempt{"", http.MethodPost, "/ui/pause", a.cookies["root"], []string{"Origin", "null"}, ""}),
		false)
	form := []string{"Content-Type", formType, "Sec-Fetch-Site", "same-origin"}
	check("a login", a.try(attempt{"", http.MethodPost, "/ui/login", "", form, "token=" + a.tokens["root"]}), false)
	check("a wrong login", a.try(attempt{"", http.MethodPost, "/ui/login", "", form, "token=x"}), false)
	check("an action", a.try(attempt{"", http.MethodPost, "/ui/pause", a.cookies["root"], form, "queue=shop/orders"}),
		false)
	a.store.know(fmt.Errorf("the catalog has not caught up"))
	check("while no token is known", a.try(attempt{"", http.MethodGet, "/ui/queues", a.cookies["root"], nil, ""}), false)
}

// TestDashboardSessionAttacks: a cookie that a person did not get from a login is no session, and a
// login takes over none that was there.
func TestDashboardSessionAttacks(t *testing.T) {
	a := newAttacked(t)
	other := newAttacked(t)
	const name = "belfry-session="
	mine := a.cookies["root"]
	sealed := strings.TrimPrefix(mine, name)
	changed := func(at int) string {
		letter := map[bool]string{true: "B", false: "A"}[sealed[at] == 'A']
		return name + sealed[:at] + letter + sealed[at+1:]
	}
	shows := func(cookie string, headers ...string) bool {
		got := a.try(attempt{"", http.MethodGet, "/ui/job?queue=bank/orders&id=waits", cookie, headers, ""})
		if got.status != http.StatusOK && got.status != http.StatusSeeOther {
			t.Errorf("%q: %d", cookie, got.status)
		}
		return strings.Contains(got.body, secretText)
	}
	if !shows(mine) || !shows("__Host-"+mine, "X-Forwarded-Proto", "https") {
		t.Fatal("the own session shows no job, so these attempts show nothing")
	}
	for what, cookie := range map[string]string{
		"of a node with another key": other.cookies["root"], "empty": name, "the token": name + a.tokens["root"],
		"the id of the token": name + a.tokens["root"][:20], "cut": mine[:len(mine)-1], "cut to nothing": mine[:len(name)+1],
		"longer": mine + "A", "changed at its end": changed(len(sealed) - 2), "changed at its beginning": changed(0),
		"changed in the middle": changed(len(sealed) / 2), "of another encoding": name + strings.ToLower(sealed),
		"twice": mine + sealed, "under the name for TLS": "__Host-" + mine, "of spaces": name + "%20",
		"quoted twice":       name + `""` + sealed,
		"under another name": "session=" + sealed, "of random bytes": name + rand.Text() + rand.Text() + rand.Text(),
	} {
		if shows(cookie) {
			t.Errorf("a cookie %s shows a job", what)
		}
	}
	if shows(mine, "X-Forwarded-Proto", "https") {
		t.Error("through TLS a cookie counts that any host of the domain can set")
	}
	if got := a.try(attempt{"", http.MethodPost, "/v1/get", mine, []string{"Content-Type", "application/json"},
		`{"queue":"bank/orders","id":"waits"}`}); got.status != http.StatusUnauthorized {
		t.Errorf("a call with a session for pages: %d", got.status)
	}
	// A login replaces a session that was there, whoever set it.
	for what, planted := range map[string]string{
		"of the attacker": a.cookies["shop"], "own": mine, "made up": name + "AAAA",
	} {
		got := a.try(attempt{"", http.MethodPost, "/ui/login", planted, []string{"Content-Type", formType,
			"Sec-Fetch-Site", "same-origin"}, "token=" + a.tokens["root"]})
		fresh, _, _ := strings.Cut(got.header.Get("Set-Cookie"), ";")
		if got.status != http.StatusSeeOther || fresh == planted || !shows(fresh) {
			t.Errorf("a login with a session %s: %d and the cookie %q", what, got.status, fresh)
		}
	}
	got := a.try(attempt{"", http.MethodPost, "/ui/logout", mine, []string{"Sec-Fetch-Site", "same-origin"}, ""})
	if cookie := got.header.Get("Set-Cookie"); !strings.HasPrefix(cookie, name+";") ||
		!strings.Contains(cookie, "Max-Age=0") {
		t.Errorf("a logout leaves the cookie %q", cookie)
	}
	secured := a.try(attempt{"", http.MethodPost, "/ui/login", "", []string{"Content-Type", formType, "Sec-Fetch-Site",
		"same-origin", "X-Forwarded-Proto", "https"}, "token=" + a.tokens["root"]}).header.Get("Set-Cookie")
	for _, want := range []string{"__Host-belfry-session=", "; Secure", "; HttpOnly", "; SameSite=Strict", "; Path=/"} {
		if !strings.Contains(secured, want) || strings.Contains(secured, "Domain") {
			t.Errorf("the cookie %q lacks %s", secured, want)
		}
	}
	a.later.Store(int64(12*time.Hour - time.Minute))
	if !shows(mine) {
		t.Error("a session ends before its time")
	}
	a.later.Store(int64(12 * time.Hour))
	if shows(mine) {
		t.Error("a session of yesterday shows a job")
	}
}

// escapes are requests for what a session must not see, each of which shows a secret to root.
func escapes() []string {
	bank := "queue=bank%2Forders"
	return []string{
		"/ui/job?" + bank + "&id=waits", "/ui/job?" + bank + "&id=dies", "/ui/body?" + bank + "&id=waits",
		"/ui/jobs?" + bank + "&state=dead", "/ui/dead?" + bank, "/ui/job?queue=bank/orders&id=waits&queue=shop/orders",
		"/ui/job?queue=%62ank/orders&id=waits", "/ui//job?" + bank + "&id=waits", "/ui/%6aob?" + bank + "&id=waits",
		"/ui/x/../job?" + bank + "&id=waits", "/ui/static/../job?" + bank + "&id=waits",
		"/ui/login/../job?" + bank + "&id=waits", "/ui/./body?" + bank + "&id=waits",
		"/ui/schedule?" + bank + "&name=night", "/ui/keys?" + bank, "/ui/keys?" + bank + "&order=name&prefix=k-",
		"/ui/jobs?" + bank + "&state=delayed&key=k-" + secretText,
	}
}

// TestDashboardScopes: a session sees and does what its token allows, however the request is spelled.
func TestDashboardScopes(t *testing.T) {
	a := newAttacked(t)
	// follow gets a page, and one to which it leads inside the dashboard.
	follow := func(target, cookie string) answered {
		got := a.try(attempt{target, http.MethodGet, target, cookie, nil, ""})
		if to := got.header.Get("Location"); strings.HasPrefix(to, "/ui/") {
			got = a.try(attempt{to, http.MethodGet, to, cookie, nil, ""})
		}
		return got
	}
	for _, target := range escapes() {
		if got := follow(target, a.cookies["root"]); !strings.Contains(got.body, secretText) {
			t.Errorf("%s shows root no secret, so it is no attempt: %d %.300s", target, got.status, got.body)
		}
		for _, who := range []string{"", "view", "shop"} {
			got := follow(target, a.cookies[who])
			// The one is of the queues that the session sees, and the other without what its jobs say.
			empty := strings.HasPrefix(target, "/ui/dead") || strings.HasPrefix(target, "/ui/schedule?") && who == "view"
			if strings.Contains(got.body, secretText) || got.status < 300 && !empty {
				t.Errorf("%s shows a secret to %q: %d", target, who, got.status)
			}
		}
	}
	for _, page := range []string{
		"tokens", "audit", "namespaces", "jobs?queue=shop/orders", "job?queue=shop/orders&id=waits",
		"keys?queue=shop/orders", "key?queue=shop/orders&key=k",
	} {
		if got := follow("/ui/"+page, a.cookies["view"]); got.status != http.StatusForbidden {
			t.Errorf("%s for a session that sees numbers: %d", page, got.status)
		}
	}
	if got := follow("/ui/queues", a.cookies["shop"]); got.status != http.StatusOK || strings.Contains(got.body, "bank") {
		t.Errorf("the list of queues names one of others: %d", got.status)
	}
	if got := follow("/ui/dead", a.cookies["shop"]); strings.Contains(got.body, "bank") {
		t.Errorf("the dead letters name a queue of others: %d", got.status)
	}
	before := a.state()
	for who, queues := range map[string][]string{
		"view": {"shop/orders", "bank/orders"},
		"shop": {"bank/orders", "shop/../bank/orders", "shop/orders\x00/../bank/orders", "shop%2f..%2fbank%2forders", "*",
			"shop/*", "bank/orders\r\nX: y", "BANK/orders", " bank/orders", "\u202ebank/orders"},
		"": {"shop/orders"},
	} {
		for _, queue := range queues {
			for action, form := range a.attackForms(queue) {
				got := a.try(attempt{action, http.MethodPost, "/ui/" + action, a.cookies[who], []string{"Content-Type", formType,
					"Sec-Fetch-Site", "same-origin"}, form})
				refused := got.status == http.StatusForbidden || got.status == http.StatusBadRequest ||
					got.status == http.StatusNotFound ||
					who == "" && got.status == http.StatusSeeOther && strings.HasPrefix(got.header.Get("Location"), "login")
				if !refused || got.header.Get("X") != "" {
					t.Errorf("%s of %q by %q: %d to %q", action, queue, who, got.status, got.header.Get("Location"))
				}
			}
		}
	}
	if after := a.state(); after != before {
		t.Errorf("an attempt changed\n%sto\n%s", before, after)
	}
}

// TestDashboardRedirects: neither the login nor a path leads out of the dashboard, whatever the request
// says about the host.
func TestDashboardRedirects(t *testing.T) {
	a := newAttacked(t)
	form := []string{"Content-Type", formType, "Sec-Fetch-Site", "same-origin"}
	for _, next := range []string{
		"https://evil.example/", "//evil.example/", "///evil.example", "/\\evil.example", "\\\\evil.example", "/", "..", ".",
		"javascript:alert(1)", "data:text/html,x", "http:evil", "\thttps://evil.example", " //evil.example", "../v1/put",
		"queue/../../x", "%2f%2fevil.example", "@evil.example/", "x\x00//evil.example", "queues\r\nSet-Cookie: a=b",
		"./x/..//e", "https:evil.example", "?next=//evil.example", "#//evil.example", "evil.example:80",
	} {
		got := a.try(attempt{next, http.MethodPost, "/ui/login", "", form,
			url.Values{"token": {a.tokens["root"]}, "next": {next}}.Encode()})
		if to := got.header.Get("Location"); got.status != http.StatusSeeOther || to != "./" {
			t.Errorf("the login leads from %q to %q (%d), want the overview", next, to, got.status)
		}
		page := a.try(attempt{next, http.MethodGet, "/ui/login?" + url.Values{"next": {next}}.Encode(), "", nil, ""})
		if strings.Contains(page.body, "evil.example") || strings.Contains(page.body, "javascript:") {
			t.Errorf("the page for the login has %q", next)
		}
	}
	for _, headers := range [][]string{
		nil, {"X-Forwarded-Host", "evil.example"}, {"Forwarded", "host=evil.example"}, {"X-Original-URL", "/v1/get"},
		{"X-Rewrite-URL", "/v1/get"}, {"Host", "evil.example"}, {"Host", a.addr + "@evil.example"}, {"Host", ""},
	} {
		for _, target := range []string{"/ui/queues", "/ui", "/ui//evil.example", "/ui/..//evil.example",
			"/ui/../..//evil.example/", "/ui/%2f%2fevil.example", "/ui/\\evil.example", "/ui/login/..//evil.example"} {
			got := a.try(attempt{target, http.MethodGet, target, "", headers, ""})
			to, err := url.Parse(got.header.Get("Location"))
			if err != nil || to.IsAbs() || to.Host != "" || strings.HasPrefix(to.Path, "//") ||
				strings.HasPrefix(to.Path, "/\\") || len(headers) > 0 && strings.Contains(got.body, headers[1]+"/") &&
				headers[1] != "" {
				t.Errorf("%s with %q leads to %q: %d", target, headers, to, got.status)
			}
		}
	}
}

// TestDashboardHeaderInjection: no name, id or header of a request ends a line of the answer.
func TestDashboardHeaderInjection(t *testing.T) {
	a := newAttacked(t)
	const evil = "x\r\nSet-Cookie: evil=1\r\n\r\n<script>"
	put := fmt.Sprintf(`{"queue":"shop/orders","id":%q,"delay":"1h","text":"x"}`, evil)
	if got := a.with(a.tokens["root"], http.MethodPost, "/v1/put", put); got.status != http.StatusOK {
		t.Fatalf("a job with line ends in its id: %d %s", got.status, got.body)
	}
	form := []string{"Content-Type", formType, "Sec-Fetch-Site", "same-origin"}
	id := url.Values{"queue": {"shop/orders"}, "id": {evil}, "due": {"2h"}, "state": {evil}}.Encode()
	answers := map[string]answered{}
	for _, action := range []string{"reschedule", "run-now", "cancel"} {
		answers[action] = a.try(attempt{action, http.MethodPost, "/ui/" + action, a.cookies["root"], form, id})
		if answers[action].status != http.StatusSeeOther {
			t.Errorf("%s: %d", action, answers[action].status)
		}
	}
	for _, page := range []string{"job", "body", "jobs", "queue", "dead", "audit"} {
		answers[page] = a.try(attempt{page, http.MethodGet, "/ui/" + page + "?" + id, a.cookies["root"],
			[]string{"X-Request-Id", "x\tSet-Cookie: evil=1"}, ""})
		answers[page+" without a session"] = a.try(attempt{page, http.MethodGet, "/ui/" + page + "?" + id, "", nil, ""})
	}
	answers["login"] = a.try(attempt{"", http.MethodPost, "/ui/login", "", form,
		url.Values{"token": {a.tokens["root"]}, "next": {"queue?queue=" + url.QueryEscape(evil)}}.Encode()})
	answers["settings"] = a.try(attempt{"", http.MethodPost, "/ui/settings", a.cookies["root"], form,
		url.Values{"theme": {"dark"}, "refresh": {"5"}, "zone": {"UTC" + evil}}.Encode()})
	answers["a zone that is a path"] = a.try(attempt{"", http.MethodPost, "/ui/settings", a.cookies["root"], form,
		url.Values{"theme": {"dark"}, "refresh": {"5"}, "zone": {"../../../../etc/passwd"}}.Encode()})
	answers["an X-Forwarded-Proto"] = a.try(attempt{"", http.MethodPost, "/ui/login", "",
		append([]string{"X-Forwarded-Proto", "https; evil=1"}, form...), "token=" + a.tokens["root"]})
	for what, got := range answers {
		for name, values := range got.header {
			if text := strings.Join(values, ""); strings.Contains(text, "evil=1") && !strings.Contains(text, "evil%3D1") ||
				strings.ContainsAny(text, "\r\n") {
				t.Errorf("%s: the header %s is %q", what, name, text)
			}
		}
		if strings.Contains(got.body, "<script>") {
			t.Errorf("%s: the page has a script", what)
		}
	}
	for _, what := range []string{"settings", "a zone that is a path"} {
		if got := answers[what]; got.status != http.StatusBadRequest || got.header.Get("Set-Cookie") != "" {
			t.Errorf("%s: %d and the cookie %q", what, got.status, got.header.Get("Set-Cookie"))
		}
	}
}

// TestDashboardGuesses: logins with wrong tokens count and are audited as calls with wrong tokens are,
// at the same rate.
func TestDashboardGuesses(t *testing.T) {
	a := newAttacked(t)
	counted := func() string {
		return value(t, a.with(a.tokens["root"], http.MethodGet, "/metrics", "").body,
			`belfry_refused_calls_total{reason="unauthenticated"}`)
	}
	if got := counted(); got != "0" {
		t.Fatalf("%s refused calls before the first", got)
	}
	guess := a.tokens["root"][:len(a.tokens["root"])-4] + "AAAA"
	for range 3 * refusalLinesMax {
		got := a.try(attempt{"", http.MethodPost, "/ui/login", "", []string{"Content-Type", formType, "Sec-Fetch-Site",
			"same-origin"}, "token=" + guess})
		if got.status != http.StatusUnauthorized || got.header.Get("Set-Cookie") != "" || strings.Contains(got.body, guess) {
			t.Fatalf("a guess: %d %s", got.status, got.body)
		}
	}
	if got := counted(); got != fmt.Sprint(3*refusalLinesMax) {
		t.Errorf("%s refused calls after %d guesses", got, 3*refusalLinesMax)
	}
	records := a.audit(a.tokens["root"], `{"token":"nobody","failedOnly":true}`).Records
	records = append(records, a.audit(a.tokens["root"], fmt.Sprintf(`{"token":%q,"failedOnly":true}`,
		strings.Split(a.tokens["root"], "_")[1])).Records...)
	if n := len(records); n < refusalLinesMax || n > refusalLinesMax+5 {
		t.Errorf("%d records of guesses, want about %d", n, refusalLinesMax)
	}
	if strings.Contains(a.log.String(), guess) {
		t.Error("the log has a guess, which may be a token with a typing error")
	}
}

// value returns the value of a series on a page of metrics.
func value(t *testing.T, page, series string) string {
	t.Helper()
	_, rest, ok := strings.Cut(page, "\n"+series+" ")
	number, _, _ := strings.Cut(rest, "\n")
	if !ok {
		t.Fatalf("no %s in the metrics", series)
	}
	return number
}

// TestDashboardRebinding: where calls need no token, a name that a page of elsewhere leads here is
// refused for pages and actions as for calls.
func TestDashboardRebinding(t *testing.T) {
	s := serve(t, withDashboard, func(cfg *Config) { cfg.Local = true })
	s.putJobs()
	a := &attacked{served: s}
	for _, host := range []string{
		"evil.example", "evil.example:7400", "localhost.evil.example", "127.0.0.1.evil.example",
	} {
		for _, x := range []attempt{
			{"a page", http.MethodGet, "/ui/job?queue=shop/orders&id=order-1", "", nil, ""},
			{"an action", http.MethodPost, "/ui/cancel", "", []string{"Content-Type", formType},
				"queue=shop/orders&id=order-1"},
		} {
			x.headers = append(x.headers, "Host", host, "Origin", "http://"+host, "Sec-Fetch-Site", "same-origin")
			if got := a.try(x); got.status != http.StatusForbidden || strings.Contains(got.body, "12345678901234567890") {
				t.Errorf("%s by %s: %d", x.name, host, got.status)
			}
		}
	}
	if got := s.send(http.MethodGet, orderPage, ""); !strings.Contains(got.body, "delayed</span>") {
		t.Errorf("the job changed: %d", got.status)
	}
}

// TestDashboardTextsThatAreNone: what is not UTF-8 is refused with the name of its input, before any call,
// and no page has it.
func TestDashboardTextsThatAreNone(t *testing.T) {
	s := serve(t, withDashboard)
	s.node.Format = fsm.LatestFormat
	s.call("put", `{"queue":"q","id":"a","key":"k"}`)
	for _, path := range []string{"key?queue=q&key=\xff", "keys?queue=q&prefix=\xff", "schedule?queue=q&name=\xff",
		"schedules?filter=\xff", "schedules?queue=q&prefix=a\xc3", "job?queue=q&id=\xed\xa0\x80", "find?job=\xff", "?\xff=1",
		"body?queue=q&id=\xff", "export?queue=q&state=ready&text=\xff", "settings?x=\xff", "login?next=\xff",
	} {
		page, query, _ := strings.Cut(path, "?")
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		got := s.send(http.MethodGet, "/ui/"+page+"?"+values.Encode(), "")
		if got.status != http.StatusBadRequest || !strings.Contains(got.body, "not valid UTF-8") ||
			!utf8.ValidString(got.body) {
			t.Errorf("%q: %d %q", path, got.status, got.body)
		}
	}
	hidden := url.Values{"queue": {"q"}, "key": {"\xff"}}.Encode()
	for action, form := range map[string]url.Values{
		"pause-key": fields("of", hidden), "purge-key": fields("queue", "q", "key", "k", "confirm", "\xff"),
		"put": fields("queue", "q", "body", "\xff"), "settings": fields("theme", "auto", "zone", "\xff"),
	} {
		got := s.form(noRedirects(), "/ui/"+action, form)
		if got.status != http.StatusBadRequest || !utf8.ValidString(got.body) {
			t.Errorf("%s: %d %q", action, got.status, got.body)
		}
	}
}
