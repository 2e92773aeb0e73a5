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

	"github.com/belfrydb/belfry/fsm"
)

// hostileKey is a key that a page must escape, and whose name a person cannot type as it is.
const hostileKey = "\"><script>ran=1</script>\u202e\x00 a  b\n"

// dashboardKeys is a server with jobs of several keys in the queue q.
func dashboardKeys(t *testing.T, settings string) *served {
	t.Helper()
	s := serve(t, withDashboard)
	s.node.Format = fsm.LatestFormat
	s.call("create-queue", `{"queue":"q","partitions":1,"settings":`+settings+`}`)
	for i, key := range []string{"customer-1", "customer-2", hostileKey} {
		for n := range 3 - i {
			s.call("put", fmt.Sprintf(`{"queue":"q","id":"j%d-%d","key":%s}`, i, n, jsonText(key)))
		}
		s.call("put", fmt.Sprintf(`{"queue":"q","id":"d%d","delay":"1h","key":%s}`, i, jsonText(key)))
	}
	s.call("put", `{"queue":"q","id":"bare"}`)
	s.node.Now = func() time.Time { return time.Now().Add(time.Second) } // what is due is ready
	return s
}

// jsonText writes a text in JSON.
func jsonText(text string) string {
	return `"` + strings.NewReplacer(`"`, `\"`, "\x00", `\u0000`, "\n", `\n`).Replace(text) + `"`
}

// keyPage is the page of a key of the queue q.
func keyPage(key string) string {
	return "/ui/key?" + url.Values{"queue": {"q"}, "key": {key}}.Encode()
}

// TestDashboardKeys: a list has the backlog of each key, and why it waits.
func TestDashboardKeys(t *testing.T) {
	s := dashboardKeys(t, `{"keyConcurrency":1,"keyRate":{"count":2,"per":"60s"}}`)
	s.call("reserve", `{"queues":["q"],"ttr":"1h"}`) // of customer-1, which is at its limit now
	list := s.shows("/ui/keys?queue=q", "Reserved of one key: 1 · Rate of one key: 2/1m",
		`<a class="free" href="key?key=customer-1&amp;queue=q">customer-1</a></th>`+
			`<td class="number"><a href="jobs?key=customer-1&amp;queue=q&amp;state=ready">2</a></td>`+
			`<td class="number"><a href="jobs?key=customer-1&amp;queue=q&amp;state=delayed">1</a></td>`+
			`<td class="number"><a href="jobs?key=customer-1&amp;queue=q&amp;state=reserved">1</a></td>`+
			`<td class="number">0</td><td>as many of its jobs are reserved as may be</td>`,
		"nothing holds it: the next consumer gets a job", "&lt;script&gt;ran=1&lt;/script&gt;��",
		"!<script>ran", `data-refresh="0"`).body
	if strings.Index(list, ">customer-1<") > strings.Index(list, ">customer-2<") {
		t.Errorf("the largest backlog is not the first: %s", list)
	}
	s.shows("/ui/queue?queue=q", `<a href="keys?queue=q">Keys</a>`, ">Reserved of one key</th>", ">Rate of one key</th>")
	s.shows("/ui/keys?queue=q&state=reserved", ">customer-1<", "!>customer-2<",
		`<a href="keys?queue=q&amp;state=reserved" aria-current="page">`)
	s.shows("/ui/keys?queue=q&prefix=customer-2&order=name", "!>customer-1<", ">customer-2<",
		`<option value="name" selected>`)
	s.shows("/ui/keys?queue=q&prefix=none", "No key of this queue fits.")
	for page, status := range map[string]int{"/ui/keys?queue=none": 404, "/ui/key?queue=none&key=k": 404,
		"/ui/keys?queue=q&state=acked": 400, "/ui/keys?queue=q&from=x": 400, "/ui/keys": 400, "/ui/key?queue=q": 400,
		"/ui/keys?queue=q&prefix=" + strings.Repeat("k", 129): 400, "/ui/key?queue=q&key=" + strings.Repeat("k", 129): 400,
	} {
		if got := s.send(http.MethodGet, page, ""); got.status != status {
			t.Errorf("%s: %d, want %d: %s", page, got.status, status, got.body)
		}
	}
	for _, key := range []string{"", strings.Repeat("k", 129)} {
		if got := s.send(http.MethodGet, keyPage(key), ""); got.status != http.StatusBadRequest ||
			!strings.Contains(got.body, fmt.Sprintf("key: it has %d bytes; the limit is 1 to 128", len(key))) {
			t.Errorf("a key of %d bytes: %d %s", len(key), got.status, got.body)
		}
	}
	// What is typed stays, so that it means the same when it is sent again.
	s.shows("/ui/keys?queue=q&prefix=%22%E2%80%AE", "value=\"&#34;\u202e\"")
	s.shows("/ui/schedules?queue=q&prefix=%E2%80%AE", "value=\"\u202e\"", "begins with “�”")
	s.shows("/ui/find?queue=q&job=%E2%80%AE", "value=\"\u202e\"")
	// One that waits for its rate says until when.
	s.call("update-queue", `{"queue":"q","settings":{"keyConcurrency":0}}`)
	s.call("reserve", `{"queues":["q"],"ttr":"1h"}`)
	s.shows("/ui/keys?queue=q&prefix=customer-1", `<td>its rate: it has no token</td><td><time `)
	s.shows(keyPage("customer-1"), ">its rate: it has no token<", ">Next token</th><td><time ",
		`<dt>Ready</dt><dd><a href="jobs?key=customer-1&amp;queue=q&amp;state=ready">1</a>`)
	s.shows(keyPage("customer"), "It has no jobs, and is not paused.")
}

