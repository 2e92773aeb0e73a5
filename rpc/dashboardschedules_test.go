package rpc

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/rpc/backend/backendtest"
)

// dashboardSchedules is a server with a schedule of a rule in the queue shop/reports.
func dashboardSchedules(t *testing.T, rule string) *served {
	t.Helper()
	s := serve(t, withDashboard)
	s.node.Format = fsm.LatestFormat
	s.call("put-schedule", `{"queue":"shop/reports","name":"night/full","spec":`+rule+`,
		"job":{"text":"{\"all\":12345678901234567890}","headers":{"kind":"<b>report</b>"},"priority":-3}}`)
	return s
}

const (
	nightRule    = `{"cron":"30 2 * * *","timeZone":"Europe/Berlin"}`
	secondRule   = `{"every":"1s"}`
	schedulePage = "/ui/schedule?queue=shop%2Freports&name=night%2Ffull"
	backfillPage = "/ui/backfill?queue=shop%2Freports&name=night%2Ffull"
)

// readSchedule returns a schedule of the queue shop/reports as its shard has it.
func (s *served) readSchedule(name string) (uint32, fsm.Schedule) {
	s.t.Helper()
	shard := node.ShardOf("shop/reports", 0, s.node.ShardCount())
	r, _, err := s.node.Query(s.t.Context(), shard, &fsm.ScheduleQuery{Queue: "shop/reports", Name: name})
	if err != nil || len(r.Schedules) != 1 {
		s.t.Fatal(r.Schedules, err)
	}
	return shard, r.Schedules[0]
}

// fire has a schedule pass over so many nominal times, a second apart, and put the job of the next.
func (s *served) fire(missed int) {
	s.t.Helper()
	shard, v := s.readSchedule("night/full")
	at := func(n int) fsm.Time { return v.Next.Add(time.Duration(n) * time.Second) }
	s.node.Now = func() time.Time { return time.Unix(0, int64(at(missed))).Add(time.Second) }
	fire := &fsm.Fire{Queue: v.Queue, Name: v.Name, Serial: v.Serial, Version: v.Version, Nominal: v.Next,
		Put: at(missed), Due: at(missed), Next: at(missed + 1), ZoneData: v.ZoneData}
	if missed > 0 {
		fire.Missed, fire.LastMissed = uint64(missed), at(missed-1)
	}
	out, err := s.node.Do(s.t.Context(), shard, &fsm.Request{Commands: []fsm.Command{fire}})
	if err != nil || out.Results[0].Code != fsm.OK {
		s.t.Fatal(out, err)
	}
}

// TestDashboardSchedules: a list has when each schedule fires next, on its clock and in UTC, and what
// came of it last.
func TestDashboardSchedules(t *testing.T) {
	s := dashboardSchedules(t, nightRule)
	s.call("put-schedule", `{"queue":"shop/reports","name":"often","spec":{"every":"90m","phase":"7s"}}`)
	s.call("put-schedule", `{"queue":"shop/reports","name":"over","spec":{"every":"1s","end":"2020-01-01T00:00:00Z"}}`)
	s.call("pause-schedules", `{"queue":"shop/reports","names":["often"],"note":"<i>move</i> \u202e"}`)
	_, v := s.readSchedule("night/full")
	next := time.Unix(0, int64(v.Next)).UTC()
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	const form = "2006-01-02 15:04:05.000 -07:00"
	list := s.shows("/ui/schedules?queue=shop%2Freports", ">night/full</a>", "<code>30 2 * * *</code> in Europe/Berlin",
		">"+next.Format(form)+"</time>", ">"+next.In(berlin).Format("2006-01-02 15:04:05-07:00 MST")+"</td>",
		">every 1h30m, 7s later<", "none yet", "none: its end is over", `<span class="tag">paused</span>`,
		"&lt;i&gt;move&lt;/i&gt; �</span>", "!<i>", `data-refresh="5"`).body
	if !strings.Contains(next.In(berlin).Format(form), "02:30:00.000 +0") {
		t.Errorf("the next firing is at %v", next)
	}
	s.shows("/ui/queue?queue=shop%2Freports", `<a href="schedules?queue=shop%2Freports">Schedules</a>`)
	s.shows("/ui/schedules?queue=shop%2Freports&prefix=of", ">often</a>", "!night/full",
		"Pause the schedule that is shown")
	s.shows("/ui/schedules?queue=shop%2Freports&prefix=%3Cb%3E", "begins with “&lt;b&gt;”")
	s.shows("/ui/schedules?queue=none", "The queue has no schedule.", "belfry schedule put")
	if got := s.send(http.MethodGet, "/ui/schedules?queue=+", ""); got.status != http.StatusBadRequest {
		t.Errorf("a queue that is none: %d", got.status)
	}
	// What a page shows is paused and resumed together.
	pause := ofForm(t, list, "Pause the 3 schedules that are shown")
	pause.Set("note", "a move")
	if after := s.acts("pause-schedules", pause); !strings.Contains(after.body, ">2 schedules were paused.<") ||
		strings.Count(after.body, ">a move</span>") != 2 {
		t.Errorf("paused: %s", after.body)
	}
	part := s.shows("/ui/schedules?queue=shop%2Freports&prefix=o").body
	if after := s.acts("resume-schedules", ofForm(t, part, "Resume the 2 schedules that are shown")); !strings.Contains(
		after.body, ">2 schedules were resumed.<") || strings.Contains(after.body, ">night/full<") {
		t.Errorf("resumed: %s", after.body)
	}
	s.shows("/ui/schedules?queue=shop%2Freports", `night/full</a> <span class="tag">paused</span>`)
	pause.Set("note", strings.Repeat("n", 257))
	s.refuses("pause-schedules", pause, http.StatusBadRequest, "TOO_LARGE", `id="note" name="note"`, "aria-invalid")
}

