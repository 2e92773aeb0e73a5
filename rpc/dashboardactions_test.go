package rpc

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/belfrydb/belfry/rpc/backend"
)

// fields are those of a form: names and values in turn.
func fields(pairs ...string) url.Values {
	all := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		all.Set(pairs[i], pairs[i+1])
	}
	return all
}

// These find what a form on a page consists of.
var (
	inputTag  = regexp.MustCompile(`<input[^>]*>`)
	selectTag = regexp.MustCompile(`(?s)<select[^>]* name="([^"]*)"[^>]*>(.*?)</select>`)
	chosenTag = regexp.MustCompile(`<option value="([^"]*)" selected>`)
	attribute = regexp.MustCompile(` (name|value|type)="([^"]*)"`)
)

// filled returns the form with an action on a page as a browser would send it, with what a person
// changed: names and values in turn.
func (s *served) filled(page, action string, changes ...string) url.Values {
	s.t.Helper()
	got := s.send(http.MethodGet, page, "")
	_, rest, ok := strings.Cut(got.body, `action="`+action+`"`)
	if got.status != http.StatusOK || !ok {
		s.t.Fatalf("%s: %d, without a form for %s:\n%s", page, got.status, action, got.body)
	}
	form, _, _ := strings.Cut(rest, "</form>")
	all := url.Values{}
	for _, tag := range inputTag.FindAllString(form, -1) {
		has := map[string]string{}
		for _, a := range attribute.FindAllStringSubmatch(tag, -1) {
			has[a[1]] = a[2]
		}
		if has["type"] != "checkbox" {
			all.Set(has["name"], strings.ReplaceAll(has["value"], "&amp;", "&"))
		}
	}
	for _, list := range selectTag.FindAllStringSubmatch(form, -1) {
		if chosen := chosenTag.FindStringSubmatch(list[2]); chosen != nil {
			all.Set(list[1], chosen[1])
		}
	}
	for i := 0; i < len(changes); i += 2 {
		all.Set(changes[i], changes[i+1])
	}
	return all
}

// acts posts a form, and returns the page that follows. The act must be audited.
func (s *served) acts(action string, form url.Values) answered {
	s.t.Helper()
	got := s.form(noRedirects(), "/ui/"+action, form, "X-Request-Id", "by-"+action)
	if !strings.Contains(s.log.String(), "request_id=by-"+action+" dashboard=true") {
		s.t.Errorf("%s leaves no line in the audit log", action)
	}
	target := got.header.Get("Location")
	if got.status != http.StatusSeeOther || strings.HasPrefix(target, "/") {
		s.t.Fatalf("%s: %d to %q, want 303 to a relative page: %s", action, got.status, target, got.body)
	}
	after := s.send(http.MethodGet, "/ui/"+target, "")
	if after.status != http.StatusOK || !strings.Contains(after.body, `role="status"`) {
		s.t.Errorf("%s leads to %q: %d, want a page that says what was done: %s", action, target, after.status, after.body)
	}
	return after
}

// refuses posts a form, which must be refused on its page with what was typed and the name of a field.
func (s *served) refuses(action string, form url.Values, status int, shows ...string) {
	s.t.Helper()
	got := s.form(noRedirects(), "/ui/"+action, form)
	if got.status != status || !strings.Contains(got.body, `role="alert"`) {
		s.t.Errorf("%s of %v: %d, want %d: %s", action, form, got.status, status, got.body)
	}
	for _, text := range shows {
		if !strings.Contains(got.body, text) {
			s.t.Errorf("%s of %v: want %q in: %s", action, form, text, got.body)
		}
	}
	if strings.Contains(got.body, `data-refresh="5"`) {
		s.t.Errorf("%s: a page with what was typed is refreshed", action)
	}
}

