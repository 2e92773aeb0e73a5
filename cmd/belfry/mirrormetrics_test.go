package main

import (
	"context"
	"errors"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/belfrydb/belfry/client/belfrytest"
	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/mirror"
	"github.com/belfrydb/belfry/mirror/redistest"
	"github.com/belfrydb/belfry/mirror/redistest/redissontest"
)

// TestMirrorMeters: names are as Prometheus wants them, and the lag grows by itself while an entry
// that is due stays where it is.
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

// TestBridgeThatKeepsEnding is counted. What was left in Redis when it ended is not shown while the
// next one waits for its turn, but when Redis was seen last is.
func TestBridgeThatKeepsEnding(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		meters, registry := newMirrorMeters(), prometheus.NewRegistry()
		if err := registry.Register(meters); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		began, bridges := time.Now(), 0
		keepBridging(ctx, "orders", meters, slog.New(slog.DiscardHandler), func() error {
			if bridges++; bridges <= 3 {
				meters.update("orders", mirror.BridgeCounts{In: mirror.ImportCounts{
					Earliest: began.Add(-time.Hour), Left: 1, TakenBack: true, Looked: began,
				}})
				return errors.New("nothing goes")
			}
			stop()
			return ctx.Err()
		})
		shows := map[string]float64{}
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range families {
			m := family.GetMetric()[0]
			shows[family.GetName()] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
		for name, want := range map[string]float64{
			"ended_total": 3, "lag_seconds": 0, "redis_entries": 0, "taken_back": 0,
			"looked_timestamp_seconds": float64(began.Unix()),
		} {
			if got, ok := shows["belfry_mirror_"+name]; !ok || got != want {
				t.Errorf("%s is %v, want %v", name, got, want)
			}
		}
		if waited := time.Since(began); waited != 3*mirrorRetry {
			t.Errorf("it waited %v in all", waited)
		}
	})
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
		metered(t, append([]string{command[0], r.URL(), "--queue", "orders", "--server", belfry.URL}, command[1:]...),
			func(address string) {
				awaitEvery(t, 20*time.Millisecond, "metrics of one entry", func() bool {
					return strings.Contains(metricsAt(t, address), `belfry_mirror_acked_total{redis_queue="orders"} 1`)
				})
			})
	}
}

// metered runs a mirror command, which goes on until it is interrupted, while work is done with the
// address of its metrics.
func metered(t *testing.T, command []string, work func(address string)) {
	t.Helper()
	s, said := cli.NewSystem(), &lockedBuffer{}
	s.In, s.Out, s.Err = strings.NewReader(""), said, said
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, s, append(append([]string{"mirror"}, command...), "--metrics-listen", "127.0.0.1:0"))
	}()
	var address []string
	await(t, "an address", func() bool {
		address = regexp.MustCompile(`http://(127\.0\.0\.1:\d+)/metrics`).FindStringSubmatch(said.String())
		return address != nil
	})
	work(address[1])
	stop()
	if code := <-ended; code == 0 {
		t.Errorf("%q, interrupted, ended with %d", command, code)
	}
}

// TestMirrorLooksAreShown by every command that looks, whatever the source is. A bridge that leaves
// new entries to Redisson does not look, and does not show that it never did.
func TestMirrorLooksAreShown(t *testing.T) {
	t.Parallel()
	r, belfry := redistest.Start(t), belfrytest.Start(t)
	looked := regexp.MustCompile(`belfry_mirror_looked_timestamp_seconds\{redis_queue="[^"]+"\} (\S+)`)
	for command, looks := range map[string]bool{
		"import --queue orders --follow": true, "import --from lmstfy --queue shop/orders --follow": true,
		"run --queue others --no-in": false,
	} {
		words := strings.Fields(command)
		metered(t, append([]string{words[0], r.URL(), "--server", belfry.URL}, words[1:]...), func(address string) {
			if !looks {
				if page := metricsAt(t, address); looked.MatchString(page) || !strings.Contains(page, "belfry_mirror_rung_total") {
					t.Errorf("%s shows\n%s", command, page)
				}
				return
			}
			awaitEvery(t, 20*time.Millisecond, "a look of "+command, func() bool {
				found := looked.FindStringSubmatch(metricsAt(t, address))
				return found != nil && found[1] != "0"
			})
		})
	}
}
