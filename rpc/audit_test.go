package rpc

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/rpc/backend"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// audit returns an answer of ListAudit to a request in JSON.
func (s *served) audit(token, request string) *belfryv1.ListAuditResponse {
	s.t.Helper()
	var headers []string
	if token != "" {
		headers = []string{"Authorization", "Bearer " + token}
	}
	got := s.send(http.MethodPost, "/v1/list-audit", request, append(headers, "Content-Type", "application/json")...)
	out := &belfryv1.ListAuditResponse{}
	if err := protojson.Unmarshal([]byte(got.body), out); err != nil || got.status != http.StatusOK {
		s.t.Fatalf("list-audit %s: %d %s: %v", request, got.status, got.body, err)
	}
	return out
}

// methodsIn returns the last part of the path of each record.
func methodsIn(records []*belfryv1.AuditRecord) (all []string) {
	for _, r := range records {
		all = append(all, r.Procedure[strings.LastIndexByte(r.Procedure, '/')+1:])
	}
	return all
}

// serveAudited starts a server and makes nine calls that are audited, and some that are not. It returns
// the tokens of an operator and of a caller that may do little.
func serveAudited(t *testing.T) (s *served, root, rootID, least, leastID string) {
	s, store := serveWithTokens(t)
	root, rootID = store.make(t, "admin:*")
	least, leastID = store.make(t, "put:a")
	store.all[rootID].About = "the operator"
	for _, call := range [][3]string{
		{root, "/v1/create-queue", `{"queue":"a"}`},
		{root, "/v1/put", `{"queue":"a","text":"SECRET"}`},
		{root, "/v1/cancel", `{"queue":"a","id":"none"}`},
		{root, "/v1/delete-token", `{"id":"` + least + `"}`},
		{root, "/v1/drain-node", `{"name":"n9"}`},
		{least, "/v1/purge-queue", `{"queue":"a","states":["DEAD"]}`},
		{least, "/v1/put", `{"queue":"b","text":"SECRET"}`},
		{least, "/v1/put-batch", `{"jobs":[{"queue":"a","text":"SECRET"},{"queue":"b","text":"SECRET"}]}`},
		{"", "/v1/put", `{"queue":"a","text":"SECRET"}`},
		{"", "/%ff%1b", ``},
		{root, "/v1/create-token", `{"scopes":["view:*"],"about":"a page"}`},
		{root, "/v1/list-queues", `{}`},
	} {
		s.with(call[0], http.MethodPost, call[1], call[2])
	}
	return s, root, rootID, least, leastID
}

// TestListAudit: the audit has who did what, from where and with which result, newest first, and
// neither tokens nor what jobs contain.
func TestListAudit(t *testing.T) {
	s, root, rootID, least, leastID := serveAudited(t)
	all := s.audit(root, `{}`)
	if got, want := methodsIn(all.Records), []string{"CreateToken", "\ufffd\x1b", "put", "PutBatch", "Put", "PurgeQueue",
		"DrainNode", "DeleteToken", "CreateQueue"}; !slices.Equal(got, want) {
		t.Fatalf("the audit has %q, want %q", got, want)
	}
	text := protojson.Format(all)
	if strings.Contains(text, "SECRET") || strings.Contains(text, least[len(least)-30:]) {
		t.Errorf("the audit has what it must not have: %s", text)
	}
	first := all.Records[0]
	if first.Node != "n1" || first.Serial != 9 || first.Token != rootID || first.TokenAbout != "the operator" ||
		!strings.HasPrefix(first.Address, "127.0.0.1:") || first.Procedure != "/belfry.v1.AdminService/CreateToken" ||
		!strings.Contains(first.Request, `view:*`) || first.Outcome != "ok" || first.Took == nil || first.CallId == "" ||
		first.MadeToken == "" || first.MadeToken == rootID || first.Dashboard ||
		time.Since(first.EndedAt.AsTime()) > time.Minute {
		t.Errorf("the newest call is %v", first)
	}
	if batch := all.Records[3]; batch.RefusedEntries != 1 || batch.Queue != "b" || batch.Token != leastID {
		t.Errorf("a batch with a refused entry is %v", batch)
	}
	if len(all.Nodes) != 1 || all.Nodes[0].Name != "n1" || all.Nodes[0].Kept != 9 || all.Nodes[0].Since == nil {
		t.Errorf("the nodes are %v", all.Nodes)
	}
}