// TestDashboardQueueSettings: the page of a queue says where its settings come from, and a form
// changes what the person changed, and nothing else.
func TestDashboardQueueSettings(t *testing.T) {
	s := serve(t, withDashboard)
	s.putJobs()
	const page, form = "/ui/queue?queue=shop%2Forders", "/ui/queue-settings?queue=shop%2Forders"
	row := func(name, value, origin string) string {
		class := "origin"
		if origin != "default" {
			class = "origin own"
		}
		return `<th scope="row">` + name + `</th><td>` + value + `</td><td class="` + class + `">` + origin + `</td>`
	}
	if got := s.send(http.MethodGet, page, ""); !strings.Contains(got.body, row("Lease (TTR)", "30s", "default")) {
		t.Errorf("before: %s", got.body)
	}
	first := s.filled(form, "queue-settings", "ttr", "2m", "maxJobs", "5000")
	second := s.filled(form, "queue-settings", "overdue.mode", "spread", "overdue.period", "1h")
	s.acts("queue-settings", first)
	s.acts("queue-settings", second) // shown before the first was sent, it does not undo that
	after := s.send(http.MethodGet, page, "")
	for _, want := range []string{
		row("Lease (TTR)", "2m", "this queue"), row("Jobs", "5\u202f000", "this queue"), row("Bytes", "no limit", "default"),
		row("Jobs due in an outage", "spread", "this queue"), row("Spread over", "1h", "this queue"),
		row("An outage lasts at least", "1m", "default"),
		row("Retry delays", "at once", "default"),
	} {
		if !strings.Contains(after.body, want) {
			t.Errorf("after: want %s in %s", want, after.body)
		}
	}
	for _, tt := range []struct{ name, value, says string }{
		{"ttr", "25h", "settings.ttr: "}, {"ttr", "soon", "ttr: &#34;soon&#34; is no duration"},
		{"maxAttempts", "1000001", "1000000"}, {"overdue.period", "0s", "overdue.period"},
	} {
		s.refuses("queue-settings", s.filled(form, "queue-settings", tt.name, tt.value), http.StatusBadRequest, tt.says,
			`value="`+tt.value+`"`, `id="`+tt.name+`" name="`+tt.name+`" aria-invalid="true"`)
	}
	s.refuses("queue-settings", s.filled(form, "queue-settings"), http.StatusBadRequest, "nothing was changed")
}

// TestDashboardMakesQueues: a queue is made with partitions and settings, and deleted by its name.
func TestDashboardMakesQueues(t *testing.T) {
	s := serve(t, withDashboard)
	made := s.filled("/ui/new-queue", "new-queue", "queue", "bills", "partitions", "3", "maxInFlight", "30")
	if after := s.acts("new-queue", made); !strings.Contains(after.body, ">The queue is made.<") {
		t.Errorf("made: %s", after.body)
	}
	if got := s.send(http.MethodGet, "/ui/queues", ""); !strings.Contains(got.body, ">bills</a>") {
		t.Errorf("the list does not have it: %s", got.body)
	}
	if got := s.post("/v1/get-queue", `{"queue":"bills"}`); !strings.Contains(got.body, `"partitions":3`) ||
		!strings.Contains(got.body, `"maxInFlight":30`) {
		t.Errorf("the queue is %s", got.body)
	}
	form := func(changes ...string) url.Values { return s.filled("/ui/new-queue", "new-queue", changes...) }
	s.refuses("new-queue", form("queue", "bills"), http.StatusConflict, "QUEUE_EXISTS", `value="bills"`)
	s.refuses("new-queue", form("queue", "a b"), http.StatusBadRequest, "queue: ", `value="a b"`)
	s.refuses("new-queue", form("queue", "x", "partitions", "4"), http.StatusBadRequest, "partitions: ", `value="4"`)
	s.refuses("new-queue", form("queue", "x", "maxBytes", "1 GiB"), http.StatusBadRequest, "maxBytes: ", `value="1 GiB"`)
	for i := range 3 {
		if got := s.post("/v1/put", fmt.Sprintf(`{"queue":"bills","id":"b%d"}`, i)); got.status != http.StatusOK {
			t.Fatal(got.body)
		}
	}
	if got := s.send(http.MethodGet, "/ui/queue?queue=bills", ""); !strings.Contains(got.body,
		">Delete the queue and its 3 jobs<") {
		t.Errorf("the button has no count: %s", got.body)
	}
	remove := s.filled("/ui/queue?queue=bills", "delete-queue")
	remove.Set("queue", "bills")
	s.refuses("delete-queue", remove, http.StatusBadRequest, "confirm-delete: type bills", "nothing was done")
	remove.Set("confirm-delete", "bills")
	if after := s.acts("delete-queue", remove); !strings.Contains(after.body, ">3 jobs were deleted with the queue.<") ||
		strings.Contains(after.body, ">bills</a>") {
		t.Errorf("deleted: %s", after.body)
	}
}

