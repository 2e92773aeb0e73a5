package main

import (
	"context"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/belfrydb/belfry/client/belfrytest"
	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/mirror/redistest"
	"github.com/belfrydb/belfry/mirror/redistest/redissontest"
)

// TestMirrorRun bridges a queue by the command, which shows what it does as metrics, lets a
// rollback have the queue, and waits after it until it is interrupted.
func TestMirrorRun(t *testing.T) {
	t.Parallel()
	r, belfry := redistest.Start(t), belfrytest.Start(t)
	app := redissontest.New(r.Client(), "orders", redissontest.NewGeneration, time.Now)
	s, said := cli.NewSystem(), &lockedBuffer{}
	s.In, s.Out, s.Err = strings.NewReader(""), said, said
	s.InTerminal, s.OutTerminal, s.ErrTerminal = false, false, false
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, s,
			[]string{"mirror", "run", r.URL(), "--queue", "orders", "--server", belfry.URL, "--metrics-listen", "127.0.0.1:0"})
	}()
	if err := app.Offer(t.Context(), []byte("order 1"), time.Now()); err != nil {
		t.Fatal(err)
	}
	if got, ok, err := app.Take(t.Context(), time.Minute); string(got) != "order 1" || !ok || err != nil {
		t.Fatalf("the ready list gave %q, %v, %v; the command said:\n%s", got, ok, err, said)
	}
	address := regexp.MustCompile(`http://(127\.0\.0\.1:\d+)/metrics`).FindStringSubmatch(said.String())
	if address == nil {
		t.Fatalf("the command said:\n%s", said)
	}
	awaitEvery(t, 20*time.Millisecond, "metrics of one job", func() bool {
		text := metricsAt(t, address[1])
		return strings.Contains(text, `belfry_mirror_delivered_total{redis_queue="orders"} 1`) &&
			strings.Contains(text, `belfry_mirror_acked_total{redis_queue="orders"} 1`)
	})
	if err := app.Offer(t.Context(), []byte("order 2"), time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	back := cli.NewSystem()
	back.In, back.Out, back.Err = strings.NewReader(""), said, said
	if code := run(ctx, back,
		[]string{"mirror", "rollback", r.URL(), "--queue", "orders", "--redisson-format", "new", "--server",
			belfry.URL}); code != 0 {
		t.Errorf("the rollback ended with %d; both commands said:\n%s", code, said)
	}
	awaitEvery(t, 20*time.Millisecond, "the bridge to wait", func() bool {
		return strings.Contains(metricsAt(t, address[1]), `belfry_mirror_taken_back{redis_queue="orders"} 1`)
	})
	if n := r.Client().ZCard(t.Context(), "redisson_delay_queue_timeout:{orders}").Val(); n != 1 {
		t.Errorf("Redis has %d entries", n)
	}
	stop()
	if code := <-ended; code == 0 {
		t.Errorf("an interrupted bridge ended with %d", code)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address[1]+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := http.DefaultClient.Do(req); err == nil {
		resp.Body.Close()
		t.Error("the metrics are still served")
	}
}