// TestDashboardManySchedules: the lists have pages, and the one of all queues goes on where it stopped.
func TestDashboardManySchedules(t *testing.T) {
	s := serve(t, withDashboard)
	s.node.Format = fsm.LatestFormat
	for i := range 60 {
		s.call("put-schedule", fmt.Sprintf(`{"queue":"full","name":"s%02d","spec":{"every":"1h"}}`, i))
	}
	for i := range 40 {
		s.call("put-schedule", fmt.Sprintf(`{"queue":"q%02d","name":"only%02d","spec":{"every":"1h"}}`, i, i))
	}
	s.call("put", `{"queue":"bare"}`)
	row := regexp.MustCompile(`<a href="schedule\?[^"]*">([^<]*)</a>`)
	next := regexp.MustCompile(`rel="next" href="([^"]*)"`)
	for first, want := range map[string]int{"/ui/schedules?queue=full": 60, "/ui/schedules": 100,
		"/ui/schedules?filter=Q1": 10} {
		seen, pages := map[string]int{}, 0
		for page := first; page != ""; pages++ {
			body := s.shows(page).body
			names := row.FindAllStringSubmatch(body, -1)
			if len(names) > 99 || pages > 100 {
				t.Fatalf("%s: %d schedules on page %d", page, len(names), pages)
			}
			for _, name := range names {
				seen[name[1]]++
			}
			page = ""
			if more := next.FindStringSubmatch(body); more != nil {
				page = "/ui/" + strings.ReplaceAll(more[1], "&amp;", "&")
			} else if first != "/ui/schedules?queue=full" && !strings.Contains(body, "were looked at.") {
				t.Errorf("%s does not say that it is the last: %s", page, body)
			}
		}
		for name, times := range seen {
			if times != 1 {
				t.Errorf("%s: %s is there %d times", first, name, times)
			}
		}
		if len(seen) != want || want > 50 && pages < 2 {
			t.Errorf("%s: %d schedules on %d pages, want %d", first, len(seen), pages, want)
		}
	}
	s.shows("/ui/schedules", `<a href="schedules?queue=full">full</a>`, "Looked at ", " of 42 queues · ",
		`<a href="schedules" aria-current="page">Schedules</a>`)
	s.shows("/ui/schedules?filter=none%3Cb%3E", "No schedule was found.", "All 0 queues with “none&lt;b&gt;” in the name")
}