// TestDashboardPuts: a form puts a job once, however often it is sent.
func TestDashboardPuts(t *testing.T) {
	s := serve(t, withDashboard)
	s.putJobs()
	const page = "/ui/put?queue=held"
	form := func(changes ...string) url.Values { return s.filled(page, "put", changes...) }
	put := form("id", "p1", "due", "2h", "priority", "-3", "ttr", "1m", "headers", "kind: bill\r\nfor: ann",
		"body", "{\r\n\"n\": 12345678901234567890\r\n}")
	after := s.acts("put", put)
	for _, want := range []string{
		">The job is put.<", "delayed</span>", "<td>-3</td>", ">12345678901234567890<", "bill</td>", "29 bytes"} {
		if !strings.Contains(after.body, want) {
			t.Errorf("want %q in %s", want, after.body)
		}
	}
	if got := s.send(http.MethodGet, "/ui/body?queue=held&id=p1", ""); got.body != "{\n\"n\": 12345678901234567890\n}" {
		t.Errorf("the body is %q", got.body)
	}
	own := form("body", "x")
	id := func(page answered) string {
		_, rest, _ := strings.Cut(page.body, "<title>")
		id, _, _ := strings.Cut(rest, " ")
		return id
	}
	if first, second := id(s.acts("put", own)), id(s.acts("put", own)); first != second || first == "" {
		t.Errorf("one form, sent twice, made the jobs %q and %q", first, second)
	}
	if first, second := id(s.acts("put", form("body", "x"))), id(s.acts("put", form("body", "x"))); first == second {
		t.Errorf("two forms made one job, %q", first)
	}
	large := strings.Repeat("<", 1<<20)
	if after := s.acts("put", form("id", "large", "body", large)); !strings.Contains(after.body,
		"1\u202f048\u202f576 bytes") {
		t.Errorf("a body of 1 MiB: %.2000s", after.body)
	}
	for _, tt := range []struct{ name, value, says string }{
		{"due", "noon", "due: "}, {"due", "-5s", "delay: "},
		{"priority", "4294967296", "from -128 to 4294967295"}, {"ttr", "0s", "ttr: "},
		{"id", "1-2", "id: "}, {"headers", "nocolon", "headers: "}, {"ttl", "0s", "ttl: "},
		{"maxAttempts", "1000001", "maxAttempts: "}, {"retryDelays", "x", "retryDelays: "},
	} {
		shown := `value="` + tt.value + `"`
		if tt.name == "headers" {
			shown = "\n" + tt.value + "</textarea>"
		}
		s.refuses("put", form(tt.name, tt.value, "body", "kept <b>"), http.StatusBadRequest, tt.says, shown,
			`id="`+tt.name+`" name="`+tt.name+`" aria-invalid="true"`, "\nkept &lt;b&gt;</textarea>")
	}
	s.refuses("put", form("body", large+"x"), http.StatusBadRequest, "TOO_LARGE", "the limit is 1048576")
	s.refuses("put", form("id", "p1", "body", "other"), http.StatusConflict, "JOB_EXISTS", "\nother</textarea>")
}

// TestDashboardPauses: a pause ends at a time, after a time, or not by itself.
func TestDashboardPauses(t *testing.T) {
	s := serve(t, withDashboard)
	s.putJobs()
	const page = "/ui/queue?queue=held"
	for typed, shows := range map[string]string{
		"2090-01-31 15:04": "paused until 2090-01-31 15:04:00.000 +00:00", "2h": "paused until 20", "": "paused</span>",
	} {
		s.acts("pause", fields("queue", "held", "for", typed))
		if got := s.send(http.MethodGet, page, ""); !strings.Contains(got.body, shows) {
			t.Errorf("pause for %q: want %q in %s", typed, shows, got.body)
		}
		if got := s.send(http.MethodGet, "/ui/queues?sort=paused", ""); strings.Index(got.body, ">held</a>") >
			strings.Index(got.body, ">shop/orders</a>") {
			t.Errorf("the paused queue is not the first: %s", got.body)
		}
		s.acts("resume", fields("queue", "held"))
	}
	s.refuses("pause", fields("queue", "held", "for", "later"), http.StatusBadRequest, `value="later"`, "neither a duration")
	s.refuses("pause", fields("queue", "held", "for", "2020-01-31"), http.StatusBadRequest, "must be in the future")
	s.refuses("pause", fields("queue", "held", "for", "-1h"), http.StatusBadRequest, "must be in the future")
}

