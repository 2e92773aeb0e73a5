package mirror_test

import (
	"strings"
	"testing"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/client/belfrytest"
	"github.com/belfrydb/belfry/mirror"
	"github.com/belfrydb/belfry/mirror/redistest"
)

// TestFinalizeAfterRollback: after a rollback, Finalize removes the mirror's keys although Redisson
// goes on, so that another cluster may have the queue.
func TestFinalizeAfterRollback(t *testing.T) {
	r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
	offer(t, r, "orders", "a")
	if _, err := mirror.Import(t.Context(), r, c, mirror.ImportOptions{RedisQueue: "orders", Share: 1}); err != nil {
		t.Fatal(err)
	}
	finalize := func(c *client.Client) error {
		_, err := mirror.Finalize(t.Context(), r, c, mirror.FinalizeOptions{RedisQueue: "orders", Share: 1})
		return err
	}
	if err := r.RPush(t.Context(), "orders", "due").Err(); err != nil {
		t.Fatal(err)
	}
	if err := finalize(c); err == nil || !strings.Contains(err.Error(), "ready list") {
		t.Errorf("before the rollback: %v", err)
	}
	if _, err := mirror.Rollback(t.Context(), r, c, mirror.ExportOptions{RedisQueue: "orders", Share: 1}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := finalize(c); err != nil {
			t.Error(err)
		}
	}
	if left := r.TTL(t.Context(), "belfry_mirror:{orders}").Val(); left <= 0 {
		t.Errorf("the fence stays for %v", left)
	}
	// higher than that of any other
	if err := r.HSet(t.Context(), "belfry_mirror:{orders}", "fence", 1<<40).Err(); err != nil {
		t.Fatal(err)
	}
	other := belfrytest.Start(t).Client(t)
	if counts, err := mirror.Import(t.Context(), r, other, mirror.ImportOptions{RedisQueue: "orders",
		Share: 1}); err != nil || counts.Acked != 1 {
		t.Errorf("another cluster imported %+v, %v", counts, err)
	}
	if err := finalize(c); err == nil || !strings.Contains(err.Error(), "mirrored to the queue") {
		t.Errorf("the first cluster again: %v", err)
	}
	if left := r.TTL(t.Context(), "belfry_mirror:{orders}").Val(); left > 0 {
		t.Errorf("who mirrors the queue is forgotten in %v", left)
	}
}