// TestDashboardSchedule: the page of a schedule has the next firings, the last ones with their jobs, and
// how many were missed.
func TestDashboardSchedule(t *testing.T) {
	s := dashboardSchedules(t, secondRule)
	s.shows(schedulePage, "It has not fired yet.", `<dt>Missed</dt><dd>0</dd>`)
	s.fire(0)
	s.fire(4)
	_, v := s.readSchedule("night/full")
	fired := time.Unix(0, int64(v.Next)).UTC().Add(-time.Second)
	job := `href="job?id=cron%3Anight%2Ffull%40` + strings.ReplaceAll(fired.Format(time.RFC3339), ":", "%3A") +
		`&amp;queue=shop%2Freports"`
	s.shows(schedulePage, `<dt>Missed</dt><dd class="bad">4</dd>`, `<dt>Fired</dt><dd>2</dd>`,
		`<strong class="bad">missed × 4</strong>`, job, ">every 1s<", "<td>-3</td>", "12345678901234567890",
		"&lt;b&gt;report&lt;/b&gt;", "the latest firing happens", ">24h<", "Local, UTC", `data-refresh="5"`)
	list := s.shows(schedulePage).body
	if strings.Index(list, job) > strings.Index(list, "missed × 4") {
		t.Errorf("the newest firing is not the first: %s", list)
	}
	s.shows("/ui/schedules?queue=shop%2Freports", job, `<strong class="bad">4</strong>`)
	s.shows("/ui/job?queue=shop%2Freports&id=cron%3Anight%2Ffull%40"+fired.Format(time.RFC3339),
		`<a href="schedule?name=night%2Ffull&amp;queue=shop%2Freports">night/full</a>`)
	keep := s.form(noRedirects(), "/ui/settings", fields("theme", "dark", "refresh", "0", "zone", "Asia/Tokyo",
		"bodies", "hidden"))
	cookie, _, _ := strings.Cut(keep.header.Get("Set-Cookie"), ";")
	got := s.send(http.MethodGet, schedulePage, "", "Cookie", cookie)
	if !strings.Contains(got.body, ">Asia/Tokyo</th>") || !strings.Contains(got.body, "+09:00</time>") ||
		!strings.Contains(got.body, "are hidden.") || strings.Contains(got.body, "report&lt;") {
		t.Errorf("in Tokyo, without bodies: %s", got.body)
	}
	if got := s.send(http.MethodGet, schedulePage+"&bodies=shown", "", "Cookie", cookie); !strings.Contains(got.body,
		"report&lt;") {
		t.Errorf("asked for: %s", got.body)
	}
	for page, text := range map[string]string{
		"/ui/schedule?queue=shop%2Freports&name=none": "SCHEDULE_NOT_FOUND",
		"/ui/schedule?queue=x&name=none":              "QUEUE_NOT_FOUND", "/ui/backfill?queue=x&name=none": "QUEUE_NOT_FOUND",
	} {
		if got := s.send(http.MethodGet, page, ""); got.status != http.StatusNotFound || !strings.Contains(got.body, text) {
			t.Errorf("%s: %d %s", page, got.status, got.body)
		}
	}
	rule := `{"cron":"0 0 13 * 5","timeZone":"America/New_York","dst":"SKIP","start":"2026-01-01T00:00:00Z",
		"end":"2099-01-01T00:00:00Z","jitter":"90s","exclude":["* * * 8 *"]},"policy":{"catchUp":"ALL","window":"1h",
		"overlap":"ONE_WAITING","maxFires":"1000","pauseOnDead":true}`
	s.call("put-schedule", `{"queue":"shop/reports","name":"night/full","spec":`+rule+`}`)
	s.shows(schedulePage, "<code>0 0 13 * 5</code> in America/New_York", "not in a gap, and once in a fold",
		"2026-01-01 00:00:00.000 +00:00", "2099-01-01", "1m30s later", "* * * 8 *", "all firings happen", ">1h<",
		"it skips, unless that one is reserved", ">1\u202f000<", "it is paused", "Its job is due", "Local, America/New_York",
		"<li>") // a warning: the day of the month or that of the week
	s.call("put-schedule", `{"queue":"shop/reports","name":"night/full","spec":{"every":"1s","end":"2020-01-01T00:00:00Z"}}`)
	s.shows(schedulePage, "is still to be dealt with. After it there is none: its end is over.")
	s.call("put-schedule", `{"queue":"shop/reports","name":"night/full","spec":{"every":"1s"},"policy":{"maxFires":"1"}}`)
	s.shows(schedulePage, "There is none: it has put as many jobs as it may.")
}

