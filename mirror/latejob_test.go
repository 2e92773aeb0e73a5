package mirror

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/belfrydb/belfry/client/belfrytest"
	"github.com/belfrydb/belfry/mirror/pair"
	"github.com/belfrydb/belfry/mirror/redisson"
	"github.com/belfrydb/belfry/mirror/redistest"
	"github.com/belfrydb/belfry/mirror/redistest/redissontest"
)

// TestExportLateFormat: jobs that come after the checks of an export, when there was none, say
// their format themselves.
func TestExportLateFormat(t *testing.T) {
	for _, test := range []struct {
		name   string
		came   []redissontest.Generation
		refuse string
	}{
		{"one format", []redissontest.Generation{redissontest.OldGeneration}, ""},
		{"both", []redissontest.Generation{redissontest.OldGeneration, redissontest.NewGeneration}, "--redisson-format"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
			if _, err := c.Admin().CreateQueue(t.Context(), "orders", 1, nil); err != nil {
				t.Fatal(err)
			}
			e := &exporter{link: newLink(r, c, pair.Options{RedisQueue: "orders", Share: 1}), batch: pair.BatchMax}
			if err := e.check(t.Context()); err != nil {
				t.Fatal(err)
			}
			for _, generation := range test.came {
				if err := redissontest.New(r, "orders", generation, time.Now).Offer(t.Context(), []byte("late"),
					time.Now().Add(time.Hour)); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := Import(t.Context(), r, c, ImportOptions{RedisQueue: "orders", Share: 1}); err != nil {
				t.Fatal(err)
			}
			err := e.WithHold(t.Context(), func(ctx context.Context) error {
				if err := e.prepare(ctx); err != nil {
					return err
				}
				return e.run(ctx)
			})
			if test.refuse != "" {
				if err == nil || !strings.Contains(err.Error(), test.refuse) || len(r.ZRange(t.Context(), timerKey, 0,
					-1).Val()) != 0 {
					t.Errorf("it was not refused: %v", err)
				}
				return
			}
			there := r.ZRange(t.Context(), timerKey, 0, -1).Val()
			if err != nil || len(there) != 1 {
				t.Fatalf("Redis has %q, %v", there, err)
			}
			if m, err := redisson.ParseMember([]byte(there[0]), redisson.New); err != nil || m.Generation != redisson.Old {
				t.Errorf("it is in the format %v, %v", m.Generation, err)
			}
		})
	}
}
