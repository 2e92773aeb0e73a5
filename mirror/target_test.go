package mirror

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/redis/go-redis/v9"

	"github.com/belfrydb/belfry/client/belfrytest"
	"github.com/belfrydb/belfry/mirror/pair"
	"github.com/belfrydb/belfry/mirror/redistest"
	"github.com/belfrydb/belfry/mirror/redistest/redissontest"
)

// TestRehearse says what there is of the queue of Belfry at each stage of a migration, and makes
// none.
func TestRehearse(t *testing.T) {
	r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
	app := redissontest.New(r, "orders", redissontest.NewGeneration, time.Now)
	if err := app.Offer(t.Context(), []byte("a"), time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if err := r.RPush(t.Context(), "orders", "due").Err(); err != nil {
		t.Fatal(err)
	}
	const takenBack, paused, held = "were taken back", "is paused", "another process mirrors"
	look := func(stage string, want Target, would string, warned ...string) {
		t.Helper()
		found, err := Rehearse(t.Context(), r, c, ImportOptions{RedisQueue: "orders"})
		if err != nil {
			t.Fatal(err)
		}
		want.Queue = "orders"
		if diff := cmp.Diff(&want, found.Target, cmpopts.IgnoreFields(Target{}, "HeldUntil")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", stage, diff)
		}
		for _, text := range []string{takenBack, paused, held} {
			if got := slices.ContainsFunc(found.Warnings, func(w string) bool {
				return strings.Contains(w,
					text)
			}); got != slices.Contains(warned, text) {
				t.Errorf("%s: it warned %q", stage, found.Warnings)
			}
		}
		if got := strings.Join(found.Would, "; "); got != would {
			t.Errorf("%s: it would %s", stage, got)
		}
	}
	const one, none = "bring over 1 entries; leave the 1 on the ready list to Redisson's consumers; with --ready take " +
		"them", "bring over 0 entries; leave the 1 on the ready list to Redisson's consumers; with --ready take them"
	look("before", Target{Epoch: 1}, one)
	if _, err := c.Admin().Queue(t.Context(), "orders"); !pair.IsGone(err) {
		t.Errorf("it made the queue: %v", err)
	}
	if _, err := Import(t.Context(), r, c, ImportOptions{RedisQueue: "orders"}); err != nil {
		t.Fatal(err)
	}
	there := Target{Exists: true, Delayed: 1, DedupForever: true, Epoch: 1}
	look("imported", there, none)
	withLink(t, r, c, func(context.Context, *link) error {
		look("held", there, none, held)
		return nil
	})
	if _, err := Rollback(t.Context(), r, c, ExportOptions{RedisQueue: "orders"}); err != nil {
		t.Fatal(err)
	}
	look("rolled back", Target{Exists: true, Paused: true, DedupForever: true, Epoch: 2, TakenBack: true}, one,
		takenBack, paused)
	if err := r.ZAdd(t.Context(), timerKey, redis.Z{Member: "short", Score: 1}).Err(); err != nil {
		t.Fatal(err)
	}
	if err := r.RPush(t.Context(), listKey, "orphan").Err(); err != nil {
		t.Fatal(err)
	}
	look("with what does not fit", Target{Exists: true, Paused: true, DedupForever: true, Epoch: 2, TakenBack: true},
		"refuse to begin; with --set-aside bring over 1 entries and set 1 aside; set 1 orphans aside; leave the 1 on the "+
			"ready list to Redisson's consumers; with --ready take them", takenBack, paused)
}
