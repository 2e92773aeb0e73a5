package mirror_test

import (
	"fmt"
	"testing"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/client/belfrytest"
	"github.com/belfrydb/belfry/mirror"
	"github.com/belfrydb/belfry/mirror/redistest"
)

// TestReadyList brings a ready list over, with payloads that are there twice, after an import that
// was interrupted between claim and put.
func TestReadyList(t *testing.T) {
	r, c := redistest.Start(t), belfrytest.Start(t).Client(t)
	want := map[string]int{}
	for n := range 1300 {
		payload := fmt.Sprintf("order %d", n%1000)
		want[payload]++
		if err := r.Client().RPush(t.Context(), "orders", payload).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Client().HSet(t.Context(), "belfry_handover_ready:{orders}", "ABC:1", "claimed before").Err(); err != nil {
		t.Fatal(err)
	}
	want["claimed before"]++
	counts, err := mirror.Import(t.Context(), r.Client(), c, mirror.ImportOptions{RedisQueue: "orders", Ready: true,
		Share: 1})
	if err != nil || counts.Claimed != 1300 || counts.Committed != 1301 || counts.Acked != 1301 || counts.Repeated != 0 {
		t.Errorf("the import counted %+v, error %v", counts, err)
	}
	if n := r.Client().Exists(t.Context(), "orders", "belfry_handover_ready:{orders}").Val(); n != 0 {
		t.Errorf("%d keys are left", n)
	}
	for {
		jobs, err := c.Reserve(t.Context(), client.ReserveOptions{Queues: []string{"orders"}, Max: 1000})
		if err != nil {
			t.Fatal(err)
		}
		if len(jobs) == 0 {
			break
		}
		for _, job := range jobs {
			if want[string(job.Body)]--; want[string(job.Body)] == 0 {
				delete(want, string(job.Body))
			}
		}
	}
	if len(want) > 0 {
		t.Errorf("%d payloads did not come as often as they were there", len(want))
	}
}
