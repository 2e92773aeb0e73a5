package mirror_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/client/belfrytest"
	"github.com/belfrydb/belfry/mirror"
	"github.com/belfrydb/belfry/mirror/redisson"
	"github.com/belfrydb/belfry/mirror/redistest"
	"github.com/belfrydb/belfry/mirror/redistest/redissontest"
)

// TestBridge has Redisson's producers and consumers go on while Belfry keeps the jobs, and a job of
// Belfry's own reach those consumers.
func TestBridge(t *testing.T) {
	r, c := redistest.Start(t), belfrytest.Start(t).Client(t)
	app := redissontest.New(r.Client(), "orders", redissontest.NewGeneration, time.Now)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- mirror.Bridge(ctx, r.Client(), c, mirror.BridgeOptions{RedisQueue: "orders", Codec: redisson.Bytes, Share: 1})
	}()
	want := map[string]bool{}
	for n := range 50 {
		text := fmt.Sprintf("order %d", n)
		want[text] = true
		if err := app.Offer(t.Context(), []byte(text), time.Now().Add(time.Duration(n)*time.Millisecond)); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 2 { // the same id again, after the first has ended
		text := fmt.Sprintf("own %d", n)
		want[text] = true
		err := error(client.ErrJobExists) // until the ack of the one before has come through
		for errors.Is(err, client.ErrJobExists) {
			_, err = c.Put(t.Context(), "orders", []byte(text), client.ID("own"), client.Again())
		}
		if err != nil {
			t.Fatal(err)
		}
		take(t, app, want, func() bool { return !want[text] })
	}
	take(t, app, want, func() bool { return len(want) == 0 })
	stop()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("the bridge ended with %v", err)
	}
	if n := r.Client().Exists(t.Context(), "belfry_rung:{orders}", "belfry_handover:{orders}").Val(); n != 0 {
		t.Errorf("%d keys of the mirror are left over", n)
	}
}

// take takes from the ready list until enough is there; each payload must be wanted.
func take(t *testing.T, app *redissontest.Client, want map[string]bool, enough func() bool) {
	t.Helper()
	for !enough() {
		payload, ok, err := app.Take(t.Context(), 20*time.Second)
		if err != nil || !ok {
			t.Fatalf("%d payloads are missing: %v", len(want), err)
		}
		if !want[string(payload)] {
			t.Fatalf("the ready list had %q, which was not wanted or is there twice", payload)
		}
		delete(want, string(payload))
	}
}
