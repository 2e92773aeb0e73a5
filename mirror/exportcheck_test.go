package mirror_test

import (
	"testing"
	"time"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/client/belfrytest"
	"github.com/belfrydb/belfry/mirror"
	"github.com/belfrydb/belfry/mirror/redisson"
	"github.com/belfrydb/belfry/mirror/redistest"
	"github.com/belfrydb/belfry/mirror/redistest/redissontest"
)

// TestExportNeedsCodec: a job that did not come from Redisson has no payload unless a codec is
// named, in whatever state it is.
func TestExportNeedsCodec(t *testing.T) {
	for _, state := range []client.State{"DELAYED", "READY", "RESERVED"} {
		t.Run(string(state), func(t *testing.T) {
			r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
			offer(t, r, "orders", "came")
			if _, err := mirror.Import(t.Context(), r, c, mirror.ImportOptions{RedisQueue: "orders", Share: 1}); err != nil {
				t.Fatal(err)
			}
			options := []client.PutOption{client.ID("own-job")}
			if state == "DELAYED" {
				options = append(options, client.In(time.Hour))
			}
			if _, err := c.Put(t.Context(), "orders", []byte("own"), options...); err != nil {
				t.Fatal(err)
			}
			if state == "RESERVED" {
				if _, err := c.Reserve(t.Context(), client.ReserveOptions{Queues: []string{"orders"}}); err != nil {
					t.Fatal(err)
				}
			}
			if job, err := c.Get(t.Context(), "orders", "own-job"); err != nil || job.State != state {
				t.Fatalf("the job: %+v, %v", job, err)
			}
			o := mirror.ExportOptions{RedisQueue: "orders", Format: redisson.New, Share: 1}
			for _, work := range []func() error{
				func() error { _, err := mirror.Rollback(t.Context(), r, c, o); return err },
				func() error { _, err := mirror.Export(t.Context(), r, c, o); return err },
			} {
				refused(t, r, c, work, "own-job", "--codec")
			}
		})
	}
}

// TestExportFormatOfReadyJobs: what has fallen due says which format Redisson reads, too.
func TestExportFormatOfReadyJobs(t *testing.T) {
	r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
	for _, generation := range []redissontest.Generation{redissontest.OldGeneration, redissontest.NewGeneration} {
		if err := redissontest.New(r, "orders", generation, time.Now).Offer(t.Context(), []byte("due"),
			time.Now().Add(-time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	add(t, r, "-5", member(1, "negative"))
	if counts, err := mirror.Import(t.Context(), r, c, mirror.ImportOptions{RedisQueue: "orders", SetAside: true,
		Share: 1}); err != nil || counts.SetAside != 1 || counts.Acked != 2 {
		t.Fatalf("the import counted %+v, %v", counts, err)
	}
	refused(t, r, c, func() error {
		_, err := mirror.Rollback(t.Context(), r, c, mirror.ExportOptions{RedisQueue: "orders", Share: 1})
		return err
	}, "both formats", "--redisson-format")
	if _, err := mirror.Rollback(t.Context(), r, c, mirror.ExportOptions{RedisQueue: "orders", Format: redisson.Old,
		Share: 1}); err != nil {
		t.Error(err)
	}
}