// TestDashboardScheduleActs: a schedule is paused with a note, resumed, triggered once by one form, and
// deleted by its name.
func TestDashboardScheduleActs(t *testing.T) {
	s := dashboardSchedules(t, nightRule)
	form := func(action string, changes ...string) (all map[string][]string) {
		t.Helper()
		return s.filled(schedulePage, action, changes...)
	}
	says := func(after answered, texts ...string) {
		t.Helper()
		for _, text := range texts {
			if !strings.Contains(after.body, text) {
				t.Errorf("want %q in %s", text, after.body)
			}
		}
	}
	pause := form("pause-schedule", "note", "until the <b>move</b>")
	says(s.acts("pause-schedule", pause), ">The schedule is paused.<", "It is paused: until the &lt;b&gt;move&lt;/b&gt;")
	s.refuses("resume-schedule", form("resume-schedule", "note", strings.Repeat("n", 257)), http.StatusBadRequest,
		"TOO_LARGE", "note")
	resume := form("resume-schedule", "note", "moved")
	says(s.acts("resume-schedule", resume), ">The schedule is no longer paused.<", "Last note: moved", `action="pause-schedule"`)
	resume["requestId"] = []string{"another"}
	says(s.acts("resume-schedule", resume), ">The schedule was not paused.<")
	says(s.acts("pause-schedule", form("pause-schedule")), "It is paused.")
	says(s.acts("pause-schedule", map[string][]string{"queue": {"shop/reports"}, "name": {"night/full"}}),
		">The schedule was paused before.<")

	trigger := form("trigger-schedule")
	for range 2 { // sent twice, it puts one job
		says(s.acts("trigger-schedule", trigger), ">The job is put. It is among the last firings.<", "backfilled",
			`<dt>By hand</dt><dd>1</dd>`)
	}
	trigger["requestId"] = []string{"another"}
	says(s.acts("trigger-schedule", trigger), ">This job was put before. Nothing was changed.<")
	s.refuses("trigger-schedule", map[string][]string{"queue": {"shop/reports"}, "name": {"night/full"}, "at": {"soon"}},
		http.StatusBadRequest, "at: ")
	s.node.Now = func() time.Time { return time.Now().Add(time.Second) }
	if got := s.counts("shop/reports"); got != "0 1 0 0" {
		t.Errorf("triggered: %s", got)
	}

	remove := form("delete-schedule")
	s.refuses("delete-schedule", remove, http.StatusBadRequest, "confirm: type night/full", "nothing was done",
		`id="confirm" name="confirm"`)
	remove["confirm"] = []string{"night/full"}
	remove["cancelWaiting"] = []string{"yes"}
	says(s.acts("delete-schedule", remove), ">1 jobs were cancelled with the schedule, which is deleted.<",
		"The queue has no schedule.")
	if got := s.counts("shop/reports"); got != "0 0 0 0" {
		t.Errorf("deleted: %s", got)
	}
	s.refuses("trigger-schedule", trigger, http.StatusNotFound, "SCHEDULE_NOT_FOUND")
}

// TestDashboardSchedulesGone: a form about a schedule that was deleted meanwhile says so, and does not
// claim that it was paused before.
func TestDashboardSchedulesGone(t *testing.T) {
	s := dashboardSchedules(t, nightRule)
	for _, name := range []string{"first", "second"} {
		s.call("put-schedule", fmt.Sprintf(`{"queue":"shop/reports","name":%q,"spec":{"every":"1h"}}`, name))
	}
	all := s.shows("/ui/schedules?queue=shop%2Freports").body
	pause := s.filled(schedulePage, "pause-schedule")
	s.call("delete-schedule", `{"queue":"shop/reports","name":"night/full"}`)
	s.call("delete-schedule", `{"queue":"shop/reports","name":"first"}`)
	for _, action := range []string{"pause-schedule", "resume-schedule"} {
		if after := s.acts(action, pause); !strings.Contains(after.body, ">There is no such schedule any more.<") ||
			!strings.Contains(after.body, ">second</a>") {
			t.Errorf("%s: %s", action, after.body)
		}
	}
	for button, want := range map[string][2]string{
		"Pause the 3 schedules that are shown":  {"pause-schedules", ">1 schedules were paused. Deleted meanwhile: 2"},
		"Resume the 3 schedules that are shown": {"resume-schedules", "resumed. Deleted meanwhile: 2 schedules.<"},
	} {
		if after := s.acts(want[0], ofForm(t, all, button)); !strings.Contains(after.body, want[1]) {
			t.Errorf("%s: want %q in %s", want[0], want[1], after.body)
		}
	}
}

