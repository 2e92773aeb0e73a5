package rpc

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/node/clock"
	"github.com/belfrydb/belfry/rpc/backend"
	"github.com/belfrydb/belfry/rpc/backend/backendtest"
	"github.com/belfrydb/belfry/rpc/metrics"
)

func TestMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	s := serve(t, func(c *Config) { c.Registry = registry })
	s.post("/v1/put", `{"queue":"a","delay":"1h"}`)
	s.post("/v1/put", `{"queue":"a"}`)
	s.post("/v1/put", `{"queue":"a","delay":"-1s"}`)
	got := s.send("GET", "/metrics", "")
	if problems, err := promlint.New(strings.NewReader(got.body)).Lint(); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
	for _, want := range []string{
		`belfry_rpc_duration_seconds_count{code="ok",procedure="/belfry.v1.QueueService/Put"} 2`,
		`belfry_rpc_duration_seconds_count{code="invalid_argument",procedure="/belfry.v1.QueueService/Put"} 1`,
		`queue="a",shard="`, `state="delayed"} 1`, `state="ready"} 1`, `belfry_shard_leading{shard="2"} 1`,
		`belfry_disk_free_bytes`, `belfry_peer_changed_total 0`,
		`belfry_node_info{cluster_id="c1",node="n1"} 1`,
	} {
		if !strings.Contains(got.body, want) {
			t.Errorf("%s is not in the metrics", want)
		}
	}
	if err := registry.Register(metrics.NewNodeCollector(s.node, func() int { return 1 }, "")); err == nil {
		t.Error("the node's metrics were not registered")
	}
}

// inodesNode is on a file system with a fixed number of inodes.
type inodesNode struct{ *backendtest.Node }

func (n inodesNode) Status() node.Status {
	st := n.Node.Status()
	st.DiskFreeInodes, st.DiskLowInodes = 900, 1024
	return st
}

// TestInodesAreMeasured where there is a fixed number of them.
func TestInodesAreMeasured(t *testing.T) {
	if page := scrape(t, inodesNode{backendtest.NewNode(1)}, 0); !strings.Contains(page,
		"belfry_disk_free_inodes 900\n") ||
		!strings.Contains(page, "belfry_disk_low_water_inodes 1024\n") {
		t.Errorf("the page has:\n%s", page)
	}
	if page := scrape(t, backendtest.NewNode(1), 0); strings.Contains(page, "inodes") {
		t.Errorf("without such a number the page has:\n%s", page)
	}
}

