package bench_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/cmd/belfry/bench"
	"github.com/belfrydb/belfry/cmd/belfry/server"
)

// small returns a configuration that is over soon.
func small(workload, url string) bench.Config {
	return bench.Config{
		URL: url, Workload: workload, Connections: 4, Callers: 8, Batch: 30, Jobs: 200, RatePerSecond: 2000,
		Delay: 100 * time.Millisecond, BodyBytes: 100, Queues: 2,
	}
}

func startServer(t *testing.T) string {
	t.Helper()
	s, err := server.Start(t.Context(), server.Config{
		Dir: t.TempDir(), Listen: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler), Fatal: func(err error) {
			t.Error(err)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return s.URL()
}

// TestWorkloads runs each workload against a real server and looks whether the figures can be true.
func TestWorkloads(t *testing.T) {
	url := startServer(t)
	for workload, phases := range map[string][]string{
		"put": {"put"}, "batch": {"put"}, "sdk": {"put", "reserve+ack"}, "e2e": {"put", "put to arrival"},
		"lateness": {"put", "lateness"},
		"pending":  {"fill"},
	} {
		t.Run(workload, func(t *testing.T) {
			cfg := small(workload, url)
			cfg.Memory, cfg.Collect = bench.OwnMemory, bench.CollectOwn
			results, err := bench.Run(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, r := range results {
				got = append(got, r.Phase)
				l := r.Latency
				if r.Jobs != cfg.Jobs || r.Errors != 0 || r.Early != 0 || r.JobsPerSecond <= 0 || r.Seconds <= 0 {
					t.Errorf("%+v: want %d jobs, no error, none early", r, cfg.Jobs)
				}
				if paced := workload == "e2e" || workload == "lateness"; (r.OfferedPerSecond > 0) != (paced && r.Phase != "put") {
					t.Errorf("%s: %v jobs a second were offered", r.Phase, r.OfferedPerSecond)
				}
				if l.P50 > l.P99 || l.P99 > l.P999 || l.P999 > l.Max || l.Max <= 0 {
					t.Errorf("%s: the percentiles %+v are not in order", r.Phase, l)
				}
			}
			if diff := cmp.Diff(phases, got); diff != "" {
				t.Errorf("phases (-want +got):\n%s", diff)
			}
			if m := results[0].Memory; (workload == "pending") != (m != nil) || m != nil &&
				(m.Filled.ResidentBytes == 0 || m.Settled == nil) {
				t.Errorf("memory: %+v", m)
			}
		})
	}
}

// TestKeys spreads jobs over keys: the queues get their limit, and all jobs come.
func TestKeys(t *testing.T) {
	url := startServer(t)
	for _, workload := range []string{"sdk", "e2e", "lateness"} {
		cfg := small(workload, url)
		cfg.Keys, cfg.Keep = 10, true
		results, err := bench.Run(t.Context(), cfg)
		if err != nil || len(results) != 2 || results[1].Jobs != cfg.Jobs {
			t.Errorf("%s: %+v, %v; want all jobs", workload, results, err)
		}
	}
	c, err := client.New(url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	limited := 0
	for queue, err := range c.Admin().Queues(t.Context(), "bench/") {
		if err != nil {
			t.Fatal(err)
		}
		if got := queue.Settings.KeyConcurrency; got != nil && *got == 1 {
			limited++
		}
	}
	if limited != 6 {
		t.Errorf("%d queues have a limit of keys, want 2 of each workload", limited)
	}
}

// TestDurationEndsAPhase measures by time instead of by jobs.
func TestDurationEndsAPhase(t *testing.T) {
	cfg := small("batch", startServer(t))
	cfg.Jobs, cfg.Duration = 0, time.Second // within which a busy machine begins a call
	results, err := bench.Run(t.Context(), cfg)
	if err != nil || len(results) != 1 || results[0].Jobs == 0 || results[0].Seconds < 1 {
		t.Errorf("got %+v, %v; want some jobs in at least a second", results, err)
	}
}

// TestNoServer finds out before the first job that there is no server to measure.
func TestNoServer(t *testing.T) {
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
	}))
	t.Cleanup(refusing.Close)
	for _, w := range bench.Workloads() {
		if results, err := bench.Run(t.Context(), small(w[0], refusing.URL)); err == nil || len(results) != 0 {
			t.Errorf("%s: %v, %v; want an error", w[0], results, err)
		}
	}
}

// TestRefusedPutsEndARun asks for more than a batch may have.
func TestRefusedPutsEndARun(t *testing.T) {
	cfg := small("batch", startServer(t))
	cfg.Batch, cfg.BodyBytes, cfg.Jobs = 1000, 10_000, 1000
	results, err := bench.Run(t.Context(), cfg)
	if err == nil || !strings.Contains(err.Error(), "putting 1000 jobs") || len(results) != 1 || results[0].Errors != 1 ||
		results[0].Jobs != 0 {
		t.Errorf("got %+v, %v; want one error and what was being done", results, err)
	}
}

func TestInterruptedRun(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, w := range bench.Workloads() {
		if _, err := bench.Run(ctx, small(w[0], startServer(t))); err == nil {
			t.Errorf("%s: no error from a run that was interrupted", w[0])
		}
	}
}

func TestValidate(t *testing.T) {
	if err := small("put", "http://x").Validate(); err != nil {
		t.Errorf("a good configuration: %v", err)
	}
	err := bench.Config{Workload: "putt"}.Validate()
	for _, want := range []string{`no workload "putt"`, "connections", "callers", "a batch",
		"a number of jobs or a duration", "the rate", "a body", "queues"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it: every problem at once", err, want)
		}
	}
}

