package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/local"
	"github.com/belfrydb/belfry/cmd/belfry/server"
)

// sample is one line of a page of metrics.
type sample struct {
	name   string
	labels map[string]string
	value  float64
	kind   string // of the family
}

// String identifies the series.
func (s *sample) String() string { return s.name + braces(s.labels) }

// counts reports whether the value only grows.
func (s *sample) counts() bool { return s.kind == "counter" || s.kind == "histogram" }

var (
	sampleLine = regexp.MustCompile(`^([a-z][a-z0-9_]*)(?:\{(.*)\})? (\S+)$`)
	oneLabel   = regexp.MustCompile(`([a-z_]+)="([^"]*)"`)
	oneLease   = regexp.MustCompile(`"lease":"([^"]+)"`)
)

// samplesOf reads a page of metrics.
func samplesOf(t *testing.T, page string) (all []sample) {
	t.Helper()
	kind := ""
	for line := range strings.Lines(page) {
		line = strings.TrimSuffix(line, "\n")
		if fields := strings.Fields(line); line == "" || fields[0] == "#" {
			if len(fields) == 4 && fields[1] == "TYPE" {
				kind = fields[3]
			}
			continue
		}
		found := sampleLine.FindStringSubmatch(line)
		if found == nil {
			t.Fatalf("%q is no sample", line)
		}
		value, err := strconv.ParseFloat(found[3], 64)
		if err != nil {
			t.Fatal(err)
		}
		s := sample{name: found[1], labels: map[string]string{}, value: value, kind: kind}
		for _, label := range oneLabel.FindAllStringSubmatch(found[2], -1) {
			s.labels[label[1]] = label[2]
		}
		all = append(all, s)
	}
	return all
}

// shown is what there is at /metrics: the values of each label, by the name of the metric.
type shown map[string]map[string]map[string]bool

func (s shown) add(page []sample) {
	for _, m := range page {
		if s[m.name] == nil {
			s[m.name] = map[string]map[string]bool{}
		}
		for label, value := range m.labels {
			if s[m.name][label] == nil {
				s[m.name][label] = map[string]bool{}
			}
			s[m.name][label][value] = true
		}
	}
}

var (
	selector  = regexp.MustCompile(`\b((?:belfry|process|go|up)(?:_[a-z0-9_]+)?)\b(?:\{([^}]*)\})?`)
	matcher   = regexp.MustCompile(`([a-z_]+)(=~|=|!=|!~)"([^"]*)"`)
	groupedBy = regexp.MustCompile(`\b(?:by|on) \(([^)]*)\)`)
)

// check returns what an expression names that there is not. Labels that Prometheus adds are there.
func (s shown) check(expr string) (flaws []string) {
	labels := map[string]bool{"job": true, "instance": true}
	for _, found := range selector.FindAllStringSubmatch(expr, -1) {
		name := found[1]
		if name != "up" && s[name] == nil {
			flaws = append(flaws, "there is no metric "+name)
			continue
		}
		for label := range s[name] {
			labels[label] = true
		}
		for _, m := range matcher.FindAllStringSubmatch(found[2], -1) {
			label, value := m[1], m[3]
			if label == "job" || label == "instance" || strings.HasPrefix(value, "$") {
				continue
			}
			for word := range strings.SplitSeq(value, "|") {
				if !s[name][label][word] {
					flaws = append(flaws, fmt.Sprintf("%s is never with %s=%q", name, label, word))
				}
			}
		}
	}
	for _, found := range groupedBy.FindAllStringSubmatch(expr, -1) {
		for label := range strings.SplitSeq(found[1], ",") {
			if label = strings.TrimSpace(label); !labels[label] {
				flaws = append(flaws, fmt.Sprintf("nothing has the label %s", label))
			}
		}
	}
	return flaws
}

// rule is an alert.
type rule struct {
	Alert, Expr string
	Annotations struct {
		Summary string
		Runbook string `yaml:"runbook_url"`
	}
}