// scrape returns the page of metrics of a node of which so many queues have series of their own.
func scrape(t *testing.T, n backend.Node, queuesMax int) string {
	t.Helper()
	server, err := newTestServer(Config{
		Node: n, Catalog: backendtest.NewCatalog(), Logger: slog.New(slog.DiscardHandler),
		Registry: prometheus.NewPedanticRegistry(), MetricsQueuesMax: queuesMax,
	})
	if err != nil {
		t.Fatal(err)
	}
	out := httptest.NewRecorder()
	server.Handler().ServeHTTP(out, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	if problems, err := promlint.New(bytes.NewReader(out.Body.Bytes())).Lint(); err != nil || len(problems) > 0 ||
		out.Code != http.StatusOK {
		t.Errorf("%d, %v, %v", out.Code, problems, err)
	}
	return out.Body.String()
}

// expectMetrics compares the samples of the families that want has with it.
func expectMetrics(t *testing.T, page, want string) {
	t.Helper()
	families := map[string]bool{}
	family := func(line string) string {
		name, _, _ := strings.Cut(line, "{")
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			name = strings.TrimSuffix(name, suffix)
		}
		return name
	}
	for line := range strings.Lines(want) {
		families[family(line)] = true
	}
	var got strings.Builder
	for line := range strings.Lines(page) {
		if families[family(line)] {
			got.WriteString(line)
		}
	}
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestMetricsOfManyQueuesAreBounded: queues beyond the bound of the node share series, one for each
// shard; the oldest keep theirs.
func TestMetricsOfManyQueuesAreBounded(t *testing.T) {
	n := backendtest.NewNode(2)
	n.AddQueues(t, 1, "z", "y", "x", "w", "b", "a")
	n.AddQueues(t, 1, "a")
	n.AddQueues(t, 1, "_other") // a name that a queue may have
	late := node.Histogram{Bounds: []float64{.5}, Counts: []uint64{2, 1}, Sum: 3, Count: 3}
	n.QueueStats = map[uint32]map[string]node.QueueStats{
		0: {
			"b": {LatenessSeconds: late, Waiting: 1}, "a": {LatenessSeconds: late, Waiting: 2}, "never made": {Waiting: 4},
			node.OtherQueues: {LatenessSeconds: late},
		},
		1: {
			"y": {LatenessSeconds: late, Waiting: 8}, "w": {JobSeconds: late, Attempts: late},
			"never made": {JobSeconds: late, Attempts: late},
		},
	}
	expectMetrics(t, scrape(t, n, 3), `belfry_delivery_lateness_seconds_bucket{queue="y",shard="1",le="0.5"} 2
belfry_delivery_lateness_seconds_bucket{queue="y",shard="1",le="+Inf"} 3
belfry_delivery_lateness_seconds_sum{queue="y",shard="1"} 3
belfry_delivery_lateness_seconds_count{queue="y",shard="1"} 3
belfry_delivery_lateness_seconds_bucket{queue="_other",shard="0",le="0.5"} 6
belfry_delivery_lateness_seconds_bucket{queue="_other",shard="0",le="+Inf"} 9
belfry_delivery_lateness_seconds_sum{queue="_other",shard="0"} 9
belfry_delivery_lateness_seconds_count{queue="_other",shard="0"} 9
belfry_job_attempts_bucket{queue="w",shard="1",le="0.5"} 2
belfry_job_attempts_bucket{queue="w",shard="1",le="+Inf"} 3
belfry_job_attempts_sum{queue="w",shard="1"} 3
belfry_job_attempts_count{queue="w",shard="1"} 3
belfry_job_attempts_bucket{queue="_other",shard="1",le="0.5"} 2
belfry_job_attempts_bucket{queue="_other",shard="1",le="+Inf"} 3
belfry_job_attempts_sum{queue="_other",shard="1"} 3
belfry_job_attempts_count{queue="_other",shard="1"} 3
belfry_job_e2e_seconds_bucket{queue="w",shard="1",le="0.5"} 2
belfry_job_e2e_seconds_bucket{queue="w",shard="1",le="+Inf"} 3
belfry_job_e2e_seconds_sum{queue="w",shard="1"} 3
belfry_job_e2e_seconds_count{queue="w",shard="1"} 3
belfry_job_e2e_seconds_bucket{queue="_other",shard="1",le="0.5"} 2
belfry_job_e2e_seconds_bucket{queue="_other",shard="1",le="+Inf"} 3
belfry_job_e2e_seconds_sum{queue="_other",shard="1"} 3
belfry_job_e2e_seconds_count{queue="_other",shard="1"} 3
belfry_queue_bytes{queue="w",shard="1"} 4
belfry_queue_bytes{queue="y",shard="1"} 4
belfry_queue_bytes{queue="z",shard="0"} 4
belfry_queue_bytes{queue="_other",shard="0"} 16
belfry_queue_bytes{queue="_other",shard="1"} 4
belfry_queue_waiting_reservers{queue="w",shard="1"} 0
belfry_queue_waiting_reservers{queue="y",shard="1"} 8
belfry_queue_waiting_reservers{queue="z",shard="0"} 0
belfry_queue_waiting_reservers{queue="_other",shard="0"} 7
belfry_queue_waiting_reservers{queue="_other",shard="1"} 0
`)
}

// TestMetricsOfQueuesAreTheLeaders: two nodes that both have a shard do not both show its jobs.
func TestMetricsOfQueuesAreTheLeaders(t *testing.T) {
	n := backendtest.NewNode(2)
	n.AddQueues(t, 1, "led", "followed")
	n.ChangeStatus(func(s *node.Status) { s.Shards[1].Serving, s.Shards[1].Leader = false, "" })
	expectMetrics(t, scrape(t, n, 3), `belfry_shard_has_leader{shard="0"} 1
belfry_shard_has_leader{shard="1"} 0
belfry_shard_voters_wanted{shard="0"} 1
belfry_queue_bytes{queue="led",shard="0"} 4
`)
}

// statsNode is a backendtest.Node that tells of other nodes too.
type statsNode struct {
	*backendtest.Node
	clocks    []clock.PeerOffset
	followers []node.FollowerStats
	snapshot  node.SnapshotStats // of shard 0
	change    func(*node.ShardStats)
}

func (n *statsNode) Stats() node.Stats {
	out := n.Node.Stats()
	out.Clocks, out.Shards[0].Followers, out.Shards[0].Snapshot = n.clocks, n.followers, n.snapshot
	if n.change != nil {
		n.change(&out.Shards[0])
	}
	return out
}

// TestMetricsOfPeers: other nodes go by their names, unless two have one.
func TestMetricsOfPeers(t *testing.T) {
	n := &statsNode{
		Node: backendtest.NewNode(1), clocks: []clock.PeerOffset{{Server: "n2.0a", Ahead: -time.Second}},
		followers: []node.FollowerStats{
			{Server: "n2.0a", Lag: 7, Heard: time.UnixMilli(1500)},
			{Server: "n3.0b", Lag: 8},
			{Server: "n3.0c", Lag: 9},
		},
	}
	expectMetrics(t, scrape(t, n, 1), `belfry_clock_offset_seconds{peer="n2"} -1
belfry_shard_follower_heard_timestamp_seconds{peer="n2",shard="0"} 1.5
belfry_shard_follower_lag_entries{peer="n2",shard="0"} 7
belfry_shard_follower_lag_entries{peer="n3.0b",shard="0"} 8
belfry_shard_follower_lag_entries{peer="n3.0c",shard="0"} 9
`)
}

// TestMetricsOfMemory: what is refused for want of memory can be told apart.
func TestMetricsOfMemory(t *testing.T) {
	for _, tt := range []struct {
		memory node.MemoryStatus
		want   string
	}{
		{node.MemoryStatus{}, "belfry_memory_critical 0\nbelfry_memory_full 0\n"},
		{node.MemoryStatus{Full: true}, "belfry_memory_critical 0\nbelfry_memory_full 1\n"},
		{node.MemoryStatus{Full: true, Critical: true}, "belfry_memory_critical 1\nbelfry_memory_full 1\n"},
	} {
		n := backendtest.NewNode(1)
		n.ChangeStatus(func(s *node.Status) { s.Memory = tt.memory })
		expectMetrics(t, scrape(t, n, 1), tt.want)
	}
}

// TestMetricsOfSnapshots: a start finds when the newest one was written, and not how long it took;
// nothing is said of what never was.
func TestMetricsOfSnapshots(t *testing.T) {
	found := node.SnapshotStats{Index: 9, Bytes: 7, At: time.UnixMilli(1500)}
	taken := found
	taken.Taken, taken.Duration = 1, 2*time.Second
	for _, tt := range []struct {
		name     string
		snapshot node.SnapshotStats
		want     string
	}{
		{"none", node.SnapshotStats{}, ""},
		{"one that the start found", found, "belfry_shard_snapshot_timestamp_seconds{shard=\"0\"} 1.5\n"},
		{"one that was taken", taken,
			"belfry_shard_snapshot_duration_seconds{shard=\"0\"} 2\nbelfry_shard_snapshot_timestamp_seconds{shard=\"0\"} 1.5\n"},
	} {
		var got strings.Builder
		for line := range strings.Lines(scrape(t, &statsNode{Node: backendtest.NewNode(1), snapshot: tt.snapshot}, 1)) {
			if strings.HasPrefix(line, "belfry_shard_snapshot_timestamp") ||
				strings.HasPrefix(line, "belfry_shard_snapshot_duration") {
				got.WriteString(line)
			}
		}
		if diff := cmp.Diff(tt.want, got.String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// TestMetricsOfSchedulesAndKeys: each node says what it dealt with, only the leader what there is.
func TestMetricsOfSchedulesAndKeys(t *testing.T) {
	n := &statsNode{Node: backendtest.NewNode(1), change: func(s *node.ShardStats) {
		s.Leading, s.NextFiring = true, fsm.Time(1500*time.Millisecond)
		s.Fired, s.Missed, s.Skipped, s.Backfilled = 1, 2, 3, 4
		s.FiredLateSeconds = node.Histogram{Bounds: []float64{1}, Counts: []uint64{1, 1}, Sum: 4, Count: 2}
		s.Machine.Schedules, s.Machine.SchedulesPaused, s.Machine.Keys = 5, 6, 20
		s.Machine.KeysBlocked = [fsm.KeyBlocks]int{
			fsm.BlockedByPause: 7, fsm.BlockedByDead: 8, fsm.BlockedByLimit: 9, fsm.BlockedByOrder: 10, fsm.BlockedByRate: 11,
		}
	}}
	of := `belfry_schedule_firings_total{result="backfilled",shard="0"} 4
belfry_schedule_firings_total{result="fired",shard="0"} 1
belfry_schedule_firings_total{result="missed",shard="0"} 2
belfry_schedule_firings_total{result="skipped",shard="0"} 3
belfry_schedule_lateness_seconds_bucket{shard="0",le="1"} 1
belfry_schedule_lateness_seconds_bucket{shard="0",le="+Inf"} 2
belfry_schedule_lateness_seconds_sum{shard="0"} 4
belfry_schedule_lateness_seconds_count{shard="0"} 2
`
	page := scrape(t, n, 1)
	expectMetrics(t, page, `belfry_keys{shard="0"} 20
belfry_keys_blocked{reason="dead",shard="0"} 8
belfry_keys_blocked{reason="limit",shard="0"} 9
belfry_keys_blocked{reason="order",shard="0"} 10
belfry_keys_blocked{reason="pause",shard="0"} 7
belfry_keys_blocked{reason="rate",shard="0"} 11
`+of+`belfry_schedule_next_timestamp_seconds{shard="0"} 1.5
belfry_schedules{shard="0"} 5
belfry_schedules_paused{shard="0"} 6
`)
	change := n.change
	n.change = func(s *node.ShardStats) { change(s); s.Leading = false }
	page = scrape(t, n, 1)
	expectMetrics(t, page, of)
	if strings.Contains(page, "belfry_keys") || strings.Contains(page, "belfry_schedules") ||
		strings.Contains(page, "belfry_schedule_next") {
		t.Error("a follower says what there is")
	}
}

func TestMetricsOfTheBuild(t *testing.T) {
	registry := prometheus.NewRegistry()
	s := serve(t, func(c *Config) { c.Registry, c.Version = registry, "v1.2.3" })
	if got := s.send("GET", "/metrics", "").body; !strings.Contains(got, `belfry_build_info{goversion="go1.`) ||
		!strings.Contains(got, `version="v1.2.3"} 1`) {
		t.Error("the version is not in the metrics")
	}
}

// TestPausedQueuesShow: alerts about jobs that no worker takes leave paused queues out.
func TestPausedQueuesShow(t *testing.T) {
	registry := prometheus.NewRegistry()
	s := serve(t, func(c *Config) { c.Registry = registry })
	s.post("/v1/create-queue", `{"queue":"a","settings":{"paused":true}}`)
	want := fmt.Sprintf("belfry_queue_paused{queue=\"a\",shard=\"%d\"} 1\n", node.ShardOf("a", 0, s.node.ShardCount()))
	if got := s.send("GET", "/metrics", "").body; !strings.Contains(got, want) {
		t.Errorf("%s is not in the metrics", want)
	}
}

// brokenCollector fails.
type brokenCollector struct{}

func (brokenCollector) Describe(chan<- *prometheus.Desc) {}

func (brokenCollector) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.NewInvalidMetric(prometheus.NewInvalidDesc(io.ErrUnexpectedEOF), io.ErrUnexpectedEOF)
}

// TestMetricsPacked: a client that accepts gzip gets everything in it, and an error as a text.
func TestMetricsPacked(t *testing.T) {
	n, registry := backendtest.NewNode(1), prometheus.NewRegistry()
	n.AddQueues(t, 1, "orders")
	server, err := newTestServer(Config{
		Node: n, Catalog: backendtest.NewCatalog(), Logger: slog.New(slog.DiscardHandler), Registry: registry,
	})
	if err != nil {
		t.Fatal(err)
	}
	ask := func() *httptest.ResponseRecorder {
		request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil)
		request.Header.Set("Accept-Encoding", "gzip")
		out := httptest.NewRecorder()
		server.Handler().ServeHTTP(out, request)
		return out
	}
	out := ask()
	unpacked, err := gzip.NewReader(out.Body)
	if err != nil {
		t.Fatal(err)
	}
	page, err := io.ReadAll(unpacked)
	if err != nil || out.Header().Get("Content-Encoding") != "gzip" ||
		!strings.HasPrefix(out.Header().Get("Content-Type"), "text/plain; version=0.0.4") {
		t.Errorf("%v, %v", out.Header(), err)
	}
	for _, want := range []string{"belfry_shard_leading{", `belfry_jobs{queue="orders",shard="0",state="delayed"} 1`,
		`belfry_queue_waiting_reservers{queue="orders",shard="0"} 0`} {
		if !strings.Contains(string(page), want) {
			t.Errorf("%s is not in it", want)
		}
	}
	if err := registry.Register(brokenCollector{}); err != nil {
		t.Fatal(err)
	}
	if out := ask(); out.Code != http.StatusInternalServerError || out.Header().Get("Content-Encoding") != "" ||
		!strings.Contains(out.Body.String(), "unexpected EOF") || strings.Contains(out.Body.String(), "belfry_jobs") {
		t.Errorf("%d %v %.200q", out.Code, out.Header(), out.Body)
	}
}

// BenchmarkMetrics is one scrape, as Prometheus makes it, of a node with 1,000 queues and 1,000,000
// jobs, of which all is measured.
func BenchmarkMetrics(b *testing.B) {
	const shards, queues, jobs = 6, 1000, 1000
	n := backendtest.NewNode(shards)
	n.Now = func() time.Time { return time.Unix(queues, 0) } // all were put, and few are due
	n.QueueStats = map[uint32]map[string]node.QueueStats{}
	late := node.Histogram{
		Bounds: []float64{.001, .005, .01, .05, .1, .5, 1, 5, 30, 300, 3600}, Counts: make([]uint64, 12), Count: 1,
	}
	took := node.Histogram{Bounds: []float64{.1, 1, 10, 60, 600, 3600, 86400, 604800}, Counts: make([]uint64, 9), Count: 1}
	attempts := node.Histogram{Bounds: []float64{1, 2, 3, 5, 16}, Counts: make([]uint64, 6), Count: 1}
	var names []string
	for i := range queues {
		names = append(names, fmt.Sprintf("queue-%04d", i))
		shard := uint32(i % shards)
		if n.QueueStats[shard] == nil {
			n.QueueStats[shard] = map[string]node.QueueStats{}
		}
		n.QueueStats[shard][names[i]] = node.QueueStats{LatenessSeconds: late, JobSeconds: took, Attempts: attempts}
	}
	n.AddQueues(b, jobs, names...)
	server, err := newTestServer(Config{
		Node: n, Catalog: backendtest.NewCatalog(), Logger: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry(),
	})
	if err != nil {
		b.Fatal(err)
	}
	for _, encoding := range []string{"identity", "gzip"} {
		b.Run(encoding, func(b *testing.B) {
			size, began := 0, processorTime(b)
			for b.Loop() {
				request := httptest.NewRequestWithContext(b.Context(), http.MethodGet, "/metrics", nil)
				request.Header.Set("Accept-Encoding", encoding)
				out := httptest.NewRecorder()
				server.Handler().ServeHTTP(out, request)
				body, _ := io.ReadAll(out.Body)
				if out.Code != http.StatusOK || len(body) == 0 {
					b.Fatalf("%d: %.100s", out.Code, body)
				}
				size = len(body)
			}
			b.ReportMetric(float64(size), "bytes")
			if each := (processorTime(b) - began) / time.Duration(b.N); each > 50*time.Millisecond {
				b.Errorf("a scrape takes %v of processor time", each)
			}
		})
	}
}