// figures are results of which every field is set.
func figures() []bench.Result {
	return []bench.Result{
		{
			Workload: "pending", Phase: "fill", Callers: 64, Calls: 10, Jobs: 1000, Errors: 1, Seconds: 2, JobsPerSecond: 500,
			Latency: bench.Percentiles{
				P50: 1500 * time.Microsecond, P90: 2 * time.Millisecond, P99: 3 * time.Millisecond, P999: 4 * time.Millisecond,
				Max: time.Second,
			},
			OfferedPerSecond: 1000, Saturated: true, Early: 2,
			Memory: &bench.MemoryCost{
				Before: bench.Memory{
					ResidentBytes: 1 << 20, HeapBytes: 7,
				}, Filled: bench.Memory{ResidentBytes: 3 << 20}, BytesPerJob: 2097.152,
				Settled: &bench.Memory{ResidentBytes: 2 << 20}, SettledBytesPerJob: 1048.576,
			},
			Collection: &bench.Collection{
				CPU: 10 * time.Millisecond, ProcessCPU: 9 * time.Millisecond, Wall: 12500 * time.Microsecond,
			},
		},
	}
}

func TestWrite(t *testing.T) {
	var out bytes.Buffer
	if err := bench.Write(&out, figures()); err != nil {
		t.Fatal(err)
	}
	want := `WORKLOAD  PHASE  CALLERS  JOBS  JOBS/S  P50 MS  P99 MS  P99.9 MS  MAX MS    ERRORS
pending   fill   64       1000  500     1.500   3.000   4.000     1000.000  1
fill: offered 1000 jobs a second, achieved 500; ` +
		`SATURATED: the jobs did not arrive at the offered rate, ` +
		`so these are the latencies of a backlog; lower --rate or raise --callers
resident memory: 1.0 MiB before, 3.0 MiB filled: 2097.2 bytes per pending job
after a collection, and with unused memory given back: 2.0 MiB: 1048.6 bytes per pending job
one cycle of the garbage collector: 10.0 ms of processor time by the runtime's count, 9.0 ms by the system's, in 12.5 ms
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}

func TestJSON(t *testing.T) {
	text, err := json.Marshal(figures())
	if err != nil {
		t.Fatal(err)
	}
	want := `[{"workload":"pending","phase":"fill","callers":64,"calls":10,"jobs":1000,"errors":1,"seconds":2,` +
		`"jobsPerSecond":500,"latency":{"p50Ms":1.5,"p90Ms":2,"p99Ms":3,"p999Ms":4,"maxMs":1000},` +
		`"offeredPerSecond":1000,"saturated":true,"early":2,` +
		`"memory":{"before":{"residentBytes":1048576,"heapBytes":7},"filled":{"residentBytes":3145728,"heapBytes":0},` +
		`"bytesPerJob":2097.152,"settled":{"residentBytes":2097152,"heapBytes":0},"settledBytesPerJob":1048.576},` +
		`"collection":{"cpuMs":10,"processCpuMs":9,"wallMs":12.5}}]`
	if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Errorf("JSON (-want +got):\n%s", diff)
	}
}

func TestServerMemory(t *testing.T) {
	page := "# HELP x y\nprocess_resident_memory_bytes 1.5e+06\ngo_memstats_heap_alloc_bytes 12\n"
	fake := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Write([]byte(page)) //nolint:errcheck // the reader sees
	}))
	t.Cleanup(fake.Close)
	got, err := bench.ServerMemory(fake.Client(), fake.URL)(t.Context())
	if want := (bench.Memory{ResidentBytes: 1500000, HeapBytes: 12}); err != nil || got != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	page = "other 1\n"
	if _, err := bench.ServerMemory(fake.Client(), fake.URL)(t.Context()); err == nil {
		t.Error("a page without the figure gave no error")
	}
	ofServer, err := bench.ServerMemory(http.DefaultClient, startServer(t))(t.Context())
	if err != nil || ofServer.ResidentBytes < 1<<20 {
		t.Errorf("of a real server: %+v, %v", ofServer, err)
	}
}