// TestDashboardNodes: a leadership is handed over, a node drained and forgotten, each with the words
// of the API if that must not be.
func TestDashboardNodes(t *testing.T) {
	cluster := healthyCluster()
	cluster.moves = []backend.Move{{Shard: 1, Text: "waits for n3 to catch up"}}
	s := serve(t, withDashboard, func(cfg *Config) { cfg.Cluster = cluster })
	asked := func(want string) {
		t.Helper()
		cluster.mu.Lock()
		defer cluster.mu.Unlock()
		if len(cluster.asked) == 0 || cluster.asked[len(cluster.asked)-1] != want {
			t.Errorf("asked %q, want %s", cluster.asked, want)
		}
	}
	got := s.send(http.MethodGet, "/ui/cluster", "")
	for _, want := range []string{"Shard 1: waits for n3 to catch up", ">Voters of a shard</th><td>3<",
		`<option value="2">2, led by n1</option>`} {
		if !strings.Contains(got.body, want) {
			t.Errorf("the cluster: want %q in %s", want, got.body)
		}
	}
	s.acts("transfer", fields("shard", "2", "to", "n3"))
	asked(fmt.Sprintf("transfer 2 from %s to %s", serverID(1), serverID(3)))
	s.refuses("transfer", fields("shard", "2", "to", "n9"), http.StatusBadRequest, "is no voter of shard 2")
	s.refuses("transfer", fields("shard", "x"), http.StatusBadRequest, "is no number of a shard")

	page := "/ui/node?name=n2&incarnation=" + strings.TrimPrefix(serverID(2), "n2.")
	n2 := fields("name", "n2", "incarnation", strings.TrimPrefix(serverID(2), "n2."))
	if got := s.send(http.MethodGet, page, ""); !strings.Contains(got.body, ">Drain: move 0 leaderships and 3 replicas away<") || strings.Contains(got.body, `action="remove-node"`) {
		t.Errorf("the node: %s", got.body)
	}
	s.refuses("drain", n2, http.StatusBadRequest, "n2 is needed", "force the drain")
	n2.Set("force", "yes")
	s.acts("drain", n2)
	asked("drain " + serverID(2) + " keeping 0")
	s.acts("undrain", n2)
	asked("undrain " + serverID(2))
	n2.Set("confirm", "n2")
	s.refuses("remove-node", n2, http.StatusBadRequest, "still answers; drain it, stop it")

	cluster.members[1].Answers, cluster.members[1].Groups = false, nil
	n2.Set("confirm", "n1")
	s.refuses("remove-node", n2, http.StatusBadRequest, "confirm: type n2", `action="remove-node"`, "Forget the node")
	n2.Set("confirm", "n2")
	s.acts("remove-node", n2)
	asked("remove " + serverID(2))
	if got := s.send(http.MethodGet, "/ui/node?name=n9", ""); got.status != http.StatusNotFound {
		t.Errorf("an unknown node: %d", got.status)
	}
	if got := s.send(http.MethodGet, "/ui/", ""); !strings.Contains(got.body, "node n2 does not answer") ||
		!strings.Contains(got.body, "start it again; one that is lost for good") {
		t.Errorf("the overview has no findings: %s", got.body)
	}
}

// TestDashboardNamespaces: a quota is set by what was changed, and removed by the namespace's name.
func TestDashboardNamespaces(t *testing.T) {
	cluster := &fakeQuotas{fakeCluster: healthyCluster(), all: []backend.Namespace{{Name: "shop"}}}
	cluster.all[0].Quota[0] = 5
	s := serve(t, withDashboard, func(cfg *Config) { cfg.Cluster = cluster })
	const page = "/ui/namespace?name=shop"
	form := func(changes ...string) url.Values { return s.filled(page, "namespace", changes...) }
	s.acts("namespace", form("maxBytes", "2000", "putsPerSecond", "7"))
	if got := cluster.asked[len(cluster.asked)-1]; got != "set shop [false true false true] [0 2000 0 7000]" {
		t.Errorf("asked %s", got)
	}
	s.refuses("namespace", form("maxJobs", "many"), http.StatusBadRequest, "maxJobs: ", `value="many"`)
	s.refuses("namespace", form("putsPerSecond", "1000000001"), http.StatusBadRequest, "1000000000", `value="1000000001"`)
	s.refuses("namespace", form("maxBytes", "1152921504606846977"), http.StatusBadRequest, "1152921504606846976")
	s.refuses("namespace", form(), http.StatusBadRequest, "nothing was changed")
	s.refuses("delete-namespace", fields("name", "shop", "confirm", "shops"), http.StatusBadRequest, "confirm: type shop")
	s.acts("delete-namespace", fields("name", "shop", "confirm", "shop"))
	if got := cluster.asked[len(cluster.asked)-1]; got != "remove shop" {
		t.Errorf("asked %s", got)
	}
}

