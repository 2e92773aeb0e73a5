package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/belfrydb/belfry/access/certs"
	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/local"
	"github.com/belfrydb/belfry/cmd/belfry/server"
)

// scrape is what servers said at one moment, by instance; nothing of one that does not answer.
type scrape struct {
	at    time.Time
	pages map[string][]sample
}

// scrapeOf asks servers that are stopped or not.
func scrapeOf(t *testing.T, servers map[string]*server.Server) scrape {
	t.Helper()
	all := scrape{at: time.Now(), pages: map[string][]sample{}}
	for instance, s := range servers {
		all.pages[instance] = nil
		if s != nil {
			all.pages[instance] = samplesOf(t, call(t, s, "metrics", ""))
		}
	}
	return all
}

// call makes a GET, or a POST of a body, and returns the answer. A call that was not applied because
// a shard had no leader is made again: on a busy machine a leader may lose its lease.
func call(t *testing.T, s *server.Server, path, body string) (text string) {
	t.Helper()
	await(t, "an answer to "+path, func() bool {
		var status int
		status, text = callOnce(t, s, path, body)
		unavailable := status == http.StatusServiceUnavailable && strings.Contains(text, `"outcome":"NOT_APPLIED"`)
		if status != http.StatusOK && !unavailable {
			t.Fatalf("%s %s: %d %s", path, body, status, text)
		}
		return !unavailable
	})
	return text
}

// callOnce makes a GET, or a POST of a body.
func callOnce(t *testing.T, s *server.Server, path, body string) (status int, answer string) {
	t.Helper()
	method := http.MethodGet
	if body != "" {
		method = http.MethodPost
	}
	r, err := http.NewRequestWithContext(t.Context(), method, s.URL()+"/"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	own := &http.Transport{TLSClientConfig: s.ClientTLS()}
	defer own.CloseIdleConnections()
	response, err := own.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("%s %s: %d %s, %v", path, body, response.StatusCode, text, err)
	}
	return response.StatusCode, string(text)
}

// The time that passes in a drill, and when it is looked at which alerts fire.
const (
	drillMinutes = 90
	drillLook    = "80m"
)

