package bridge

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/belfrydb/belfry/cluster/placement"
	"github.com/belfrydb/belfry/mirror"
)

// TestMirrorMeters: names are as Prometheus wants them, and the lag grows by itself while an entry
// that is due stays where it is.
func TestMirrorMeters(t *testing.T) {
	t.Parallel()
	meters, registry := NewMeters("none"), prometheus.NewRegistry()
	if err := registry.Register(meters); err != nil {
		t.Fatal(err)
	}
	meters.Imported("late", mirror.ImportCounts{Earliest: time.Now().Add(-time.Hour)})
	meters.Imported("early", mirror.ImportCounts{Earliest: time.Now().Add(time.Hour)})
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
		meters, registry := NewMeters(), prometheus.NewRegistry()
		if err := registry.Register(meters); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		began, bridges := time.Now(), 0
		keepBridging(ctx, "orders", meters, slog.New(slog.DiscardHandler), func() error {
			if bridges++; bridges <= 3 {
				meters.Update("orders", mirror.BridgeCounts{In: mirror.ImportCounts{
					Earliest: began.Add(-time.Hour), Left: 1, TakenBack: true, Looked: began,
				}})
				return errors.New("nothing goes")
			}
			stop()
			return ctx.Err()
		})
		meters.wait("orders", errors.New("another one has it"))
		want := []placement.MirroredQueue{{RedisQueue: "orders", Queue: "shop/orders", Waits: "another one has it", Failed: 3,
			Looked: began}}
		meters.serve([]mirror.BridgeOptions{{RedisQueue: "orders", Queue: "shop/orders"}})
		if got := meters.Mirrored(); !slices.Equal(got, want) {
			t.Errorf("the status is %+v, want %+v", got, want)
		}
		meters.Update("orders", mirror.BridgeCounts{Out: 7})
		want[0].Waits, want[0].Delivered = "", 7
		if got := meters.Mirrored(); !slices.Equal(got, want) {
			t.Errorf("once it works the status is %+v, want %+v", got, want)
		}
		meters.Update("orders", mirror.BridgeCounts{})
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
		if waited := time.Since(began); waited != 3*retryAfter {
			t.Errorf("it waited %v in all", waited)
		}
	})
}