// TestListAuditSelects: conditions select calls, and those that cannot be meant are refused by name.
func TestListAuditSelects(t *testing.T) {
	s, root, rootID, _, leastID := serveAudited(t)
	for size, more := range map[int]bool{8: true, 9: false, 5000: false} {
		if page := s.audit(root, fmt.Sprintf(`{"pageSize":%d}`, size)); len(page.Records) != min(size, 9) ||
			(page.NextPageToken != "") != more {
			t.Errorf("a page of %d has %d calls; more: %q", size, len(page.Records), page.NextPageToken)
		}
	}
	for request, want := range map[string][]string{
		`{"procedure":"PurgeQueue"}`:                        {"PurgeQueue"},
		`{"procedure":"purgequeue"}`:                        {"PurgeQueue"},
		`{"procedure":"Put"}`:                               {"put", "Put"},
		`{"procedure":"/v1/put"}`:                           {"put"},
		`{"token":"` + leastID + `"}`:                       {"PutBatch", "Put", "PurgeQueue"},
		`{"token":"nobody"}`:                                {"\ufffd\x1b", "put"},
		`{"token":"` + rootID + `","failedOnly":true}`:      {"DrainNode", "DeleteToken"},
		`{"procedure":"CreateQueue","failedOnly":true}`:     nil,
		`{"token":"` + leastID + `","procedure":"Restore"}`: nil,
	} {
		if got := methodsIn(s.audit(root, request).Records); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", request, got, want)
		}
	}
	for request, want := range map[string]string{
		`{"pageSize":-1}`:                                  "pageSize: ",
		`{"pageToken":"x"}`:                                "pageToken: not a token of this list",
		`{"procedure":"PurgeQueu"}`:                        "did you mean PurgeQueue?",
		`{"procedure":"` + strings.Repeat("/", 257) + `"}`: "procedure: ",
		`{"token":"x"}`:                                    "token: want the id of a token",
	} {
		if got := s.with(root, http.MethodPost, "/v1/list-audit", request); got.status != http.StatusBadRequest ||
			!strings.Contains(got.body, want) {
			t.Errorf("%s: %d %s, want %q", request, got.status, got.body, want)
		}
	}
}

// TestListAuditPages: pages have all calls of all nodes once, newest first, and say which nodes could
// not be asked.
func TestListAuditPages(t *testing.T) {
	cluster := &fakeCluster{}
	s := serve(t, func(cfg *Config) { cfg.Cluster = cluster })
	at := time.Now()
	other := &belfryv1.ListAuditResponse{Nodes: []*belfryv1.AuditNode{{Since: timestamppb.New(at), Kept: 4}}}
	for i := range 4 { // one of them a moment later than all others
		other.Records = append(other.Records, &belfryv1.AuditRecord{
			Node: "n2", Serial: uint64(i + 1), EndedAt: timestamppb.New(at.Add(time.Duration(i-2) * time.Hour)), Outcome: "ok",
		})
	}
	answer, err := proto.Marshal(other)
	if err != nil {
		t.Fatal(err)
	}
	cluster.others = []backend.AuditAnswer{
		{Name: "n2", Answer: answer}, {Name: "n0", Err: errors.New("no route to host")},
	}
	const calls = 7
	for i := range calls {
		s.post("/v1/create-queue", fmt.Sprintf(`{"queue":"q%d"}`, i))
	}
	var got []string
	var last *belfryv1.AuditRecord
	for token, pages := "", 0; ; pages++ {
		page := s.audit("", fmt.Sprintf(`{"pageSize":3,"pageToken":%q}`, token))
		if len(page.Nodes) != 3 || page.Nodes[0].Name != "n0" || page.Nodes[0].Since != nil ||
			page.Nodes[0].Error != "no route to host" || page.Nodes[2].Kept != 4 {
			t.Fatalf("the nodes are %v", page.Nodes)
		}
		for _, r := range page.Records {
			if last != nil && last.EndedAt.AsTime().Before(r.EndedAt.AsTime()) {
				t.Errorf("%v comes after %v", r, last)
			}
			last = r
			got = append(got, fmt.Sprint(r.Node, "-", r.Serial))
		}
		if token = page.NextPageToken; token == "" {
			if pages != 3 {
				t.Errorf("%d pages of 3 for %d calls", pages+1, len(got))
			}
			break
		}
	}
	if want := []string{"n2-4", "n1-7", "n1-6", "n1-5", "n1-4", "n1-3", "n1-2", "n1-1", "n2-3", "n2-2", "n2-1"}; !slices.
		Equal(got, want) {
		t.Errorf("the pages have %q, want %q", got, want)
	}
}

