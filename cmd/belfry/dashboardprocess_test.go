package main

import (
	"context"
	"html"
	"io"
	"maps"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// What pages say that are answered by replicas, and by a node that does not hear the catalog's leader.
const (
	ofReplicas = "A shard has no leader that answers. The figures are those of its replicas"
	ofCopy     = "This node has not heard from the leader of the catalog"
)

// TestDashboardOfALoneNode: when two of three nodes end, or answer no more, as if the third were cut
// off, every page of the third answers, those with figures of the cluster say how old they are, and
// acts are refused with the reason. Pages are found by the links of other pages.
func TestDashboardOfALoneNode(t *testing.T) {
	t.Parallel()
	for name, signal := range map[string]syscall.Signal{"the others end": syscall.SIGKILL,
		"the others hang": syscall.SIGSTOP} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first := serve(t, launcher, t.TempDir(), "--node-id", "n1", "--shards", "2")
			var others []*process
			for _, id := range []string{"n2", "n3"} {
				others = append(others, serve(t, launcher, t.TempDir(), "--node-id", id, "--shards", "2", "--join", first.gossip))
			}
			awaitCluster(t, first, "three voters of each shard", func(code int, c *belfryv1.GetClusterResponse) bool {
				return code == 0 && votersOfAll(c, 3)
			})
			fillForDashboard(t, first)
			for _, p := range others {
				p.signal(signal)
			}
			for page, text := range map[string]string{"": ofReplicas, "cluster": ofCopy} {
				await(t, "the page "+page+" to be marked", func() bool {
					status, body := browse(t, first, http.MethodGet, page, "")
					return status == http.StatusOK && strings.Contains(body, text)
				})
			}
			checkPages(t, first)
			refuseActs(t, first)
			if signal != syscall.SIGSTOP {
				return
			}
			for _, p := range others {
				p.signal(syscall.SIGCONT)
			}
			for _, page := range []string{"queue?queue=shop/orders", "namespace?name=shop"} {
				await(t, page+" to be of leaders again", func() bool {
					status, body := browse(t, first, http.MethodGet, page, "")
					return status == http.StatusOK && !strings.Contains(body, ofReplicas) && !strings.Contains(body, ofCopy)
				})
			}
		})
	}
}

// fillForDashboard makes what pages are about: jobs in each state, a quota and a task.
func fillForDashboard(t *testing.T, p *process) {
	t.Helper()
	for _, args := range [][]string{
		{"put", "shop/orders", "x", "--id", "later", "--delay", "10h"},
		{"put", "shop/held", "x", "--id", "held", "--ttr", "1h"},
		{"put", "shop/mails", "x", "--id", "dead", "--max-attempts", "1"},
		{"namespace", "set", "shop", "--max-jobs", "1000"},
		{"schedule", "put", "shop/orders", "nightly", "x", "--cron", "30 2 * * *"},
	} {
		if got := p.run(launcher, args...); got.Code != 0 {
			t.Fatalf("%v: %+v", args, got)
		}
	}
	reserveOne(t, p, launcher, "shop/held")
	failing := reserveOne(t, p, launcher, "shop/mails")
	if got := p.run(launcher, "nack", failing.Lease, "--error", "smtp 421"); got.Code != 0 {
		t.Fatalf("nack: %+v", got)
	}
	await(t, "a task", func() bool {
		status, _ := browse(t, p, http.MethodPost, "count", "queue=shop/orders&state=delayed")
		return status == http.StatusSeeOther
	})
}

// browse asks for a page, or posts a form, and returns what came back. A page that hangs fails the test.
func browse(t *testing.T, p *process, method, page, form string) (status int, body string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // only what hangs takes that long
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+p.address+"/ui/"+page, strings.NewReader(form))
	if err != nil {
		t.Fatal(err)
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	res, err := http.DefaultTransport.RoundTrip(req) // which follows no redirects
	if err != nil {
		t.Fatalf("%s %s: %v", method, page, err)
	}
	defer res.Body.Close()
	all, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, page, err)
	}
	return res.StatusCode, string(all)
}

// checkPages follows links from the first page on, to one page of each kind.
func checkPages(t *testing.T, p *process) {
	t.Helper()
	marks := map[string][]string{
		"": {ofReplicas, ofCopy}, "queues": {ofReplicas}, "queue": {ofReplicas}, "queue-settings": {ofReplicas},
		"jobs": {ofReplicas}, "job": {ofReplicas}, "dead": {ofReplicas}, "consumers": {ofReplicas}, "find": {ofReplicas},
		"namespace": {ofReplicas, ofCopy}, "namespaces": {ofCopy}, "cluster": {ofCopy}, "node": {ofCopy}, "tasks": {ofCopy},
		"task": {ofCopy}, "tokens": {ofCopy}, "audit": {"n2", "n3"}, "settings": nil, "new-queue": nil, "put": nil,
		"export": {"a download has no jobs of replicas"}, "body": nil, "keys": {ofReplicas}, "schedules": {ofReplicas},
		"schedule": {ofReplicas}, "backfill": nil,
	}
	href := regexp.MustCompile(`<a [^>]*href="([^"#]+)"`)
	seen := map[string]string{"find": "find?queue=shop/orders&job=nothing"} // its form is on every page
	pages := []string{"./", seen["find"]}
	for len(pages) > 0 {
		page := strings.TrimPrefix(pages[0], "./")
		pages = pages[1:]
		status, body := browse(t, p, http.MethodGet, page, "")
		kind, _, _ := strings.Cut(page, "?")
		want := http.StatusOK
		if kind == "export" { // a file cannot say how old it is
			want = http.StatusServiceUnavailable
		}
		if status != want {
			t.Errorf("%s: %d, want %d: %s", page, status, want, body)
		}
		for _, mark := range marks[kind] {
			if !strings.Contains(body, mark) {
				t.Errorf("%s does not say %q: %s", page, mark, body)
			}
		}
		for _, link := range href.FindAllStringSubmatch(body, -1) {
			target := html.UnescapeString(link[1])
			to, err := url.Parse(target)
			if err != nil || to.IsAbs() || strings.HasPrefix(path.Clean(to.Path), "..") {
				t.Errorf("%s leads to %q, %v", page, target, err)
				continue
			}
			if to := strings.TrimPrefix(to.Path, "./"); seen[to] == "" {
				seen[to] = target
				pages = append(pages, target)
			}
		}
	}
	if want, got := slices.Sorted(maps.Keys(marks)), slices.Sorted(maps.Keys(seen)); !slices.Equal(got, want) {
		t.Errorf("the pages are %q, want %q", got, want)
	}
}

// refuseActs posts forms that need a leader.
func refuseActs(t *testing.T, p *process) {
	t.Helper()
	for act, form := range map[string]string{
		"pause": "queue=shop/orders", "put": "queue=shop/orders&as=text&body=x", "cancel": "queue=shop/orders&id=later",
		"run-now": "queue=shop/orders&id=later", "redrive": "queue=shop/mails&id=dead",
		"new-queue": "queue=new&partitions=1", "purge": "queue=shop/orders&state=delayed&confirm=shop/orders",
		"delete-queue":     "queue=shop/orders&confirm-delete=shop/orders",
		"delete-namespace": "name=shop&confirm=shop", "transfer": "shard=0",
		"count": "queue=shop/orders&state=delayed",
	} {
		status, body := browse(t, p, http.MethodPost, act, form)
		if status != http.StatusServiceUnavailable || !strings.Contains(body, "<strong>NO_LEADER") {
			t.Errorf("%s: %d, want 503 and NO_LEADER: %s", act, status, body)
		}
	}
}
