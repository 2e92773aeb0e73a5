package main

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/belfrydb/belfry/client/belfrytest"
	"github.com/belfrydb/belfry/mirror"
	"github.com/belfrydb/belfry/mirror/redistest"
	"github.com/belfrydb/belfry/mirror/redistest/redissontest"
)

// TestMirrorMeters: names are as Prometheus wants them, and the lag grows by itself while an entry that is due stays where it is.
func TestMirrorMeters(t *testing.T) {
	t.Parallel()
	meters, registry := newMirrorMeters("none"), prometheus.NewRegistry()
	if err := registry.Register(meters); err != nil {
		t.Fatal(err)
	}
	meters.imported("late", mirror.ImportCounts{Earliest: time.Now().Add(-time.Hour)})
	meters.imported("early", mirror.ImportCounts{Earliest: time.Now().Add(time.Hour)})
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if problems, err := promlint.NewWithMetricFamilies(families).Lint(); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
	lags := map[string]bool{}
	for _, family := range families {
		if family.GetName() == "belfry_mirror_lag_seconds" {
			for _, m := range family.GetMetric() {
				lags[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue() >= 3600
			}
		}
	}
	if len(lags) != 3 || !lags["late"] || lags["early"] || lags["none"] {
		t.Errorf("those that lag are %v", lags)
	}
}

// TestMirrorImportMetrics has an import that follows, and a cut-over, show what they do.
func TestMirrorImportMetrics(t *testing.T) {
	t.Parallel()
	for _, command := range [][]string{{"import", "--follow"}, {"cutover", "--quiet", "1h"}} {
		r, belfry := redistest.Start(t), belfrytest.Start(t)
		app := redissontest.New(r.Client(), "orders", redissontest.NewGeneration, time.Now)
		if err := app.Offer(t.Context(), []byte("order 1"), time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		s, said := newSystem(), &lockedBuffer{}
		s.in, s.out, s.err = strings.NewReader(""), said, said
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan int, 1)
		go func() {
			ended <- run(ctx, s, append([]string{"mirror", command[0], r.URL(), "--queue", "orders", "--server", belfry.URL, "--metrics-listen", "127.0.0.1:0"}, command[1:]...))
		}()
		var address []string
		await(t, "an address", func() bool {
			address = regexp.MustCompile(`http://(127\.0\.0\.1:\d+)/metrics`).FindStringSubmatch(said.String())
			return address != nil
		})
		awaitEvery(t, 20*time.Millisecond, "metrics of one entry", func() bool {
			return strings.Contains(metricsAt(t, address[1]), `belfry_mirror_acked_total{redis_queue="orders"} 1`)
		})
		stop()
		if code := <-ended; code == 0 {
			t.Errorf("%s, interrupted, ended with %d", command[0], code)
		}
	}
}