// TestAuditPage: the page shows the calls of a selection and its next page, and what is hostile in
// them as text.
func TestAuditPage(t *testing.T) {
	cluster := &fakeCluster{others: []backend.AuditAnswer{{Name: "n2", Err: errors.New("<i>gone</i>")}}}
	s := serve(t, withDashboard, func(cfg *Config) { cfg.Cluster = cluster })
	for i := range 60 {
		s.post("/v1/create-queue", fmt.Sprintf(`{"queue":"q%d"}`, i))
	}
	s.post("/v1/purge-queue", `{"queue":"<script>alert(1)</script>"}`)
	page := s.send(http.MethodGet, "/ui/audit", "").body
	for _, want := range []string{">CreateQueue<", "&lt;script&gt;", "&lt;i&gt;gone&lt;/i&gt;", "q59", "older calls",
		"The calls of node n2 are missing", "invalid_argument: queue"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(page, "<script>alert") || strings.Contains(page, "<i>") || strings.Contains(page, `q9&#34;`) ||
		len(page) > 100<<10 {
		t.Errorf("the page (%d bytes) has what it must not have:\n%.3000s", len(page), page)
	}
	_, rest, _ := strings.Cut(page, `rel="next" href="`)
	next, _, _ := strings.Cut(rest, `"`)
	if after := s.send(http.MethodGet, "/ui/"+next, "").body; !strings.Contains(after, `q9&#34;`) ||
		strings.Contains(after, "q59") || !strings.Contains(after, "the newest") {
		t.Errorf("%q shows\n%.3000s", next, after)
	}
	failed := s.send(http.MethodGet, "/ui/audit?outcome=failed", "").body
	if strings.Contains(failed, ">CreateQueue<") || !strings.Contains(failed, ">PurgeQueue<") {
		t.Errorf("the failed calls are\n%.3000s", failed)
	}
	if got := s.send(http.MethodGet, "/ui/audit?call=Nonsense", ""); got.status != http.StatusBadRequest {
		t.Errorf("a call that there is not: %d", got.status)
	}
}

// dashboardForms has a form for each action of the dashboard, in an order in which all succeed after
// putJobs. version is that of the schedule.
func dashboardForms(version string) (order []string, forms map[string]url.Values) {
	job := url.Values{"queue": {"shop/orders"}, "id": {"order-1"}, "state": {"delayed"}, "due": {"2h"}}
	queue := url.Values{"queue": {"shop/orders"}}
	dead := url.Values{"queue": {"shop/mails"}, "id": {"mail-1"}}
	all := url.Values{"queue": {"shop/mails"}, "state": {"dead"}, "cause": {"smtp: refused"}, "act": {"redrive"},
		"max": {"1"}}
	chosen := url.Values{"queue": {"shop/mails"}, "state": {"dead"}, "jobs": {"mail-1"}, "act": {"redrive"}}
	schedule := url.Values{"queue": {"shop/orders"}, "name": {"night"}, "names": {"night"}, "at": {"2026-01-01"},
		"from": {"2026-01-01"}, "to": {"2026-01-02"}, "version": {version}, "confirm": {"night"}}
	key := url.Values{"queue": {"shop/orders"}, "key": {"k"}, "confirm": {"k"}}
	return []string{"pause", "resume", "queue-settings", "put", "run-now", "reschedule", "cancel", "count", "act-all",
			"act-chosen", "redrive", "purge", "pause-schedule", "resume-schedule", "pause-schedules", "resume-schedules",
			"trigger-schedule", "backfill-schedule", "delete-schedule", "pause-key", "resume-key", "purge-key", "new-queue",
			"delete-queue"},
		map[string]url.Values{
			"pause": queue, "resume": queue, "run-now": job, "reschedule": job, "cancel": job, "count": all, "act-all": all,
			"act-chosen": chosen, "redrive": dead, "purge": {"queue": {"shop/mails"}, "confirm": {"shop/mails"},
				"state": {"ready"}},
			"queue-settings": {"queue": {"shop/orders"}, "maxJobs": {"7"}}, "put": {"queue": {"shop/orders"}, "body": {"x"}},
			"new-queue":      {"queue": {"shop/new"}, "partitions": {"1"}},
			"delete-queue":   {"queue": {"shop/new"}, "confirm-delete": {"shop/new"}},
			"pause-schedule": schedule, "resume-schedule": schedule, "pause-schedules": schedule,
			"resume-schedules": schedule, "trigger-schedule": schedule, "backfill-schedule": schedule,
			"delete-schedule": schedule, "pause-key": key, "resume-key": key, "purge-key": key,
		}
}

// actedForms are forms whose tests need other clusters, or tokens. Those tests see that they are
// audited, too.
var actedForms = []string{
	"transfer", "drain", "undrain", "remove-node", "namespace", "delete-namespace", "new-token", "rotate-token",
	"revoke-token", "stop-task", "release-leases",
}

// showForms are forms that change nothing: what they are about is too long for a link.
var showForms = []string{"choose"}

// readFiles returns the files of a folder whose names have a suffix.
func readFiles(t *testing.T, dir, suffix string) (all []string) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*"+suffix))
	if err != nil || len(names) == 0 {
		t.Fatalf("no files in %s: %v", dir, err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(text))
	}
	return all
}

