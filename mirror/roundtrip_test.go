package mirror_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/client/belfrytest"
	"github.com/belfrydb/belfry/mirror"
	"github.com/belfrydb/belfry/mirror/redisson"
	"github.com/belfrydb/belfry/mirror/redistest"
	"github.com/belfrydb/belfry/mirror/redistest/redissontest"
)

// entries are what Redisson's timer has: scores by member.
func entries(t *testing.T, r *redis.Client, queue string) map[string]string {
	t.Helper()
	return scores(t, r, redisson.KeysOf(queue).Timer)
}

// scores are those of a sorted set, by member.
func scores(t *testing.T, r *redis.Client, key string) map[string]string {
	t.Helper()
	all, err := r.Do(t.Context(), "ZRANGE", key, 0, -1, "WITHSCORES").Slice()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, one := range all {
		pair, ok := one.([]any)
		if !ok || len(pair) != 2 {
			t.Fatalf("an entry is %v", one)
		}
		found[fmt.Sprint(pair[0])] = fmt.Sprint(pair[1])
	}
	return found
}

// TestRoundTrip brings entries of both formats over and back: the same members with the same due
// times, in the timer and in the list.
func TestRoundTrip(t *testing.T) {
	for _, generation := range []redissontest.Generation{redissontest.OldGeneration, redissontest.NewGeneration} {
		t.Run(fmt.Sprint(generation), func(t *testing.T) {
			r, c := redistest.Start(t), belfrytest.Start(t).Client(t)
			app := redissontest.New(r.Client(), "orders", generation, time.Now)
			due := time.Now().Add(time.Hour).Truncate(time.Millisecond)
			for n := range 1200 {
				if err := app.Offer(t.Context(), fmt.Appendf(nil, "order %d", n),
					due.Add(time.Duration(n%7)*time.Second)); err != nil {
					t.Fatal(err)
				}
			}
			before := entries(t, r.Client(), "orders")
			counts, err := mirror.Import(t.Context(), r.Client(), c, mirror.ImportOptions{RedisQueue: "orders", Share: 1})
			if err != nil {
				t.Fatal(err)
			}
			if counts.Acked != 1200 || counts.Committed != 1200 || counts.Repeated != 0 || counts.Total != 1200 {
				t.Errorf("the import counted %+v", counts)
			}
			if left := entries(t, r.Client(), "orders"); len(left) > 0 {
				t.Errorf("%d entries are left in Redis", len(left))
			}
			if n := delayed(t, c, "orders"); n != 1200 {
				t.Errorf("Belfry has %d jobs", n)
			}
			back, err := mirror.Export(t.Context(), r.Client(), c, mirror.ExportOptions{RedisQueue: "orders", Share: 1})
			if err != nil {
				t.Fatal(err)
			}
			if back.Returned != 1200 || back.Original != 1200 || back.There != 0 || back.Reduced != 0 {
				t.Errorf("the export counted %+v", back)
			}
			after := entries(t, r.Client(), "orders")
			if !maps.Equal(before, after) {
				t.Errorf("%d entries came, %d went back, and they are not the same", len(before), len(after))
			}
			if n := delayed(t, c, "orders"); n != 0 {
				t.Errorf("Belfry still has %d jobs", n)
			}
			places, err := r.Client().LRange(t.Context(), "redisson_delay_queue:{orders}", 0, -1).Result()
			if err != nil {
				t.Fatal(err)
			}
			slices.Sort(places)
			if want := slices.Sorted(maps.Keys(before)); !slices.Equal(places, want) {
				t.Errorf("the list has %d places, and not those of the timer", len(places))
			}
			again, err := mirror.Import(t.Context(), r.Client(), c, mirror.ImportOptions{RedisQueue: "orders", Share: 1})
			if err != nil || again.Committed != 1200 || again.Repeated != 0 {
				t.Errorf("the second import counted %+v, error %v", again, err)
			}
		})
	}
}

// delayed is how many delayed jobs a queue has.
func delayed(t *testing.T, c *client.Client, queue string) int {
	t.Helper()
	q, err := c.Admin().Queue(context.WithoutCancel(t.Context()), queue)
	if err != nil {
		t.Fatal(err)
	}
	return q.Delayed
}