// TestDashboardKeysWait: a key says that its order or a dead job holds it.
func TestDashboardKeysWait(t *testing.T) {
	s := dashboardKeys(t, `{"keyOrdered":true,"holdOnDead":true}`)
	s.shows("/ui/keys?queue=q", "Order of a key: yes · A dead job holds its key: yes")
	reserve := func() string {
		got := s.call("reserve", `{"queues":["q"],"ttr":"1h"}`)
		return regexp.MustCompile(`"lease":"([^"]*)"`).FindStringSubmatch(got)[1]
	}
	s.call("nack", `{"lease":"`+reserve()+`","delay":"1h"}`)
	s.shows("/ui/keys?queue=q&prefix=customer-1", "its jobs keep their order, and the first one is delayed")
	s.call("nack", `{"lease":"`+reserve()+`","dead":true}`)
	s.shows("/ui/keys?queue=q&prefix=customer-2", "a dead job holds it")
	s.shows("/ui/keys?queue=q&state=dead", ">customer-2<", "!>customer-1<")
}

// TestDashboardManyKeys: the pages of a list have each key once.
func TestDashboardManyKeys(t *testing.T) {
	s := serve(t, withDashboard)
	s.node.Format = fsm.LatestFormat
	for i := range 120 {
		s.call("put", fmt.Sprintf(`{"queue":"q","id":"j%d","key":"k%03d"}`, i, i))
	}
	for _, order := range []string{"", "&order=name", "&prefix=k"} {
		seen, pages := map[string]int{}, 0
		for page := "/ui/keys?queue=q" + order; page != ""; pages++ {
			body := s.shows(page).body
			for _, key := range regexp.MustCompile(`>(k\d+)</a></th>`).FindAllStringSubmatch(body, -1) {
				seen[key[1]]++
			}
			if len(body) > 100<<10 {
				t.Errorf("the page has %d bytes", len(body))
			}
			page = ""
			if next := regexp.MustCompile(`rel="next" href="([^"]*)"`).FindStringSubmatch(body); next != nil {
				page = "/ui/" + strings.ReplaceAll(next[1], "&amp;", "&")
			}
		}
		if len(seen) != 120 || pages != 3 {
			t.Errorf("%q: %d keys on %d pages: %v", order, len(seen), pages, seen)
		}
	}
}

