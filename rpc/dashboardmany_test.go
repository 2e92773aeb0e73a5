package rpc

import (
	"bufio"
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

// call makes a call that must succeed.
func (s *served) call(path, body string, headers ...string) string {
	s.t.Helper()
	headers = append([]string{"Content-Type", "application/json"}, headers...)
	got := s.send(http.MethodPost, "/v1/"+path, body, headers...)
	if got.status != http.StatusOK {
		s.t.Fatalf("%s %s: %d %s", path, body, got.status, got.body)
	}
	return got.body
}

// runTasks carries out the tasks that were begun.
func (s *served) runTasks() {
	s.t.Helper()
	if err := s.catalog.RunTasks(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
}

// counts returns how many jobs of a queue are delayed, ready, reserved and dead.
func (s *served) counts(queue string) string {
	s.t.Helper()
	var res struct {
		Queue struct {
			Counts struct{ Delayed, Ready, Reserved, Dead int }
		}
	}
	if err := json.Unmarshal([]byte(s.call("get-queue", fmt.Sprintf(`{"queue":%q}`, queue))), &res); err != nil {
		s.t.Fatal(err)
	}
	c := res.Queue.Counts
	return fmt.Sprint(c.Delayed, c.Ready, c.Reserved, c.Dead)
}

// shows checks that a page has each of the texts, and none of those that begin with "!".
func (s *served) shows(page string, texts ...string) answered {
	s.t.Helper()
	got := s.send(http.MethodGet, page, "")
	if got.status != http.StatusOK {
		s.t.Fatalf("%s: %d %s", page, got.status, got.body)
	}
	for _, text := range texts {
		if not, without := strings.CutPrefix(text, "!"); without && strings.Contains(got.body, not) ||
			!without && !strings.Contains(got.body, text) {
			s.t.Errorf("%s: want %q in %s", page, text, got.body)
		}
	}
	return got
}

// TestDashboardAttempts: the page of a job says who holds it since when, and how its last attempts
// failed; a dead job leads to those that died of the same.
func TestDashboardAttempts(t *testing.T) {
	s := serve(t, withDashboard)
	s.node.Format = fsm.LatestFormat
	start := time.Now()
	s.node.Now = func() time.Time { return start }
	s.call("put", `{"queue":"mail","id":"x","maxAttempts":3,"retryDelays":["0s"]}`)
	reserve := func() string {
		var res struct{ Jobs []struct{ Lease string } }
		text := s.call("reserve", `{"queues":["mail"],"ttr":"1m"}`, "Belfry-Client", "worker-<1>")
		if err := json.Unmarshal([]byte(text), &res); err != nil || len(res.Jobs) != 1 {
			t.Fatal(text, err)
		}
		return res.Jobs[0].Lease
	}
	const page = "/ui/job?queue=mail&id=x"
	lease := reserve()
	s.shows(page, "worker-&lt;1&gt;@127.0.0.1</td>", ">Held by</th>", ">Held since</th>", "!Last failed attempts")
	s.node.Now = func() time.Time { return start.Add(2 * time.Second) }
	s.call("nack", fmt.Sprintf(`{"lease":%q,"error":"smtp 421 for <b>4711</b>","delay":"0s"}`, lease))
	reserve()
	s.node.Now = func() time.Time { return start.Add(2 * time.Minute) }
	s.call("put", `{"queue":"mail","id":"y","delay":"1h"}`) // the lease of x lapses first
	s.shows(page, `<th scope="row">1</th>`, `<td class="number">2 s</td>`, "smtp 421 for &lt;b&gt;4711&lt;/b&gt;",
		`<th scope="row">2</th>`, `<td class="number">1 m</td>`, "the lease lapsed", "!>Held by</th>")
	s.call("nack", fmt.Sprintf(`{"lease":%q,"error":"smtp 550 for 4712"}`, reserve()))
	s.shows(page, "dead</span>", `<th scope="row">3</th>`,
		`href="jobs?cause=smtp+550+for+%23&amp;queue=mail&amp;state=dead"`)
}

// TestDashboardSearches: jobs are found by the beginning of an id, a text and a cause, and the page
// says how many it looked at.
func TestDashboardSearches(t *testing.T) {
	s := serve(t, withDashboard)
	for i := range 60 {
		s.call("put", fmt.Sprintf(`{"queue":"q","id":"order-%d","delay":"1h","text":"{\"customer\":%d}"}`, i, i%2))
	}
	s.die("q", "a", "smtp 1")
	s.die("q", "b", "smtp 2")
	s.die("q", "c", "dns")
	s.shows("/ui/jobs?queue=q&idPrefix=order-5", ">order-5<", ">order-55<", "!>order-6<", "Searched 60 of 60 delayed jobs",
		"!go on", `value="order-5"`)
	s.shows("/ui/jobs?queue=q&text=customer%22%3A1", ">order-1<", "!>order-2<", "· ", "go on")
	s.shows("/ui/jobs?queue=q&state=dead&cause=smtp+%23", ">a<", ">b<", "!>c<", "Searched 3 of 3 dead jobs")
	s.shows("/ui/jobs?queue=q&idPrefix=none", "No job of this selection is delayed.", "Searched 60 of 60")
	s.shows("/ui/jobs?queue=q", "!Searched", "The next 25")
	// What a search leads to goes on from there, and finds each job once.
	seen, page := map[string]int{}, "/ui/jobs?queue=q&text=customer%22%3A1"
	for pages := 0; page != ""; pages++ {
		got := s.shows(page)
		for _, id := range regexp.MustCompile(`>(order-\d+)</a>`).FindAllStringSubmatch(got.body, -1) {
			seen[id[1]]++
		}
		next := regexp.MustCompile(`rel="next" href="([^"]*)"`).FindStringSubmatch(got.body)
		if page = ""; next != nil {
			page = "/ui/" + strings.ReplaceAll(next[1], "&amp;", "&")
		}
		if pages > 5 {
			t.Fatal("the search does not end")
		}
	}
	if len(seen) != 30 {
		t.Errorf("%d jobs were found, want 30", len(seen))
	}
	if got := s.send(http.MethodGet, "/ui/jobs?queue=q&text="+strings.Repeat("t", 257), ""); got.status !=
		http.StatusBadRequest || !strings.Contains(got.body, "256") {
		t.Errorf("a long text: %d %s", got.status, got.body)
	}
}

// TestDashboardFinds: the box at the head of each page opens a job by its id, or searches.
func TestDashboardFinds(t *testing.T) {
	s := serve(t, withDashboard)
	s.call("put", `{"queue":"shop/orders","id":"order-4711","delay":"1h","text":"a"}`)
	s.call("put", `{"queue":"shop/orders","id":"order-47110","delay":"1h","text":"b"}`)
	s.call("put", `{"queue":"mail","id":"m-1","text":"{\"order\":4711}"}`)
	s.call("put", `{"queue":"mail","id":"gone"}`)
	s.call("cancel", `{"queue":"mail","id":"gone"}`)
	leads := func(find, to string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/ui/find?"+find, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.do(noRedirects(), req); got.status != http.StatusSeeOther || got.header.Get("Location") != to {
			t.Errorf("%s: %d to %q, want %s", find, got.status, got.header.Get("Location"), to)
		}
	}
	leads("job=+order-4711+&queue=shop/orders", "job?id=order-4711&queue=shop%2Forders")
	leads("job=gone&queue=mail", "job?id=gone&queue=mail")
	leads("job=m-1", "job?id=m-1&queue=mail")
	s.shows("/ui/find?job=4711", ">order-4711<", ">order-47110<", ">m-1<", "Searched 3 jobs of all queues",
		": everything.")
	s.shows("/ui/find?job=47&queue=shop/orders", ">order-4711<", "!>m-1<", "Searched 2 jobs of the queue shop/orders")
	s.shows("/ui/find?job=nowhere", "No job was found.")
	s.shows("/ui/find?job=nowhere&queue=mail", "No job was found.", `href="find?job=nowhere">Search all queues<`)
	s.shows("/ui/find?job=order+4711", "Nothing was found for “order 4711”. This is the search for “4711”.",
		">order-4711<", ">m-1<")
	s.shows("/ui/find?job=order+815", "This is the search for “815”.", "No job was found.")
	for page, status := range map[string]int{
		"/ui/find?job=+": http.StatusBadRequest, "/ui/find?job=x&queue=none": http.StatusNotFound,
		"/ui/find?job=" + strings.Repeat("x", 257): http.StatusBadRequest,
	} {
		if got := s.send(http.MethodGet, page, ""); got.status != status {
			t.Errorf("%s: %d, want %d", page, got.status, status)
		}
	}
	for _, page := range []string{"/ui/", "/ui/queues", "/ui/job?queue=mail&id=m-1"} {
		s.shows(page, `action="find" role="search"`)
	}
	s.shows("/ui/queue?queue=mail", `name="queue" type="search" value="mail"`)
}

// choosing are the fields of the page of jobs after a person has ticked boxes.
func choosing(queue, state string, ids ...string) url.Values {
	form := fields("queue", queue, "state", state)
	for _, id := range ids {
		form.Add("job", url.QueryEscape(id))
	}
	return form
}

// ofForm returns the form with a button on a page, as a browser would send it.
func ofForm(t *testing.T, body, button string) url.Values {
	t.Helper()
	for _, form := range strings.Split(body, "<form ")[1:] {
		form, _, _ = strings.Cut(form, "</form>")
		if !strings.Contains(form, ">"+button+"</button>") {
			continue
		}
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
		return all
	}
	t.Fatalf("no form has the button %q:\n%s", button, body)
	return nil
}

// TestDashboardChosen: what a person does to chosen jobs is done to them and to no others, whatever
// their ids are.
func TestDashboardChosen(t *testing.T) {
	s := serve(t, withDashboard)
	hostile := []string{"a\x00b\r\n<i>", "with,comma", "50%2C"}
	for _, id := range append([]string{"d1", "d2", "d3"}, hostile...) {
		text, err := json.Marshal(id)
		if err != nil {
			t.Fatal(err)
		}
		s.call("put", fmt.Sprintf(`{"queue":"q","id":%s,"delay":"1h"}`, text))
	}
	for i := range 3 {
		s.die("dead", fmt.Sprintf("x%d", i), "lost")
		s.call("put", fmt.Sprintf(`{"queue":"held","id":"h%d"}`, i))
		s.call("reserve", `{"queues":["held"],"ttr":"1h"}`)
	}
	s.shows("/ui/jobs?queue=q", `type="checkbox" name="job" value="a%00b%0D%0A%3Ci%3E"`, "Act on the chosen jobs…")
	page := func(form url.Values, shows ...string) string {
		t.Helper()
		got := s.form(noRedirects(), "/ui/choose", form)
		for _, text := range shows {
			if got.status != http.StatusOK || !strings.Contains(got.body, text) {
				t.Errorf("%v: %d, want %q in %s", form, got.status, text, got.body)
			}
		}
		return got.body
	}
	act := func(body, button, says, queue, counts string, changes ...string) {
		t.Helper()
		form := ofForm(t, body, button)
		for i := 0; i < len(changes); i += 2 {
			form.Set(changes[i], changes[i+1])
		}
		for range 2 { // sent twice it acts once
			if after := s.acts("act-chosen", form); !strings.Contains(after.body, says) {
				t.Errorf("%s: want %q in %s", button, says, after.body)
			}
			if got := s.counts(queue); got != counts {
				t.Errorf("after %s: %s, want %s", button, got, counts)
			}
		}
	}
	act(page(choosing("q", "delayed", "d1", hostile[0]), "2 jobs chosen", ">d1<"), "Run 2 jobs now",
		">2 jobs are due now.<",
		"q", "4 2 0 0")
	act(page(choosing("q", "delayed", "d2")), "Reschedule 1 job", "jobs have a new due time.", "q", "4 2 0 0",
		"due", "2090-01-31 15:04")
	s.shows("/ui/job?queue=q&id=d2", "2090-01-31 15:04:00.000 +00:00")
	act(page(choosing("q", "delayed", hostile[1], hostile[2])), "Cancel 2 jobs", ">2 jobs are cancelled.<", "q", "2 2 0 0",
		"confirm", "yes")
	body := page(choosing("q", "delayed", "d1", "d2", "d3", "none")) // d1 is ready by now, which a cancel does not mind
	s.call("cancel", `{"queue":"q","id":"d3"}`)
	act(body, "Reschedule 4 jobs", "2 were left as they are: they ended or changed meanwhile.", "q", "2 1 0 0", "due",
		"3h")
	act(page(choosing("dead", "dead", "x0", "x2")), "Make 2 jobs ready again", ">2 jobs are ready again.<", "dead",
		"0 2 0 1")
	act(page(choosing("held", "reserved", "h0"), "although consumers hold them"), "Cancel 1 job", "jobs are cancelled.",
		"held", "0 0 2 0", "confirm", "yes")
}

// TestDashboardRefusesChosen: what cannot be done to chosen jobs is refused with what was typed.
func TestDashboardRefusesChosen(t *testing.T) {
	s := serve(t, withDashboard)
	for _, id := range []string{"d1", "d2"} {
		s.call("put", fmt.Sprintf(`{"queue":"q","id":%q,"delay":"1h"}`, id))
	}
	page := func(form url.Values) string { return s.form(noRedirects(), "/ui/choose", form).body }
	s.refuses("choose", choosing("q", "delayed"), http.StatusBadRequest, "choose 1 to 500 jobs", "Act on the chosen jobs…")
	many := choosing("q", "delayed")
	for i := range 501 {
		many.Add("job", fmt.Sprint("x", i))
	}
	s.refuses("choose", many, http.StatusBadRequest, "choose 1 to 500 jobs")
	s.refuses("act-chosen", ofForm(t, page(choosing("q", "delayed", "d2")), "Cancel 1 job"), http.StatusBadRequest,
		"tick the box", "nothing was done", "1 job chosen")
	due := ofForm(t, page(choosing("q", "delayed", "d2")), "Reschedule 1 job")
	due.Set("due", "soon")
	s.refuses("act-chosen", due, http.StatusBadRequest, `value="soon"`, "neither a duration")
	s.refuses("act-chosen", fields("queue", "q", "state", "delayed", "jobs", "d2", "act", "redrive"),
		http.StatusBadRequest,
		"&#34;redrive&#34; is no act on delayed jobs")
	if got := s.counts("q"); got != "2 0 0 0" {
		t.Errorf("what was refused left %s", got)
	}
}

// TestDashboardActsOnAll: an act on all matches says how many these are, and acts on no more of them.
func TestDashboardActsOnAll(t *testing.T) {
	s := serve(t, withDashboard)
	for i := range 40 {
		s.call("put", fmt.Sprintf(`{"queue":"q","id":"a%d","delay":"1h"}`, i))
		s.call("put", fmt.Sprintf(`{"queue":"q","id":"b%d","delay":"1h"}`, i))
	}
	// All matches are on one page: the count is known.
	form := ofForm(t, s.shows("/ui/jobs?queue=q&idPrefix=a1", "!Count all").body, "Run 11 jobs now")
	s.call("put", `{"queue":"q","id":"a1-late","delay":"30m"}`)
	for range 2 { // sent twice, it is one task
		if after := s.acts("act-all", form); !strings.Contains(after.body,
			"delayed jobs of q, with an id that begins with “a1”") {
			t.Errorf("the task: %s", after.body)
		}
	}
	s.runTasks()
	if got := s.counts("q"); got != "70 11 0 0" {
		t.Errorf("after 11 of 12: %s", got)
	}
	s.shows("/ui/task?id="+s.catalog.Tasks()[0].ID, ">Changed</th><td>11</td>", "!jobs that matched")
	// Otherwise a task counts them, and its page offers the acts.
	list := s.shows("/ui/jobs?queue=q&idPrefix=b", "!Run 40", "All that match").body
	count := ofForm(t, list, "Count all jobs that match")
	s.acts("count", count)
	after := s.acts("count", count)
	task := "/ui/task?id=" + regexp.MustCompile(`id=([A-Za-z0-9]+)`).FindStringSubmatch(s.shows("/ui/tasks").body)[1]
	if !strings.Contains(after.body, `<progress id="progress"`) || strings.Contains(after.body, "Run 40 jobs now") {
		t.Errorf("while it counts: %s", after.body)
	}
	s.runTasks()
	body := s.shows(task, "ended</span>", "All 40 jobs that matched", "!<progress", ">Matched</th><td>40</td>").body
	form = ofForm(t, body, "Reschedule 40 jobs")
	form.Set("due", "soon")
	s.refuses("act-all", form, http.StatusBadRequest, `value="soon"`, "Reschedule 40 jobs")
	form.Set("due", "2090-01-31 15:04")
	s.acts("act-all", form)
	form = ofForm(t, body, "Cancel 40 jobs")
	s.refuses("act-all", form, http.StatusBadRequest, "tick the box")
	s.runTasks()
	s.shows("/ui/job?queue=q&id=b7", "2090-01-31 15:04:00.000 +00:00")
	form.Set("confirm", "yes")
	s.acts("act-all", form)
	s.runTasks()
	if got := s.counts("q"); got != "30 11 0 0" {
		t.Errorf("after the cancel: %s", got)
	}
	// Of all jobs of a state the count is known.
	form = ofForm(t, s.shows("/ui/jobs?queue=q&state=ready&size=25").body, "Cancel 11 jobs")
	form.Set("of", strings.ReplaceAll(form.Get("of"), "max=11", "max=0"))
	form.Set("confirm", "yes")
	s.refuses("act-all", form, http.StatusBadRequest, "max: ")
	if len(s.catalog.Tasks()) != 4 {
		t.Errorf("%d tasks, want 4", len(s.catalog.Tasks()))
	}
	s.shows("/ui/jobs?queue=q", "Run 30 jobs now", "The next 25")
}

// TestDashboardTasks: a task can be watched and stopped, and is listed.
func TestDashboardTasks(t *testing.T) {
	s := serve(t, withDashboard)
	s.call("put", `{"queue":"held","id":"h1"}`)
	s.call("reserve", `{"queues":["held"],"ttr":"1h"}`)
	form := ofForm(t, s.shows("/ui/jobs?queue=held&state=reserved").body, "Cancel 1 job")
	form.Set("confirm", "yes")
	s.acts("act-all", form)
	link := regexp.MustCompile(`href="(task\?id=[A-Za-z0-9]+)">Cancel</a>`)
	list := s.shows("/ui/tasks", "reserved jobs of held", ">begins<").body
	task := "/ui/" + link.FindStringSubmatch(list)[1]
	stop := ofForm(t, s.shows(task, `aria-label="0 of 1 job acted on"`).body, "Stop")
	if after := s.acts("stop-task", stop); !strings.Contains(after.body, "The task ends within a second.") ||
		!strings.Contains(after.body, "stopped</span>") || strings.Contains(after.body, ">Stop<") {
		t.Errorf("stopped: %s", after.body)
	}
	s.shows("/ui/tasks?queue=held", ">stopped<")
	s.shows("/ui/tasks?queue=other", "There are no tasks.")
	s.runTasks()
	if got := s.counts("held"); got != "0 0 1 0" {
		t.Errorf("a task that was stopped acted: %s", got)
	}
	// A count that was stopped is no count.
	s.acts("count", fields("queue", "held", "state", "reserved"))
	list = s.shows("/ui/tasks").body
	count := strings.TrimPrefix(regexp.MustCompile(`task\?(id=[A-Za-z0-9]+)">Count`).FindStringSubmatch(list)[1], "id=")
	s.acts("stop-task", fields("id", count))
	s.shows("/ui/task?id="+count, "stopped</span>", "!Cancel")
	if got := s.send(http.MethodGet, "/ui/task?id=none", ""); got.status != http.StatusBadRequest {
		t.Errorf("no such task: %d", got.status)
	}
	reads := serve(t, func(cfg *Config) { cfg.Dashboard.Mode = DashboardRead })
	reads.call("put", `{"queue":"q","id":"a","delay":"1h"}`)
	reads.call("start-task", `{"queue":"q","state":"DELAYED","act":"COUNT","requestId":"r"}`)
	reads.runTasks()
	id := reads.catalog.Tasks()[0].ID
	for _, page := range []string{"/ui/jobs?queue=q", "/ui/tasks", "/ui/task?id=" + id, "/ui/consumers",
		"/ui/find?job=z"} {
		reads.shows(page, `!<form method="post"`)
	}
}

// TestDashboardDeadGroups: all jobs of a cause are made ready or cancelled, as many as the button says,
// and downloaded.
func TestDashboardDeadGroups(t *testing.T) {
	s := serve(t, withDashboard)
	s.node.Format = fsm.LatestFormat
	for i := range 4 {
		s.die("many", fmt.Sprintf("unknown-%d", i), fmt.Sprintf("order %d is unknown", 4000+i))
	}
	s.die("many", "silent", "")
	s.die("many", "lost", "order 7 is lost")
	form := ofForm(t, s.shows("/ui/dead?queue=many", "order 7 is lost").body, "Make 4 ready again")
	s.die("many", "unknown-late", "order 4005 is unknown")
	s.acts("act-all", form)
	s.runTasks()
	if got := s.counts("many"); got != "0 4 0 3" {
		t.Errorf("after four: %s", got)
	}
	s.shows("/ui/dead?queue=many", "order 7 is lost", "Make 1 ready again")
	group := s.shows("/ui/jobs?queue=many&state=dead&cause=order+%23+is+lost", "Make 1 job ready again").body
	rated := ofForm(t, group, "Make 1 job ready again")
	rated.Set("perSecond", "1000001")
	s.refuses("act-all", rated, http.StatusBadRequest, "perSecond: ", "1000000", `value="1000001"`)
	rated.Set("perSecond", "50")
	if after := s.acts("act-all", rated); !strings.Contains(after.body, ">Acts a second, at most</th><td>50</td>") {
		t.Errorf("with a rate: %s", after.body)
	}
	s.runTasks()
	silent := ofForm(t, s.shows("/ui/jobs?queue=many&state=dead&cause=(no+error+text)", ">silent<").body, "Cancel 1 job")
	silent.Set("confirm", "yes")
	s.acts("act-all", silent)
	s.runTasks()
	if got := s.counts("many"); got != "0 5 0 1" {
		t.Errorf("at the end: %s", got)
	}
}

// TestDashboardExports: a download has the jobs that the page shows, with their bodies as they are.
func TestDashboardExports(t *testing.T) {
	s := serve(t, withDashboard)
	s.node.Format = fsm.LatestFormat
	s.die("q", "text", "order 1 is unknown")
	s.die("q", "other", "lost")
	s.call("put", `{"queue":"q","id":"bytes","maxAttempts":1,"data":"//4A","headers":{"a":"b\n<"}}`)
	var held struct{ Jobs []struct{ Lease string } }
	if err := json.Unmarshal([]byte(s.call("reserve", `{"queues":["q"]}`)), &held); err != nil {
		t.Fatal(err)
	}
	s.call("nack", fmt.Sprintf(`{"lease":%q,"error":"order 2 is unknown"}`, held.Jobs[0].Lease))
	page := s.shows("/ui/jobs?queue=q&state=dead&cause=order+%23+is+unknown").body
	link := regexp.MustCompile(`href="(export[^"]*)" download`).FindStringSubmatch(page)
	got := s.send(http.MethodGet, "/ui/"+strings.ReplaceAll(link[1], "&amp;", "&"), "")
	if got.status != http.StatusOK || got.header.Get("Content-Type") != "application/x-ndjson" ||
		got.header.Get("Content-Disposition") != `attachment; filename="jobs.ndjson"` {
		t.Fatalf("%d %v %s", got.status, got.header, got.body)
	}
	type job struct {
		ID, Text, Data, LastError string
		Headers                   map[string]string
		Attempts                  []struct{ Error string }
	}
	all := map[string]job{}
	for lines := bufio.NewScanner(strings.NewReader(got.body)); lines.Scan(); {
		var j job
		if err := json.Unmarshal(lines.Bytes(), &j); err != nil {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
		all[j.ID] = j
	}
	text, data := all["text"], all["bytes"]
	if len(all) != 2 || text.Text != "x" || text.LastError != "order 1 is unknown" ||
		len(text.Attempts) != 1 || text.Attempts[0].Error != text.LastError || data.Data != "//4A" ||
		data.Headers["a"] != "b\n<" {
		t.Errorf("the download has %+v", all)
	}
	for query, status := range map[string]int{"queue=+": http.StatusBadRequest,
		"queue=q&state=acked": http.StatusBadRequest} {
		if got := s.send(http.MethodGet, "/ui/export?"+query, ""); got.status != status ||
			got.header.Get("Content-Disposition") != "" {
			t.Errorf("%s: %d %v", query, got.status, got.header)
		}
	}
}

// TestDashboardLastHour: the page of a queue draws the last hour, and has the numbers as a table.
func TestDashboardLastHour(t *testing.T) {
	start := time.Date(2026, 11, 29, 10, 30, 20, 0, time.UTC)
	now := start
	clock := func() time.Time { return now }
	s := serve(t, withDashboard, func(cfg *Config) { cfg.Now = clock })
	s.node.Now, s.node.Format = clock, fsm.LatestFormat
	s.call("put", `{"queue":"q","id":"a","maxAttempts":1}`)
	now = start.Add(5 * time.Minute)
	s.die("q", "b", "lost")
	got := s.shows("/ui/queue?queue=q", `!class="unknown"`, "put at most 1", "failed at most 1", `<path class="line3"`,
		`>10:35</th><td>1</td><td>1</td><td>0</td><td>1</td>`)
	if strings.Count(got.body, `role="img" aria-label="`) != 2 || strings.Count(got.body, "<summary>As a table") != 2 {
		t.Errorf("the charts: %s", got.body)
	}
	now = start.Add(2 * time.Hour)
	s.call("put", `{"queue":"q","id":"c"}`)
	s.shows("/ui/queue?queue=q", `!class="unknown"`, ">12:30</th><td>1</td>", "!>10:35</th>")
}

// TestDashboardConsumers: who holds jobs, of which queues, and since when.
func TestDashboardConsumers(t *testing.T) {
	s := serve(t, withDashboard)
	s.node.Format = fsm.LatestFormat
	s.shows("/ui/consumers", "No consumer holds a job.")
	for i := range 3 {
		s.call("put", fmt.Sprintf(`{"queue":"a","id":"a%d"}`, i))
		s.call("put", fmt.Sprintf(`{"queue":"b","id":"b%d"}`, i))
	}
	s.call("reserve", `{"queues":["a"],"maxJobs":2}`, "Belfry-Client", "work@<er>")
	s.call("reserve", `{"queues":["b"],"maxJobs":3}`, "Belfry-Client", "work@<er>")
	s.call("reserve", `{"queues":["a"]}`)
	s.acts("pause", fields("queue", "a")) // an act is seen at once
	got := s.shows("/ui/consumers", ">work@&lt;er&gt;</th>", `>127.0.0.1</td><td class="number">5</td>`,
		`>127.0.0.1</td><td class="number">1</td>`, `href="jobs?queue=b&amp;state=reserved"`)
	if strings.Count(got.body, `<th scope="row" class="free">`) != 2 {
		t.Errorf("two consumers: %s", got.body)
	}
}

// TestDashboardReleasesLeases: what a consumer held when the page was shown is released once the box is
// ticked, and no more; others keep theirs.
func TestDashboardReleasesLeases(t *testing.T) {
	s := serve(t, withDashboard)
	s.node.Format = fsm.LatestFormat
	for i := range 4 {
		s.call("put", fmt.Sprintf(`{"queue":"a","id":"a%d"}`, i))
		s.call("put", fmt.Sprintf(`{"queue":"b","id":"b%d"}`, i))
	}
	const name = "work <er>"
	start := time.Now()
	s.node.Now = func() time.Time { return start }
	s.call("reserve", `{"queues":["a"],"maxJobs":4}`, "Belfry-Client", name)
	s.call("reserve", `{"queues":["b"]}`, "Belfry-Client", name)
	s.call("reserve", `{"queues":["b"]}`, "Belfry-Client", "other")
	page := s.shows("/ui/consumers", ">Release 5 jobs</button>", ">Release 1 job</button>", "> it is gone </label>")
	form := ofForm(t, page.body, "Release 5 jobs")
	s.node.Now = func() time.Time { return start.Add(time.Second) }
	for range 2 {
		s.call("reserve", `{"queues":["b"]}`, "Belfry-Client", name) // after the page was shown
	}
	s.refuses("release-leases", form, http.StatusBadRequest, "confirm: tick the box", "nothing was done",
		`id="confirm" aria-invalid="true" type="checkbox"`)
	if got := s.counts("a") + " " + s.counts("b"); got != "0 0 4 0 0 0 4 0" {
		t.Errorf("after the refusal: %s", got)
	}
	form.Set("confirm", "yes")
	says := func(texts ...string) {
		t.Helper()
		after := s.acts("release-leases", form)
		for _, text := range texts {
			if !strings.Contains(after.body, text) {
				t.Errorf("want %q in %s", text, after.body)
			}
		}
	}
	says(">5 jobs are ready again.<", ">Release 2 jobs</button>")
	if got := s.counts("a") + " " + s.counts("b"); got != "0 4 0 0 0 1 3 0" {
		t.Errorf("after the act: %s", got)
	}
	// The same form once more: what is ready stays so, and what was reserved since stays with it.
	says(">0 jobs are ready again.<")
	if got := s.counts("a") + " " + s.counts("b"); got != "0 4 0 0 0 1 3 0" {
		t.Errorf("after the second act: %s", got)
	}
	for _, bad := range [][2]string{{"max", "x"}, {"before", "soon"}, {"client", "nobody@10.0.0.7"}} {
		of, err := url.ParseQuery(form.Get("of"))
		if err != nil {
			t.Fatal(err)
		}
		of.Set(bad[0], bad[1])
		status := http.StatusBadRequest
		if bad[0] == "client" {
			status = http.StatusNotFound
		}
		s.refuses("release-leases", fields("confirm", "yes", "requestId", "r", "of", of.Encode()), status, bad[1])
	}
	if got := s.counts("b"); got != "0 1 3 0" {
		t.Errorf("after the refusals: %s", got)
	}
}

// TestDashboardNamesNoHolders: jobs of which it is not known who holds them are not released.
func TestDashboardNamesNoHolders(t *testing.T) {
	s := serve(t, withDashboard)
	s.call("put", `{"queue":"a"}`)
	s.call("reserve", `{"queues":["a"]}`, "Belfry-Client", "w")
	s.shows("/ui/consumers", ">not known</td>", ">their leases end by themselves</td>", "!Release 1 job")
}