// scheduleVersion returns the version in an answer of put-schedule.
func scheduleVersion(t *testing.T, answer string) string {
	t.Helper()
	var put struct{ Version string }
	if err := json.Unmarshal([]byte(answer), &put); err != nil || put.Version == "" {
		t.Fatalf("%s: %v", answer, err)
	}
	return put.Version
}

// browserForms are the forms that change only what the browser keeps.
var browserForms = []string{"settings", "login", "logout"}

// TestDashboardActionsAreAudited: each action of a person leaves a record, also one whose calls leave
// none if a program makes them.
func TestDashboardActionsAreAudited(t *testing.T) {
	s := serve(t, withDashboard)
	s.node.Format = fsm.LatestFormat
	s.putJobs()
	put := s.call("put-schedule", `{"queue":"shop/orders","name":"night","spec":{"cron":"0 2 * * *"}}`)
	order, forms := dashboardForms(scheduleVersion(t, put))
	for _, path := range s.server.handler.dashboard.Forms() {
		if !slices.Contains(slices.Concat(order, actedForms, showForms, browserForms), path) {
			t.Errorf("the action %s has no form in dashboardForms, which shows that it is audited", path)
		}
	}
	routes := 0
	for _, file := range readFiles(t, "ui", ".go") {
		routes += strings.Count(file, `"POST `)
	}
	if routes != 1 {
		t.Errorf("package ui routes posts at %d places: Forms knows only those of route's form", routes)
	}
	serial := func() uint64 {
		if records := s.audit("", `{"pageSize":1}`).Records; len(records) > 0 {
			return records[0].Serial
		}
		return 0
	}
	for _, path := range order {
		before := serial()
		got := s.form(noRedirects(), "/ui/"+path, forms[path], "X-Request-Id", "by-"+path)
		newest := s.audit("", `{"pageSize":1}`).Records
		if len(newest) != 1 || newest[0].Serial == before || !newest[0].Dashboard || newest[0].CallId != "by-"+path {
			t.Errorf("%s (%d) leaves no record: %v", path, got.status, newest)
			continue
		}
		if !strings.Contains(s.log.String(), "request_id=by-"+path+" dashboard=true") {
			t.Errorf("%s leaves no line in the log", path)
		}
		if path != "redrive" && newest[0].Outcome != "ok" || !strings.Contains(newest[0].Request, "shop/") {
			t.Errorf("%s: %v", path, newest[0])
		}
	}
	before := serial()
	for _, page := range []string{"", "queues", "queue?queue=shop/orders", "jobs?queue=shop/orders", "dead", "cluster",
		"namespaces", "tokens", "audit", "settings", "job?queue=held&id=held-1", "body?queue=held&id=held-1",
		"schedules", "schedules?queue=shop/orders", "keys?queue=shop/orders", "key?queue=shop/orders&key=k"} {
		s.send(http.MethodGet, "/ui/"+page, "")
	}
	s.send(http.MethodPost, "/v1/cancel", `{"queue":"shop/orders","id":"x"}`, "Dashboard", "true", "Belfry-Dashboard",
		"true",
		"Sec-Fetch-Site", "same-origin", "Origin", s.url, "Referer", s.url+"/ui/job")
	if after := serial(); after != before {
		t.Errorf("pages, or the call of a program, left records: %v", s.audit("", `{}`).Records[:after-before])
	}
}

// TestDashboardPutsHideBodies: what a person puts by a page is audited without what it contains.
func TestDashboardPutsHideBodies(t *testing.T) {
	s := newServed(t)
	call, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://belfry/v1/put",
		strings.NewReader(`{"queue":"a","id":"job-1","text":"SECRET","headers":{"a":"SECRET"}}`))
	if err != nil {
		t.Fatal(err)
	}
	call.Header.Set("Content-Type", "application/json")
	res, err := inProcess{s.server.Handler()}.RoundTrip(call)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%v %v", res, err)
	}
	if err := res.Body.Close(); err != nil {
		t.Fatal(err)
	}
	if log := s.log.String(); !strings.Contains(log, "job-1") || strings.Contains(log, "SECRET") {
		t.Errorf("the log has %s", log)
	}
}