// TestDashboardKeyActs: a key is paused, resumed and purged, whatever it is called.
func TestDashboardKeyActs(t *testing.T) {
	s := dashboardKeys(t, `{}`)
	for _, key := range []string{"customer-2", hostileKey} {
		after := s.acts("pause-key", s.filled(keyPage(key), "pause-key"))
		if !strings.Contains(after.body, ">The key is paused.<") || !strings.Contains(after.body, `>it is paused<`) ||
			!strings.Contains(after.body, `action="resume-key"`) || strings.Contains(after.body, "<script>ran") {
			t.Errorf("paused: %s", after.body)
		}
	}
	got := s.call("reserve", `{"queues":["q"],"maxJobs":10,"ttr":"1h"}`)
	if strings.Contains(got, `"key":"customer-2"`) || strings.Count(got, `"key":"customer-1"`) != 3 {
		t.Errorf("handed out: %s", got)
	}
	if after := s.acts("resume-key", s.filled(keyPage("customer-2"), "resume-key")); !strings.Contains(after.body,
		">The key is no longer paused.<") || !strings.Contains(after.body, `action="pause-key"`) {
		t.Errorf("resumed: %s", after.body)
	}
	s.acts("pause-key", s.filled(keyPage("ahead"), "pause-key")) // it has no jobs
	s.shows("/ui/keys?queue=q&prefix=ahead", ">ahead<", "it is paused")

	body := s.shows(keyPage(hostileKey), "To confirm, type <code>&#34;&gt;&lt;script&gt;ran=1&lt;/script&gt;�� a b</code>",
		"delayed, ready or dead (2)", "dead (0)").body
	purge := ofForm(t, body, "Remove the jobs of the key")
	for _, typed := range []string{"", "customer-2", "a b"} {
		purge.Set("confirm", typed)
		s.refuses("purge-key", purge, http.StatusBadRequest, "confirm: type ", "nothing was done", `id="confirm" name="confirm"`)
	}
	purge.Set("confirm", "\"><script>ran=1</script>�� a b ")
	purge.Set("state", "reserved")
	s.refuses("purge-key", purge, http.StatusBadRequest, "state: ", "nothing was done")
	purge.Set("state", "delayed")
	if after := s.acts("purge-key", purge); !strings.Contains(after.body, ">1 jobs of the key are removed.<") {
		t.Errorf("delayed ones removed: %s", after.body)
	}
	if got := s.counts("q"); got != "2 3 4 0" { // two keys have a delayed job; those of customer-1 and bare are held
		t.Errorf("after a purge of delayed jobs: %s", got)
	}
	purge.Set("state", "")
	purge.Set("requestId", "another")
	s.acts("purge-key", purge)
	form := s.filled(keyPage("customer-1"), "purge-key", "confirm", "customer-1")
	s.acts("purge-key", form)
	if got := s.counts("q"); got != "1 2 4 0" { // held jobs stay
		t.Errorf("after the purges: %s", got)
	}
	form.Set("of", url.Values{"queue": {"q"}, "key": {" "}}.Encode())
	form.Set("confirm", "")
	s.refuses("purge-key", form, http.StatusBadRequest, "type &#34; &#34; to remove")
}