// tokenForms is a server with tokens, and how a test uses its forms.
type tokenForms struct {
	*served
	store        *tokenMemory
	root, rootID string
}

func newTokenForms(t *testing.T) *tokenForms {
	f := &tokenForms{store: newTokenMemory()}
	f.served = serve(t, withDashboard, func(cfg *Config) { cfg.Authenticator, cfg.Catalog = f.store, f.store })
	f.root, f.rootID = f.store.make(t, "admin:*")
	return f
}

// act posts a form with a token.
func (f *tokenForms) act(token, action string, form url.Values) answered {
	f.t.Helper()
	return f.form(noRedirects(), "/ui/"+action, form, "Authorization", "Bearer "+token, "X-Request-Id", "by-"+action)
}

func (f *tokenForms) get(page string) answered {
	f.t.Helper()
	return f.send(http.MethodGet, page, "", "Authorization", "Bearer "+f.root)
}

// made posts a form that makes a token, and returns the token and its id.
func (f *tokenForms) made(action string, form url.Values, shows string) (token, id string) {
	f.t.Helper()
	got := f.act(f.root, action, form)
	text := regexp.MustCompile(`<pre id="token"[^>]*>([^<]+)</pre>`).FindStringSubmatch(got.body)
	if got.status != http.StatusOK || text == nil || got.header.Get("Cache-Control") != "no-store" ||
		!strings.Contains(got.body, shows) {
		f.t.Fatalf("%s: %d %v %s", action, got.status, got.header, got.body)
	}
	return text[1], strings.Split(text[1], "_")[1]
}

// TestDashboardTokens: a token is shown once, a rotated one ends later, and a revoked one at once.
func TestDashboardTokens(t *testing.T) {
	f := newTokenForms(t)
	token, id := f.made("new-token", fields("scopes", "put:shop/*\r\nview:*", "about", "the shop", "ttl", "24h"),
		"put:shop/*")
	if got := f.with(token, http.MethodPost, "/v1/put", `{"queue":"shop/a"}`); got.status != http.StatusOK {
		t.Errorf("the token does not work: %d %s", got.status, got.body)
	}
	for _, page := range []string{"/ui/tokens", "/ui/token?id=" + id} {
		if got := f.get(page); !strings.Contains(got.body, "the shop") || strings.Contains(got.body, token) {
			t.Errorf("%s: %d %s", page, got.status, got.body)
		}
	}
	if got := f.get("/ui/tokens"); !strings.Contains(got.body, ">"+f.rootID+"</a> <span class=\"tag\">yours</span>") {
		t.Errorf("which is mine: %s", got.body)
	}
	next, nextID := f.made("rotate-token", fields("id", id, "overlap", "2h"), "The old token "+id+" ends in 2 h.")
	old, renewed := f.store.all[id], f.store.all[nextID]
	if left := time.Until(time.Unix(0, old.NotAfter)); left < time.Hour || left > 2*time.Hour {
		t.Errorf("the old one ends in %v", left)
	}
	if fmt.Sprint(renewed.Scopes) != fmt.Sprint(old.Scopes) || renewed.About != old.About || renewed.TTL != old.TTL ||
		nextID == id {
		t.Errorf("the new one is %+v, the old one %+v", renewed, old)
	}
	if got := f.act(f.root, "revoke-token", fields("id", id, "confirm", id)); got.status != http.StatusSeeOther {
		t.Errorf("revoked: %d %s", got.status, got.body)
	}
	if got := f.with(token, http.MethodPost, "/v1/put", `{"queue":"shop/a"}`); got.status != http.StatusUnauthorized {
		t.Errorf("the revoked token works: %d", got.status)
	}
	if got := f.act(next, "new-token", fields("scopes", "admin:*")); got.status != http.StatusForbidden ||
		!strings.Contains(got.body, "FORBIDDEN") {
		t.Errorf("a token for puts makes one for all: %d %s", got.status, got.body)
	}
	for _, action := range []string{"new-token", "rotate-token", "revoke-token"} {
		if !strings.Contains(f.log.String(), "request_id=by-"+action+" dashboard=true") {
			t.Errorf("%s leaves no line in the audit log", action)
		}
	}
}