// TestDashboardBackfill: a page shows which jobs a backfill would put, and the form puts just these.
func TestDashboardBackfill(t *testing.T) {
	s := dashboardSchedules(t, nightRule)
	s.shows(backfillPage, "Show what it would put", `!<form method="post" action="backfill-schedule"`)
	const span = backfillPage + "&from=2025-03-01&to=2025-04-01"
	body := s.shows(span, "It would put 31 jobs", "2025-03-01 02:30:00+01:00 CET",
		">2025-03-01 01:30:00.000 +00:00</time>",
		"2025-03-30 03:00:00+02:00 CEST", "and 11 more, up to", "!are left out", "!2025-03-11 02:30", `value="2025-03-01"`).body
	put := ofForm(t, body, "Put 31 jobs")
	for range 2 {
		if after := s.acts("backfill-schedule", put); !strings.Contains(after.body, ">31 jobs were put.<") ||
			!strings.Contains(after.body, `<dt>By hand</dt><dd>31</dd>`) {
			t.Errorf("put: %s", after.body)
		}
	}
	put = ofForm(t, s.shows(span+"&max=5", "It would put 5 jobs",
		"Those from 2025-03-06 01:30:00.000 +00:00 on are left out.", "!The last nominal").body, "Put 5 jobs")
	if after := s.acts("backfill-schedule", put); !strings.Contains(after.body,
		">0 jobs were put. The rest of the span is below. 5 were there, or had ended lately, and were not put again.<") ||
		!strings.Contains(after.body, `name="from" value="2025-03-06T01:30:00Z"`) {
		t.Errorf("the rest: %s", after.body)
	}
	s.shows(backfillPage+"&from=2025-03-01&to=2025-03-01T01:30:00Z", "there is nothing to put")
	s.shows(backfillPage+"&from=2025-03-01T01:30:00Z&to=2025-03-01T01:30:00.001Z", "It would put 1 job", ">Put 1 job<")
	for query, texts := range map[string][]string{
		"&from=noon&to=2025-04-01":             {"from: &#34;noon&#34; is no time", `value="noon" aria-invalid="true"`},
		"&from=1970-01-01&to=2025-04-01":       {"from: must be after 1970-01-01T00:00:00Z"},
		"&from=2025-04-01&to=2025-04-01":       {"to: must be after"},
		"&from=2025-04-01&to=2099-04-01":       {"to: at most the present"},
		"&from=2025-04-01":                     {"to: "},
		"&from=2025-04-01&to=2025-04-02&max=0": {"max: ", "from 1 to 10000"},
	} {
		got := s.send(http.MethodGet, backfillPage+query, "")
		for _, text := range texts {
			if got.status != http.StatusBadRequest || !strings.Contains(got.body, text) {
				t.Errorf("%s: %d, want %q in %s", query, got.status, text, got.body)
			}
		}
	}
	// A form that is older than the schedule would put other jobs than it showed.
	put = ofForm(t, s.shows(span+"&max=10000", "It would put 31 jobs").body, "Put 31 jobs")
	s.call("put-schedule", `{"queue":"shop/reports","name":"night/full","spec":{"every":"1h"}}`)
	s.refuses("backfill-schedule", put, http.StatusBadRequest, "the schedule has changed", "nothing was put",
		"It would put 744 jobs")
	// A full queue ends it, and the page goes on from there.
	s.call("update-queue", `{"queue":"shop/reports","settings":{"maxJobs":40}}`)
	put = ofForm(t, s.shows(span+"&max=10000").body, "Put 744 jobs")
	if after := s.acts("backfill-schedule", put); !strings.Contains(after.body, "Then the queue was full") ||
		!strings.Contains(after.body, `name="from" value="2025-03-`) {
		t.Errorf("a full queue: %s", after.body)
	}
	put = ofForm(t, s.shows(span).body, "Put 744 jobs")
	s.refuses("backfill-schedule", put, http.StatusTooManyRequests, "QUEUE_FULL")
}