// TestDashboardJobsOfAKey: jobs are found by their key; no act on all matches leaves it out; and in a
// queue with several partitions, where an id is unique per key, each page and act is about the job that
// was shown.
func TestDashboardJobsOfAKey(t *testing.T) {
	s := serve(t, withDashboard)
	s.node.Format = fsm.LatestFormat
	s.call("create-queue", `{"queue":"wide","partitions":3}`)
	keys := []string{"", s.elsewhere("a")}
	for _, key := range keys {
		s.call("put", fmt.Sprintf(`{"queue":"wide","id":"a","key":%q,"delay":"1h","text":"of <%s>"}`, key, key))
	}
	s.call("put", fmt.Sprintf(`{"queue":"wide","id":"a","key":%q,"onExisting":"REPLACE","delay":"2h","text":"of <%s>"}`,
		keys[1], keys[1]))
	of := url.Values{"key": {keys[1]}}.Encode()
	job := "/ui/job?queue=wide&id=a&" + of
	link := `<a class="free" href="job?id=a&amp;` + of + `&amp;queue=wide">a</a>`
	list := s.shows("/ui/jobs?queue=wide&state=delayed&"+of, link, "Searched 2 of 2 delayed jobs", `value="`+keys[1]+`"`,
		"on the page of", `href="key?`+of+`&amp;queue=wide"`, "!Count all", "!jobs now", "Download as lines").body
	s.shows("/ui/jobs?queue=wide&state=delayed", link, `href="job?id=a&amp;queue=wide"`)
	s.shows(job, "of &lt;"+keys[1]+"&gt;", ">Key</th>", ">Version</th><td>2</td>",
		`href="jobs?`+of+`&amp;queue=wide&amp;state=delayed">its jobs</a>`, `href="body?id=a&amp;`+of)
	s.shows("/ui/job?queue=wide&id=a", "of &lt;&gt;", "!>Key</th>", ">Version</th><td>1</td>")
	if got := s.send(http.MethodGet, "/ui/body?queue=wide&id=a&"+of, ""); got.body != "of <"+keys[1]+">" {
		t.Errorf("the body is %q", got.body)
	}
	file := regexp.MustCompile(`href="(export[^"]*)" download`).FindStringSubmatch(list)
	if got := s.send(http.MethodGet, "/ui/"+strings.ReplaceAll(file[1], "&amp;", "&"), ""); strings.Count(got.body,
		`"id":"a"`) != 1 || !strings.Contains(got.body, keys[1]) {
		t.Errorf("the download is %s", got.body)
	}
	for _, action := range []string{"act-all", "count"} {
		s.refuses(action, fields("queue", "wide", "state", "delayed", "key", keys[1], "act", "cancel", "confirm", "yes",
			"max", "1"), http.StatusBadRequest, "key: ", "nothing was done")
	}
	states := func() string {
		var all []string
		for _, key := range keys {
			got := s.call("get", fmt.Sprintf(`{"queue":"wide","id":"a","key":%q,"ended":true}`, key))
			all = append(all, regexp.MustCompile(`"state":"(\w+)"`).FindStringSubmatch(got)[1])
		}
		return strings.Join(all, " ")
	}
	s.acts("run-now", ofForm(t, s.shows(job).body, "Run now"))
	if got := states(); got != "DELAYED READY" {
		t.Errorf("run now: %s", got)
	}
	due := ofForm(t, s.shows(job).body, "Reschedule")
	due.Set("due", "2h")
	s.acts("reschedule", due)
	if got := states(); got != "DELAYED DELAYED" {
		t.Errorf("rescheduled: %s", got)
	}
	box := regexp.MustCompile(`name="job" value="([^"]*` + keys[1] + `)"`).FindStringSubmatch(list)
	if box == nil {
		t.Fatalf("no job can be chosen: %s", list)
	}
	chosen := s.form(noRedirects(), "/ui/choose", fields("queue", "wide", "state", "delayed", "job", box[1])).body
	act := ofForm(t, chosen, "Cancel 1 job")
	act.Set("confirm", "yes")
	s.acts("act-chosen", act)
	if got := states(); got != "DELAYED CANCELLED" {
		t.Errorf("cancelled: %s", got)
	}
	s.call("put", fmt.Sprintf(`{"queue":"wide","id":"a","key":%q,"delay":"1h","again":true}`, keys[1]))
	s.acts("cancel", ofForm(t, s.shows(job).body, "Cancel the job"))
	if got := states(); got != "DELAYED CANCELLED" {
		t.Errorf("cancelled on its page: %s", got)
	}
}