// one is 1 for true, else 0, as Prometheus has it.
func one(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// drill is what Prometheus would have seen had the servers gone on for drillMinutes as they were
// between two scrapes: counters grow by as much each minute, gauges stay as they were at the
// second. So do times, or, if moving is set, they go on with the clock.
type drill struct {
	before, after scrape
	moving        bool
}

// series returns the input of promtool.
func (d *drill) series() (all []map[string]string) {
	add := func(name string, labels map[string]string, first, step float64) {
		values := fmt.Sprintf("%s+%sx%d", decimal(first), decimal(step), drillMinutes)
		all = append(all, map[string]string{"series": name + braces(labels), "values": strings.ReplaceAll(values, "+-", "-")})
	}
	for instance, page := range d.after.pages {
		target := map[string]string{"job": "belfry", "instance": instance}
		add("up", target, one(page != nil), 0)
		earlier := map[string]float64{}
		for _, s := range d.before.pages[instance] {
			earlier[s.String()] = s.value
		}
		for _, s := range page {
			labels := map[string]string{"job": "belfry", "instance": instance}
			for name, value := range s.labels {
				labels[name] = value
			}
			switch {
			case s.counts():
				add(s.name, labels, s.value, s.value-earlier[s.String()])
			case strings.HasSuffix(s.name, "_timestamp_seconds") && d.moving:
				add(s.name, labels, s.value-float64(d.after.at.Unix()), 60)
			case strings.HasSuffix(s.name, "_timestamp_seconds"):
				add(s.name, labels, s.value-float64(d.after.at.Unix()), 0)
			default:
				add(s.name, labels, s.value, 0)
			}
		}
	}
	return all
}

func decimal(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// braces writes labels as expressions have them.
func braces(labels map[string]string) string {
	var parts []string
	for name, value := range labels {
		parts = append(parts, name+"="+strconv.Quote(value))
	}
	slices.Sort(parts)
	return "{" + strings.Join(parts, ",") + "}"
}

// expect has promtool say of each alert whether it fires.
func (d *drill) expect(t *testing.T, firing bool, alerts ...string) {
	t.Helper()
	var asked []map[string]any
	for _, alert := range alerts {
		asked = append(asked, map[string]any{
			"expr":        fmt.Sprintf("count(ALERTS{alertname=%q,alertstate=%q}) > bool 0 or vector(0)", alert, "firing"),
			"eval_time":   drillLook,
			"exp_samples": []map[string]any{{"labels": "{}", "value": one(firing)}},
		})
	}
	rules, err := filepath.Abs(filepath.Join(repository, "deploy", "prometheus", "rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := yaml.Marshal(map[string]any{
		"rule_files": []string{rules}, "evaluation_interval": "1m",
		"tests": []map[string]any{{"interval": "1m", "input_series": d.series(), "promql_expr_test": asked}},
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "drill.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if said, err := exec.CommandContext(t.Context(), "promtool", "test", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("firing should be %v: %s", firing, said)
	}
}

// stopLeader stops the node that leads the shard of orders.
func stopLeader(t *testing.T, three *local.Trio) {
	t.Helper()
	await(t, "the leader of orders to be stopped", func() bool {
		_, err := three.StopLeader(t.Context(), "orders")
		return err == nil
	})
}

// TestAlertsOfNodesFire: what happens to the nodes of a cluster fires the alerts that name it, and
// none of those fires before.
func TestAlertsOfNodesFire(t *testing.T) {
	t.Parallel()
	host, sys := testHost(), cli.NewSystem()
	said := &lockedBuffer{}
	sys.Out, sys.Err = said, said
	err := host.WithTrio(t.Context(), func(int, int) {}, func(three *local.Trio) error {
		look := func() scrape {
			servers := map[string]*server.Server{}
			for i, s := range three.Servers {
				servers[three.Configs[i].NodeID] = s
			}
			return scrapeOf(t, servers)
		}
		operate := func(args ...string) {
			if code := run(t.Context(), sys, append(args, "--server", three.Servers[0].URL())); code != 0 {
				t.Fatalf("%q ended with %d: %s", args, code, said)
			}
		}
		led := func() (seen scrape) { // a look may meet a leadership that is being handed over
			await(t, "leaders of all shards and of the catalog", func() bool {
				seen = look()
				return ledShards(seen) == local.TrioShards && sum(seen, "belfry_catalog_leading") > 0
			})
			return seen
		}
		first := led()
		call(t, three.Servers[0], "v1/put", `{"queue":"orders","text":"x","ttr":"1h"}`) // a lease that does not end meanwhile
		call(t, three.Servers[0], "v1/reserve", `{"queues":["orders"],"wait":"20s"}`)
		// The others depend on how fast the machine is.
		quiet := &drill{before: first, after: led(), moving: true}
		quiet.expect(t, false, "BelfryNodeDown", "BelfryNoLeader", "BelfryCatalogNoLeader", "BelfryUnderReplicated",
			"BelfryReplicaLag", "BelfryDiskFull", "BelfryMemoryFull", "BelfryClockAhead",
			"BelfrySnapshotStale", "BelfrySnapshotFails", "BelfryReplicaQuarantined", "BelfryPeerBytesChanged",
			"BelfryOldestReady", "BelfryNoConsumers", "BelfryDeadLetters", "BelfryLeasesExpire")

		first = look()
		to := "n1"
		if three.Servers[0].Status().Shards[0].Serving {
			to = "n2"
		}
		operate("cluster", "transfer", "0", "--to", to)
		operate("cluster", "settings", "--replication-factor", "5")
		await(t, "leaders that want five voters", func() bool {
			return sum(look(), "belfry_shard_voters_wanted") == 5*local.TrioShards
		})
		(&drill{before: first, after: look()}).expect(t, true, "BelfryLeaderChanges", "BelfryUnderReplicated")

		stopLeader(t, three)
		first = look()
		down := &drill{before: first}
		await(t, "leaders of all shards", func() bool {
			down.after = look()
			return ledShards(down.after) == local.TrioShards
		})
		down.expect(t, true, "BelfryNodeDown", "BelfryReplicaLag")
		down.expect(t, false, "BelfryNoLeader")

		stopLeader(t, three)
		await(t, "nobody leads", func() bool {
			return sum(look(), "belfry_shard_leading")+sum(look(), "belfry_catalog_leading") == 0
		})
		(&drill{before: first, after: look()}).expect(t, true, "BelfryNoLeader", "BelfryCatalogNoLeader")
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// ledShards counts the shards that a node leads. While a leadership is handed over, two may say
// that they lead the same one.
func ledShards(s scrape) int {
	led := map[string]bool{}
	for _, page := range s.pages {
		for _, m := range page {
			if m.name == "belfry_shard_leading" && m.value == 1 {
				led[m.labels["shard"]] = true
			}
		}
	}
	return len(led)
}

// sum adds up a metric of all nodes.
func sum(s scrape, name string) (all float64) {
	for _, page := range s.pages {
		for _, m := range page {
			if m.name == name {
				all += m.value
			}
		}
	}
	return all
}

// TestAlertsOfJobsFire: what happens to jobs, and to the certificate of the node, fires the alerts
// that name it.
func TestAlertsOfJobsFire(t *testing.T) {
	t.Parallel()
	host := testHost()
	cfg := host.OwnServer(t.TempDir())
	cfg.NodeID, cfg.TLS = "n1", endingSoon(t, 7*24*time.Hour)
	s, err := server.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}()
	look := func() scrape { return scrapeOf(t, map[string]*server.Server{"n1": s}) }
	put := func(queue, more string) {
		call(t, s, "v1/put", fmt.Sprintf(`{"queue":%q,"text":"x"%s}`, queue, more))
	}
	reserve := func(queue, more string) (lease string) {
		var answer struct{ Jobs []struct{ Lease string } }
		if err := json.Unmarshal([]byte(call(t, s, "v1/reserve", fmt.Sprintf(`{"queues":[%q],"wait":"20s"%s}`, queue, more))),
			&answer); err != nil || len(answer.Jobs) != 1 {
			t.Fatalf("%+v, %v", answer, err)
		}
		return answer.Jobs[0].Lease
	}
	overdue := fmt.Sprintf(`,"dueAt":%q`, time.Now().Add(-10*time.Minute).UTC().Format(time.RFC3339))
	for _, queue := range []string{"late", "left", "fails", "hangs"} { // so that each has been seen before it happens
		call(t, s, "v1/create-queue", fmt.Sprintf(`{"queue":%q}`, queue))
	}
	first := look()
	(&drill{
		before: first, after: look(),
	}).expect(t, false, "BelfryDeliveryLate", "BelfryOldestReady", "BelfryNoConsumers", "BelfryDeadLetters",
		"BelfryLeasesExpire")

	call(t, s, "v1/set-namespace", `{"name":"shop","maxJobs":2}`)
	await(t, "the quota in the metrics", func() bool { return sum(look(), "belfry_namespace_limit") == 2 })
	(&drill{before: first, after: look()}).expect(t, false, "BelfryNamespaceNearQuota")
	put("shop/a", "")
	put("shop/b", "")

	put("late", overdue)
	reserve("late", "")
	put("left", overdue)
	put("fails", `,"maxAttempts":1`)
	call(t, s, "v1/nack", fmt.Sprintf(`{"lease":%q}`, reserve("fails", "")))
	put("hangs", "")
	reserve("hangs", `,"ttr":"1s"`)
	await(t, "a lease that has lapsed", func() bool {
		return slices.ContainsFunc(look().pages["n1"], func(m sample) bool {
			return m.name == "belfry_queue_events_total" && m.labels["queue"] == "hangs" && m.labels["event"] == "lapsed" &&
				m.value == 1
		})
	})
	all := &drill{before: first, after: look()}
	all.expect(t, true, "BelfryDeliveryLate", "BelfryOldestReady", "BelfryNoConsumers", "BelfryDeadLetters",
		"BelfryLeasesExpire", "BelfryCertificateEnds", "BelfryNamespaceNearQuota")
	all.expect(t, false, "BelfryServerLate")
}

// endingSoon returns the files of a node's certificate.
func endingSoon(t *testing.T, left time.Duration) certs.Files {
	t.Helper()
	dir := t.TempDir()
	files := certs.Files{
		Cert: filepath.Join(dir, "n1.pem"), Key: filepath.Join(dir, "n1-key.pem"), CA: filepath.Join(dir, "ca.pem"),
	}
	authority, pair, err := certs.NewAuthority("", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := pair.Save(files.CA, filepath.Join(dir, "ca-key.pem")); err != nil {
		t.Fatal(err)
	}
	if pair, err = authority.Issue("n1", nil, time.Now(), time.Now().Add(left)); err != nil {
		t.Fatal(err)
	}
	if err := pair.Save(files.Cert, files.Key); err != nil {
		t.Fatal(err)
	}
	return files
}

// TestAlertsOfOperatorsFire: a backup that is old, also if the node that sent it was restarted
// since, and calls without a token, fire the alerts that name them.
func TestAlertsOfOperatorsFire(t *testing.T) {
	t.Parallel()
	host, sys := testHost(), cli.NewSystem()
	said := &lockedBuffer{}
	sys.Out, sys.Err = said, said
	dir := t.TempDir()
	cfg := host.OwnServer(t.TempDir())
	root := makeRoot(t, dir, "root")
	cfg.NodeID, cfg.RootTokens = "n1", root.RootTokens
	s, err := server.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}()
	token, err := os.ReadFile(root.Token)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(header string) (status int, page string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL()+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", header)
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(text)
	}
	look := func() scrape {
		status, page := ask("Bearer " + strings.TrimSpace(string(token)))
		if status != http.StatusOK {
			t.Fatalf("%d %s", status, page)
		}
		return scrape{at: time.Now(), pages: map[string][]sample{"n1": samplesOf(t, page)}}
	}
	if code := run(t.Context(), sys,
		[]string{"backup", filepath.Join(dir, "backup"), "--server", s.URL(), "--token-file", root.Token}); code != 0 {
		t.Fatalf("a backup ended with %d: %s", code, said)
	}
	first := look()
	for range 100 {
		if status, page := ask(""); status != http.StatusUnauthorized {
			t.Fatalf("%d %s", status, page)
		}
	}
	then := look()
	(&drill{before: first, after: first}).expect(t, false, "BelfryBackupStale", "BelfryCallsRefused")
	(&drill{before: first, after: then}).expect(t, true, "BelfryCallsRefused")
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	again, err := server.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	s = again
	later := look()
	later.at = later.at.Add(3 * 24 * time.Hour) // as if it were asked only then
	(&drill{before: later, after: later}).expect(t, true, "BelfryBackupStale")
}