// alertRules reads deploy/prometheus/rules.yaml.
func alertRules(t *testing.T) []rule {
	t.Helper()
	var file struct {
		Groups []struct{ Rules []rule }
	}
	if err := yaml.Unmarshal(deployed(t, "deploy", "prometheus", "rules.yaml"), &file); err != nil {
		t.Fatal(err)
	}
	return file.Groups[0].Rules
}

// dashboardExprs returns the expressions of deploy/grafana/belfry.json, by their panels.
func dashboardExprs(t *testing.T) map[string][]string {
	t.Helper()
	var board struct {
		Panels []struct {
			Type, Title string
			Targets     []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(deployed(t, "deploy", "grafana", "belfry.json"), &board); err != nil {
		t.Fatal(err)
	}
	exprs, rows := map[string][]string{}, []string{}
	for _, p := range board.Panels {
		if p.Type == "row" {
			rows = append(rows, p.Title)
		} else if len(p.Targets) == 0 {
			t.Errorf("the panel %s shows nothing", p.Title)
		}
		for _, target := range p.Targets {
			exprs[p.Title] = append(exprs[p.Title], target.Expr)
		}
	}
	want := []string{"Overview", "Queues", "Lateness", "Workers", "Schedules and keys", "Raft", "Host"}
	if !slices.Equal(rows, want) {
		t.Errorf("the rows are %q, want %q", rows, want)
	}
	return exprs
}

// TestRulesAndDashboardNameWhatThereIs: metrics, labels and the values of labels are those that
// real nodes show.
func TestRulesAndDashboardNameWhatThereIs(t *testing.T) {
	t.Parallel()
	there := shown{}
	there.add(mirrorMetrics(t))
	host, sys := testHost(), cli.NewSystem()
	cfg := host.OwnServer(t.TempDir())
	cfg.NodeID, cfg.TLS = "n1", endingSoon(t, 24*time.Hour)
	alone, err := server.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	there.add(samplesOf(t, call(t, alone, "metrics", "")))
	there.add(afterRecovery(t, sys, alone, cfg))
	err = host.WithTrio(t.Context(), func(int, int) {}, func(three *local.Trio) error {
		deliver := func() {
			held := call(t, three.Servers[0], "v1/reserve", `{"queues":["orders"],"wait":"20s"}`)
			call(t, three.Servers[0], "v1/ack", fmt.Sprintf(`{"lease":%q}`, oneLease.FindStringSubmatch(held)[1]))
			call(t, three.Servers[0], "v1/put", `{"queue":"orders","text":"x"}`)
		}
		call(t, three.Servers[0], "v1/put", `{"queue":"orders","text":"x"}`)
		call(t, three.Servers[0], "v1/put", `{"queue":"orders","text":"x","delay":"1h"}`)
		call(t, three.Servers[0], "v1/create-queue", `{"queue":"rests","settings":{"paused":true}}`)
		call(t, three.Servers[0], "v1/put-schedule", `{"queue":"orders","name":"s","spec":{"every":"86400s"}}`)
		call(t, three.Servers[0], "v1/set-namespace", `{"name":"shop","maxJobs":10}`)
		if code := run(t.Context(), sys,
			[]string{"backup", filepath.Join(t.TempDir(), "b"), "--server", three.Servers[0].URL()}); code != 0 {
			return fmt.Errorf("a backup ended with %d", code)
		}
		awaited := []string{
			"belfry_clock_offset_seconds", "belfry_delivery_lateness_seconds_bucket", "belfry_job_attempts_bucket",
			"belfry_job_e2e_seconds_bucket",
			"belfry_namespace_used", "belfry_queue_paused", "belfry_schedule_next_timestamp_seconds",
		}
		await(t, "what comes with time and with jobs", func() bool {
			deliver() // each time: a leader that takes over has measured none
			for _, s := range three.Servers {
				there.add(samplesOf(t, call(t, s, "metrics", "")))
			}
			return !slices.ContainsFunc(awaited, func(name string) bool { return there[name] == nil })
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range alertRules(t) {
		for _, flaw := range there.check(r.Expr) {
			t.Errorf("%s: %s", r.Alert, flaw)
		}
	}
	for panel, exprs := range dashboardExprs(t) {
		for _, expr := range exprs {
			for _, flaw := range there.check(expr) {
				t.Errorf("%s: %s", panel, flaw)
			}
		}
	}
	for _, bad := range []string{"belfry_nothing", `sum(belfry_jobs{state="asleep"})`, "sum by (shards) (belfry_jobs)",
		`belfry_jobs{status="ready"}`, "rate(belfry_shard_commit_duration_seconds[5m])"} {
		if len(there.check(bad)) != 1 {
			t.Errorf("%s is taken: %v", bad, there.check(bad))
		}
	}
}

// afterRecovery returns what a server shows that is stopped, recovered and started again: a
// recovery leaves a snapshot of each shard, which a server takes by itself only after much more
// than a test puts.
func afterRecovery(t *testing.T, sys *cli.System, s *server.Server, cfg server.Config) []sample {
	t.Helper()
	id := s.Status().ClusterID
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if code := run(t.Context(), sys, []string{"recover", "--data", cfg.Dir, "--confirm", id}); code != 0 {
		t.Fatalf("a recovery ended with %d", code)
	}
	s, err := server.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	page := samplesOf(t, call(t, s, "metrics", ""))
	if err := s.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	return page
}

// TestDashboardIsReadable: promtool takes its expressions, with values for the variables.
func TestDashboardIsReadable(t *testing.T) {
	t.Parallel()
	fill := strings.NewReplacer("$__rate_interval", "5m", "$cluster", "belfry", "$queue", "orders")
	var rules []map[string]string
	for _, exprs := range dashboardExprs(t) {
		for _, expr := range exprs {
			rules = append(rules, map[string]string{"record": fmt.Sprintf("panel:%d", len(rules)), "expr": fill.Replace(expr)})
		}
	}
	text, err := yaml.Marshal(map[string]any{"groups": []map[string]any{{"name": "dashboard", "rules": rules}}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "dashboard.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if said, err := exec.CommandContext(t.Context(), "promtool", "check", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("%s", said)
	}
}

// TestEveryAlertHasARunbook of the name that its link has, each runbook an alert, and its commands
// are those that there are.
func TestEveryAlertHasARunbook(t *testing.T) {
	text := string(deployed(t, "deploy", "prometheus", "RUNBOOKS.md"))
	runbooks := map[string]bool{}
	for line := range strings.Lines(text) {
		if title, ok := strings.CutPrefix(line, "## "); ok {
			runbooks[strings.TrimSpace(title)] = true
		}
		words := strings.Fields(line)
		if !strings.HasPrefix(line, "    belfry ") {
			continue
		}
		if _, _, err := parsed(words[1:]); err != nil && !strings.Contains(err.Error(), "what is") {
			t.Errorf("%s: %v", line, err)
		}
	}
	alerts := map[string]bool{}
	for _, r := range alertRules(t) {
		alerts[r.Alert] = true
		if !strings.HasSuffix(r.Annotations.Runbook, "/deploy/prometheus/RUNBOOKS.md#"+strings.ToLower(r.Alert)) ||
			r.Annotations.Summary == "" {
			t.Errorf("%s: %+v", r.Alert, r.Annotations)
		}
	}
	if !maps.Equal(alerts, runbooks) {
		t.Errorf("the alerts are %v, the runbooks %v", slices.Sorted(maps.Keys(alerts)), slices.Sorted(maps.Keys(runbooks)))
	}
	for alert := range alerts {
		for _, way := range []string{" fires\n", " is quiet\n"} {
			if !strings.Contains(string(deployed(t, "deploy", "prometheus", "rules_test.yaml")), "- name: "+alert+way) {
				t.Errorf("nothing shows that %s%s", alert, way)
			}
		}
	}
}
