package mirror_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belfrydb/belfry/client/belfrytest"
	"github.com/belfrydb/belfry/mirror"
	"github.com/belfrydb/belfry/mirror/redisconn"
	"github.com/belfrydb/belfry/mirror/redistest"
	"github.com/belfrydb/belfry/mirror/redistest/redissontest"
)

// TestRedisCluster finds a queue in a Redis Cluster, brings it over and back.
func TestRedisCluster(t *testing.T) {
	s, c := redistest.Start(t, redistest.WithCluster()), belfrytest.Start(t).Client(t)
	r, err := redisconn.Connect("redis+cluster://" + s.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, ok := r.(*redis.ClusterClient); !ok {
		t.Fatalf("the client is a %T", r)
	}
	app := redissontest.New(s.Client(), "{shop}:orders", redissontest.NewGeneration, time.Now)
	for n := range 700 {
		if err := app.Offer(t.Context(), fmt.Appendf(nil, "order %d", n), time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	before := entries(t, s.Client(), "{shop}:orders")
	if names, err := mirror.FindQueues(t.Context(), r); err != nil || !slices.Equal(names, []string{"{shop}:orders"}) {
		t.Errorf("found %q, %v", names, err)
	}
	counts, err := mirror.Import(t.Context(), r, c, mirror.ImportOptions{RedisQueue: "{shop}:orders", Queue: "orders",
		Share: 1})
	if err != nil || counts.Acked != 700 {
		t.Fatalf("the import counted %+v, %v", counts, err)
	}
	back, err := mirror.Export(t.Context(), r, c, mirror.ExportOptions{RedisQueue: "{shop}:orders", Queue: "orders",
		Share: 1})
	if err != nil || back.Original != 700 {
		t.Fatalf("the export counted %+v, %v", back, err)
	}
	if after := entries(t, s.Client(), "{shop}:orders"); !maps.Equal(before, after) {
		t.Errorf("%d entries came, %d went back, and they are not the same", len(before), len(after))
	}
	_, err = mirror.Import(t.Context(), r, c, mirror.ImportOptions{RedisQueue: "a{b", Queue: "other", Share: 1})
	if err == nil || !strings.Contains(err.Error(), "slot") {
		t.Errorf("a name whose keys are in several slots: %v", err)
	}
}