// TestDashboardRefusesTokens: what cannot be made or ended is refused before anything is done.
func TestDashboardRefusesTokens(t *testing.T) {
	f := newTokenForms(t)
	_, id := f.store.make(t, "put:shop/*")
	for _, tt := range []struct {
		action string
		form   url.Values
		status int
		shows  string
	}{
		{"new-token", fields("scopes", "steal:x"), http.StatusBadRequest, "steal:x</textarea>"},
		{"new-token", fields("scopes", " "), http.StatusBadRequest, "scopes: 1 to 32"},
		{"new-token", fields("scopes", "put:a", "ttl", "1ms"), http.StatusBadRequest, `value="1ms"`},
		{"rotate-token", fields("id", id, "overlap", "-1s"), http.StatusBadRequest, "overlap: "},
		{"rotate-token", fields("id", id, "overlap", "87661h"), http.StatusBadRequest, "87660h"},
		{"rotate-token", fields("id", "none"), http.StatusNotFound, "there is no token"},
		{"revoke-token", fields("id", id, "confirm", id[1:]), http.StatusBadRequest, "confirm: type " + id},
	} {
		if got := f.act(f.root, tt.action, tt.form); got.status != tt.status || !strings.Contains(got.body, tt.shows) {
			t.Errorf("%s of %v: %d, want %d with %q: %s", tt.action, tt.form, got.status, tt.status, tt.shows, got.body)
		}
	}
	if len(f.store.all) != 2 || f.store.all[id].NotAfter != 0 {
		t.Errorf("what was refused left %d tokens", len(f.store.all))
	}
	if got := serve(t, withDashboard).send(http.MethodGet, "/ui/tokens", ""); strings.Contains(got.body, "new-token") {
		t.Errorf("a server without tokens offers to make one: %s", got.body)
	}
}

// TestDashboardBodies: a body is shown in each form, as commands of a shell, and not at all where the
// person wants that.
func TestDashboardBodies(t *testing.T) {
	s := serve(t, withDashboard)
	s.putJobs()
	for as, shows := range map[string]string{
		"": `<span class="number">12345678901234567890</span>`, "text": "{&#34;n&#34;:12345678901234567890}",
		"hex": "7b 22 6e 22", "json": `<details open>`, "none": `<details open>`,
	} {
		if got := s.send(http.MethodGet, orderPage+"&as="+as, ""); !strings.Contains(got.body, shows) {
			t.Errorf("as %q: want %s in %s", as, shows, got.body)
		}
	}
	shown := s.send(http.MethodGet, orderPage, "")
	_, rest, _ := strings.Cut(shown.body, `<pre id="curl"`)
	for _, want := range []string{s.url + "/v1/get", "/v1/reschedule", "/v1/cancel", "shop/orders"} {
		if !strings.Contains(rest, want) {
			t.Errorf("want %s among the commands: %s", want, rest)
		}
	}
	keep := s.form(noRedirects(), "/ui/settings", fields("theme", "dark", "refresh", "0", "zone", "Europe/Berlin",
		"bodies", "hidden"))
	cookie, _, _ := strings.Cut(keep.header.Get("Set-Cookie"), ";")
	hidden := s.send(http.MethodGet, orderPage, "", "Cookie", cookie)
	if strings.Contains(hidden.body, "12345678901234567890") || strings.Contains(hidden.body, `<th scope="row">a</th>`) ||
		!strings.Contains(hidden.body, "are hidden.") || !strings.Contains(hidden.body, `data-theme="dark"`) {
		t.Errorf("hidden: %s", hidden.body)
	}
	if got := s.send(http.MethodGet, orderPage+"&bodies=shown", "", "Cookie", cookie); !strings.Contains(got.body,
		"12345678901234567890") {
		t.Errorf("asked for: %s", got.body)
	}
	s.refuses("settings", fields("theme", "dark", "refresh", "0", "zone", "Mars", "bodies", "hidden"),
		http.StatusBadRequest, "zone: ", `value="Mars"`)
	s.refuses("settings", fields("theme", "dark", "refresh", "0", "zone", "UTC", "bodies", "x"), http.StatusBadRequest,
		"bodies: ")
}