// TestDashboardLinksToKeyedJobs: each page that leads to a job names its key, and the page of a job says
// which content it has and which one follows.
func TestDashboardLinksToKeyedJobs(t *testing.T) {
	s := serve(t, withDashboard)
	s.node.Format = fsm.LatestFormat
	s.call("create-queue", `{"queue":"wide","partitions":3}`)
	put := fmt.Sprintf(`{"queue":"wide","id":"a","key":%q,"maxAttempts":1`, s.elsewhere("a"))
	of := url.Values{"key": {s.elsewhere("a")}}.Encode()
	job, link := "/ui/job?queue=wide&id=a&"+of, `href="job?id=a&amp;`+of+`&amp;queue=wide"`
	s.call("put", put+`}`)
	s.node.Now = func() time.Time { return time.Now().Add(time.Second) }
	s.shows(job, "If its key keeps it waiting, the page of the key says why", "&#34;key&#34;:&#34;"+s.elsewhere("a"))
	s.call("put", put+`,"onExisting":"REPLACE","text":"second"}`)
	var held struct{ Jobs []struct{ Lease string } }
	if err := json.Unmarshal([]byte(s.call("reserve", `{"queues":["wide"],"ttr":"1h"}`, "Belfry-Client", "w")),
		&held); err != nil || len(held.Jobs) != 1 {
		t.Fatal(held, err)
	}
	s.call("put", put+`,"onExisting":"NEXT","text":"third"}`)
	s.shows(job, ">Version</th><td>2; version 3 follows when this one ends</td>")
	s.shows("/ui/consumers", link)
	s.call("nack", fmt.Sprintf(`{"lease":%q,"error":"lost"}`, held.Jobs[0].Lease))
	s.shows(job, ">Version</th><td>3</td>")
	s.call("put", fmt.Sprintf(`{"queue":"wide","id":"b","key":%q,"delay":"1h","text":"third too"}`, s.elsewhere("b")))
	s.shows("/ui/find?job=third&queue=wide", `href="job?id=a&amp;`+of+`&amp;queue=wide"`)
	if err := json.Unmarshal([]byte(s.call("reserve", `{"queues":["wide"],"ttr":"1h"}`)), &held); err != nil ||
		len(held.Jobs) != 1 {
		t.Fatal(held, err)
	}
	s.call("nack", fmt.Sprintf(`{"lease":%q,"error":"lost"}`, held.Jobs[0].Lease))
	s.acts("pause", fields("queue", "wide")) // an act is seen at once
	s.shows("/ui/dead?queue=wide", link)
	for _, page := range []string{"/ui/find?job=a&queue=wide", "/ui/find?job=a"} { // the only job with this id
		if got := s.follows(page); !strings.Contains(got, of) {
			t.Errorf("%s leads to %q", page, got)
		}
	}
}

// follows returns where a page leads to.
func (s *served) follows(page string) string {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.url+page, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	return s.do(noRedirects(), req).header.Get("Location")
}

// TestDashboardKeyScopes: keys are shown and changed by a token that administers the queue, and others
// are told what it takes.
func TestDashboardKeyScopes(t *testing.T) {
	f := newTokenForms(t)
	f.node.Format = fsm.LatestFormat
	if got := f.with(f.root, http.MethodPost, "/v1/put", `{"queue":"q","key":"k"}`); got.status != http.StatusOK {
		t.Fatal(got.body)
	}
	admin, _ := f.store.make(t, "admin:q")
	view, _ := f.store.make(t, "view,consume,put:q")
	for _, page := range []string{"/ui/keys?queue=q", keyPage("k")} {
		if got := f.send(http.MethodGet, page, "", "Authorization", "Bearer "+admin); got.status != http.StatusOK ||
			!strings.Contains(got.body, ">k<") {
			t.Errorf("%s with admin: %d %s", page, got.status, got.body)
		}
		if got := f.send(http.MethodGet, page, "", "Authorization", "Bearer "+view); got.status != http.StatusForbidden ||
			!strings.Contains(got.body, "it takes admin:q") {
			t.Errorf("%s with view: %d %s", page, got.status, got.body)
		}
	}
	for _, action := range []string{"pause-key", "resume-key", "purge-key"} {
		if got := f.act(view, action, fields("queue", "q", "key", "k", "confirm", "k")); got.status !=
			http.StatusForbidden || !strings.Contains(got.body, "it takes admin:q") {
			t.Errorf("%s: %d %s", action, got.status, got.body)
		}
	}
}