// TestDashboardScheduleScopes: a page shows what the token allows, and says what an act takes.
func TestDashboardScheduleScopes(t *testing.T) {
	f := newTokenForms(t)
	f.node.Format = fsm.LatestFormat
	put := `{"queue":"shop/reports","name":"night/full","spec":` + nightRule + `,"job":{"text":"` + secretText + `"}}`
	if got := f.with(f.root, http.MethodPost, "/v1/put-schedule", put); got.status != http.StatusOK {
		t.Fatal(got.body)
	}
	for scope, pages := range map[string]map[string]string{ // status, and what the page shows; "!" what it does not
		"view:shop/*": {schedulePage: "200 take consume:shop/reports", "/ui/schedules?queue=shop%2Freports": "200 night/full",
			"/ui/schedule?queue=shop%2Freports&name=night": "403 it takes consume:shop/reports",
			"/ui/schedules": "200 night/full", backfillPage + "&from=2025-04-01&to=2025-04-02": "200 Put 1 job"},
		"consume:shop/*": {schedulePage: "200 " + secretText},
		"view:other": {schedulePage: "403 it takes consume:shop/reports",
			"/ui/schedules?queue=shop%2Freports": "403 it takes view:shop/reports", "/ui/schedules": "200 All 0 queues"},
	} {
		token, _ := f.store.make(t, scope)
		for page, want := range pages {
			got := f.send(http.MethodGet, page, "", "Authorization", "Bearer "+token)
			status, text, _ := strings.Cut(want, " ")
			if fmt.Sprint(got.status) != status || !strings.Contains(got.body, text) ||
				strings.Contains(got.body, secretText) != strings.Contains(want, secretText) {
				t.Errorf("%s with %s: %d, want %s in %s", page, scope, got.status, want, got.body)
			}
		}
	}
	view, _ := f.store.make(t, "view,consume:shop/*")
	of := fields("queue", "shop/reports", "name", "night/full", "confirm", "night/full", "at", "2025-04-01",
		"from", "2025-04-01", "to", "2025-04-02", "version", "1", "names", "night/full")
	for action, takes := range map[string]string{"pause-schedule": "admin", "resume-schedule": "admin",
		"trigger-schedule": "put", "backfill-schedule": "put", "delete-schedule": "admin", "pause-schedules": "admin",
		"resume-schedules": "admin"} {
		if got := f.act(view, action, of); got.status != http.StatusForbidden || !strings.Contains(got.body,
			"it takes "+takes+":shop/reports") {
			t.Errorf("%s: %d %s", action, got.status, got.body)
		}
	}
}

