package bench_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/belfrydb/belfry/cmd/belfry/bench"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
)

// queuesOf returns how many queues a server has, and how many jobs are in them.
func queuesOf(t *testing.T, url string) (queues, jobs int) {
	t.Helper()
	admin := belfryv1connect.NewAdminServiceClient(http.DefaultClient, url)
	all, err := admin.ListQueues(t.Context(), &belfryv1.ListQueuesRequest{Prefix: "bench/"})
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range all.Queues {
		c := q.Counts
		jobs += int(c.GetDelayed() + c.GetReady() + c.GetReserved() + c.GetDead())
	}
	return len(all.Queues), jobs
}

// TestNothingStays looks at the server after each workload: its queues are gone, unless they are to
// be kept.
func TestNothingStays(t *testing.T) {
	url := startServer(t)
	for _, w := range bench.Workloads() {
		if _, err := bench.Run(t.Context(), small(w[0], url)); err != nil {
			t.Fatalf("%s: %v", w[0], err)
		}
		if queues, jobs := queuesOf(t, url); queues != 0 {
			t.Errorf("%s left %d queues with %d jobs", w[0], queues, jobs)
		}
	}
	kept := small("pending", url)
	kept.Keep = true
	if _, err := bench.Run(t.Context(), kept); err != nil {
		t.Fatal(err)
	}
	if queues, jobs := queuesOf(t, url); queues != 2 || jobs != 200 {
		t.Errorf("to be kept were 2 queues with 200 jobs, and there are %d with %d", queues, jobs)
	}
}

// TestNothingStaysOfABrokenRun breaks a run in its middle, and interrupts one whose puts are on
// their way.
func TestNothingStaysOfABrokenRun(t *testing.T) {
	url := brokenServer(t, belfryv1connect.QueueServicePutBatchProcedure, 4)
	cfg := small("pending", url)
	cfg.Jobs = 10_000
	if results, err := bench.Run(t.Context(), cfg); err == nil || results[0].Jobs == 0 {
		t.Fatalf("%+v, %v; want jobs and an error", results, err)
	}
	if queues, jobs := queuesOf(t, url); queues != 0 {
		t.Errorf("a broken run left %d queues with %d jobs", queues, jobs)
	}

	url = startServer(t)
	for _, workload := range []string{"put", "batch", "sdk", "e2e"} {
		ctx, cancel := context.WithCancel(t.Context())
		cfg = small(workload, url)
		cfg.Jobs, cfg.RatePerSecond = 100_000_000, 5000
		ended := make(chan error, 1)
		go func() {
			_, err := bench.Run(ctx, cfg)
			ended <- err
		}()
		for queues, jobs := 0, 0; queues < 2 || jobs == 0 && workload != "e2e"; {
			queues, jobs = queuesOf(t, url)
		}
		cancel()
		if err := <-ended; err == nil {
			t.Errorf("%s: an interrupted run ended without an error", workload)
		}
		if queues, jobs := queuesOf(t, url); queues != 0 {
			t.Errorf("%s: an interrupted run left %d queues with %d jobs", workload, queues, jobs)
		}
	}
}

// TestOfferedRate says at which rate jobs were put, and that they did not arrive at one which no
// server reaches.
func TestOfferedRate(t *testing.T) {
	cfg := small("e2e", startServer(t))
	cfg.Jobs, cfg.RatePerSecond = 10_000, 1e9
	results, err := bench.Run(t.Context(), cfg)
	if err != nil || len(results) != 2 || results[1].OfferedPerSecond != 1e9 || !results[1].Saturated ||
		results[1].Jobs != cfg.Jobs {
		t.Errorf("got %+v, %v; want all jobs, and that it was saturated", results, err)
	}
}
