package mirror_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/client/belfrytest"
	"github.com/belfrydb/belfry/mirror"
	"github.com/belfrydb/belfry/mirror/lmstfy"
	"github.com/belfrydb/belfry/mirror/redistest"
)

// cutter ends a context at one call of a client: before it is sent, or once it is done and nobody hears the answer.
type cutter struct {
	at, calls int64
	after     bool
	cut       context.CancelFunc
}

func (c *cutter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *cutter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return c.call(ctx, func(ctx context.Context) error { return next(ctx, cmd) }, cmd.SetErr)
	}
}

func (c *cutter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return c.call(ctx, func(ctx context.Context) error { return next(ctx, cmds) }, func(err error) {
			for _, cmd := range cmds {
				cmd.SetErr(err)
			}
		})
	}
}

func (c *cutter) call(ctx context.Context, next func(context.Context) error, fail func(error)) error {
	if atomic.AddInt64(&c.calls, 1) != c.at {
		return next(ctx)
	}
	if c.after {
		_ = next(ctx) // the answer is lost
	}
	c.cut()
	fail(context.Canceled)
	return context.Canceled
}

// interrupt runs an import again and again, on what fill makes each time, and ends it at each of its calls to Redis in turn. After each it is run once more, and what was brought over is compared: ids that a consumer
// of Belfry took and acked between the two runs, and those that are in the queue at the end, must be want, each once.
func interrupt(t *testing.T, fill func(r *redis.Client) (want []string), run func(ctx context.Context, r *redis.Client, c *client.Client, queue string) error) {
	t.Helper()
	server, c := redistest.Start(t), belfrytest.Start(t).Client(t)
	plain := server.Client()
	for _, after := range []bool{false, true} {
		ended := false
		for at := int64(1); !ended; at++ {
			if err := plain.FlushDB(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			want := fill(plain)
			queue := "interrupted-" + time.Now().Format("150405.000000000")
			ctx, cut := context.WithCancel(t.Context())
			hook := &cutter{at: at, after: after, cut: cut}
			hooked := redis.NewClient(&redis.Options{Addr: server.Address(), MaxRetries: -1})
			hooked.AddHook(hook)
			err := run(ctx, hooked, c, queue)
			cut()
			_ = hooked.Close() // nothing is under way
			if ended = atomic.LoadInt64(&hook.calls) < at; ended && err != nil {
				t.Fatalf("the import without interruption: %v", err)
			}
			if !ended && !errors.Is(err, context.Canceled) {
				t.Fatalf("ended at call %d: %v", at, err)
			}
			got := map[string]int{}
			if jobs, err := c.Reserve(t.Context(), client.ReserveOptions{Queues: []string{queue}, Max: 2}); err == nil {
				for _, job := range jobs {
					got[job.ID]++
					if err := job.Ack(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := run(t.Context(), plain, c, queue); err != nil {
				t.Fatalf("after the end at call %d: %v", at, err)
			}
			for id, times := range inBelfry(t, c, queue) {
				got[id] += times
			}
			for _, id := range want {
				if got[id] != 1 {
					t.Errorf("ended at call %d (done: %v): job %s is there %d times", at, after, id, got[id])
				}
			}
			if len(got) != len(want) {
				t.Errorf("ended at call %d (done: %v): %d jobs, want %d", at, after, len(got), len(want))
			}
			if ended && at < 8 {
				t.Errorf("an import makes only %d calls", at-1)
			}
		}
	}
}

// inBelfry is how often each id is in a queue.
func inBelfry(t *testing.T, c *client.Client, queue string) map[string]int {
	t.Helper()
	there := map[string]int{}
	for _, state := range []client.State{"DELAYED", "READY", "RESERVED", "DEAD"} {
		for j, err := range c.List(t.Context(), queue, client.ListOptions{State: state, PageSize: 1000}) {
			if err != nil {
				t.Fatal(err)
			}
			there[j.ID]++
		}
	}
	return there
}

// TestSourcesRefuseACluster has imports of both kinds refuse a client of a cluster, before they send anything.
func TestSourcesRefuseACluster(t *testing.T) {
	r := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	t.Cleanup(func() { _ = r.Close() }) // it was never connected
	if _, err := mirror.ImportLmstfy(t.Context(), r, nil, mirror.LmstfyOptions{Source: lmstfy.Queue{Namespace: "n", Name: "q"}}); err == nil {
		t.Error("an import from lmstfy in a cluster began")
	}
	if _, err := mirror.ImportYouzan(t.Context(), r, nil, mirror.YouzanOptions{Topic: "q"}); err == nil {
		t.Error("an import of a topic in a cluster began")
	}
}