// TestDashboardOverviewCauses: the first page shows what jobs died of, to those who may see jobs.
func TestDashboardOverviewCauses(t *testing.T) {
	store := newTokenMemory()
	s := serve(t, withDashboard, func(cfg *Config) { cfg.Authenticator, cfg.Catalog = store, store })
	root, _ := store.make(t, "admin:*")
	view, _ := store.make(t, "view:*")
	for i := range 3 {
		put := fmt.Sprintf(`{"queue":"many","id":"j%d","maxAttempts":1}`, i)
		if got := s.with(root, http.MethodPost, "/v1/put", put); got.status != http.StatusOK {
			t.Fatal(got.body)
		}
		got := s.with(root, http.MethodPost, "/v1/reserve", `{"queues":["many"]}`)
		var held struct{ Jobs []struct{ Lease string } }
		if err := json.Unmarshal([]byte(got.body), &held); err != nil || len(held.Jobs) != 1 {
			t.Fatal(got.body, err)
		}
		nack := fmt.Sprintf(`{"lease":%q,"error":"order %d is unknown"}`, held.Jobs[0].Lease, 4000+i)
		if got := s.with(root, http.MethodPost, "/v1/nack", nack); got.status != http.StatusOK {
			t.Fatal(got.body)
		}
	}
	if got := s.send(http.MethodGet, "/ui/", "", "Authorization", "Bearer "+root); !strings.Contains(got.body,
		`order # is unknown<br><span class="help">such as order 4000 is unknown</span></td>`+
			`<td><a href="dead?queue=many">many</a></td><td class="number">3</td>`) {
		t.Errorf("the causes: %s", got.body)
	}
	if got := s.send(http.MethodGet, "/ui/", "", "Authorization", "Bearer "+view); got.status != http.StatusOK ||
		!strings.Contains(got.body, "Your token does not show jobs.") || strings.Contains(got.body, "is unknown") {
		t.Errorf("a token for numbers: %d %s", got.status, got.body)
	}
}

// TestDashboardNewActionsOnlyActHere: none of them acts from another site, by GET, or where the
// dashboard only shows.
func TestDashboardNewActionsOnlyActHere(t *testing.T) {
	actions := map[string]bool{ // whether there is a page at the same path
		"delete-queue": false, "queue-settings": true, "new-queue": true, "put": true, "drain": false, "undrain": false,
		"remove-node": false, "transfer": false, "namespace": true, "delete-namespace": false, "new-token": false,
		"rotate-token": false, "revoke-token": false,
	}
	s := serve(t, withDashboard)
	s.putJobs()
	reads := serve(t, func(cfg *Config) { cfg.Dashboard.Mode = DashboardRead })
	reads.putJobs()
	form := fields("queue", "held", "name", "n1", "confirm", "held", "confirm-delete", "held", "id", "x", "body", "x")
	for action, hasPage := range actions {
		if got := s.form(noRedirects(), "/ui/"+action, form, "Sec-Fetch-Site", "cross-site"); got.status !=
			http.StatusForbidden {
			t.Errorf("%s from another site: %d", action, got.status)
		}
		if got := s.send(http.MethodGet, "/ui/"+action, ""); !hasPage && got.status != http.StatusMethodNotAllowed {
			t.Errorf("GET of %s: %d", action, got.status)
		}
		if got := reads.form(noRedirects(), "/ui/"+action, form); got.status != http.StatusForbidden {
			t.Errorf("%s where pages only show: %d", action, got.status)
		}
	}
	for _, server := range []*served{s, reads} {
		if got := server.post("/v1/get-queue", `{"queue":"held"}`); !strings.Contains(got.body, `"reserved":1`) {
			t.Errorf("the queue changed: %s", got.body)
		}
	}
	for _, page := range []string{
		"/ui/", "/ui/queues", "/ui/queue?queue=held", "/ui/job?queue=held&id=held-1", "/ui/cluster", "/ui/node?name=n1",
		"/ui/namespace?name=shop", "/ui/tokens", "/ui/dead",
	} {
		if got := reads.send(http.MethodGet, page, ""); got.status != http.StatusOK ||
			strings.Contains(got.body, `<form method="post"`) {
			t.Errorf("%s where pages only show: %d, with a form that acts: %s", page, got.status, got.body)
		}
	}
}