// TestDashboardRoomsOnlyActHere: no act on schedules and keys is done from another site, by GET, or
// where the dashboard only shows.
func TestDashboardRoomsOnlyActHere(t *testing.T) {
	s := dashboardSchedules(t, nightRule)
	s.call("put", `{"queue":"shop/reports","id":"k1","key":"k","delay":"1h"}`)
	reads := serve(t, func(cfg *Config) { cfg.Dashboard.Mode = DashboardRead })
	reads.node.Format = fsm.LatestFormat
	reads.call("put-schedule", `{"queue":"shop/reports","name":"night/full","spec":`+nightRule+`}`)
	reads.call("put", `{"queue":"shop/reports","id":"k1","key":"k","delay":"1h"}`)
	form := fields("queue", "shop/reports", "name", "night/full", "names", "night/full", "key", "k", "at", "2025-04-01",
		"from", "2025-04-01", "to", "2025-04-02", "version", "1")
	for _, action := range []string{"pause-schedule", "resume-schedule", "trigger-schedule", "backfill-schedule",
		"delete-schedule", "pause-schedules", "resume-schedules", "pause-key", "resume-key", "purge-key"} {
		form.Set("confirm", map[bool]string{true: "k", false: "night/full"}[strings.HasSuffix(action, "key")])
		if got := s.form(noRedirects(), "/ui/"+action, form, "Sec-Fetch-Site", "cross-site"); got.status !=
			http.StatusForbidden {
			t.Errorf("%s from another site: %d", action, got.status)
		}
		if got := s.send(http.MethodGet, "/ui/"+action+"?"+form.Encode(), ""); got.status != http.StatusMethodNotAllowed {
			t.Errorf("GET of %s: %d", action, got.status)
		}
		if got := reads.form(noRedirects(), "/ui/"+action, form); got.status != http.StatusForbidden ||
			!strings.Contains(got.body, "only shows") {
			t.Errorf("%s where pages only show: %d", action, got.status)
		}
	}
	for _, server := range []*served{s, reads} {
		server.shows(schedulePage, "It has not fired yet.", "!It is paused")
		if got := server.counts("shop/reports"); got != "1 0 0 0" {
			t.Errorf("the queue changed: %s", got)
		}
	}
	for _, page := range []string{schedulePage, "/ui/schedules?queue=shop%2Freports", "/ui/schedules",
		backfillPage + "&from=2025-04-01&to=2025-04-02", "/ui/keys?queue=shop%2Freports",
		"/ui/key?queue=shop%2Freports&key=k"} {
		reads.shows(page, `!<form method="post"`)
	}
}

// TestDashboardRoomsNeedTheirFormat: before the cluster knows schedules and keys, their pages say what to
// do.
func TestDashboardRoomsNeedTheirFormat(t *testing.T) {
	s := serve(t, withDashboard, func(cfg *Config) {
		old := cfg.Node.(*backendtest.Node)
		old.Format = fsm.KeysFormat - 1
		cfg.Node = upgrading{old}
	})
	s.call("put", `{"queue":"q","id":"a","delay":"1h"}`)
	for page, what := range map[string]string{
		"/ui/schedules": "Schedules need format 4", "/ui/schedules?queue=q": "Schedules need format 4",
		"/ui/schedule?queue=q&name=a": "Schedules need format 4", "/ui/backfill?queue=q&name=a": "Schedules need format 4",
		"/ui/keys?queue=q": "Keys need format 4", "/ui/key?queue=q&key=k": "Keys need format 4",
	} {
		got := s.send(http.MethodGet, page, "")
		if got.status != http.StatusNotImplemented || !strings.Contains(got.body, what) ||
			!strings.Contains(got.body, "Upgrade all nodes") || !strings.Contains(got.body, "UNIMPLEMENTED") {
			t.Errorf("%s: %d %s", page, got.status, got.body)
		}
	}
	for action, what := range map[string]string{
		"pause-key": "Keys", "resume-key": "Keys", "purge-key": "Keys", "pause-schedule": "Schedules",
		"resume-schedules": "Schedules", "trigger-schedule": "Schedules", "delete-schedule": "Schedules",
	} {
		s.refuses(action, fields("queue", "q", "key", "k", "confirm", "k", "name", "k", "names", "k", "at", "2026-01-01"),
			http.StatusNotImplemented, what+" need format 4")
	}
}

// TestDashboardRoomsWithoutLeaders: pages about schedules and keys show what the replicas have, and say so.
func TestDashboardRoomsWithoutLeaders(t *testing.T) {
	n := &leaderless{}
	s := serve(t, withDashboard, func(cfg *Config) {
		n.Node = cfg.Node.(*backendtest.Node)
		n.Format = fsm.LatestFormat
		cfg.Cluster = &backendtest.SingleNode{Node: n.Node, Address: cfg.Address, Version: cfg.Version}
		cfg.Node = n
	})
	s.call("put-schedule", `{"queue":"shop/reports","name":"night/full","spec":`+nightRule+`}`)
	n.lost.Store(true)
	for _, page := range []string{schedulePage, "/ui/schedules?queue=shop%2Freports", "/ui/schedules",
		backfillPage + "&from=2025-04-01&to=2025-04-02"} {
		s.shows(page, "night/full", "A shard has no leader that answers.")
	}
	for _, page := range []string{"/ui/keys?queue=shop%2Freports", "/ui/key?queue=shop%2Freports&key=k"} {
		s.shows(page, "A shard has no leader that answers.")
	}
}
