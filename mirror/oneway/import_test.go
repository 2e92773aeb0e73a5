package oneway_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/client/belfrytest"
	"github.com/belfrydb/belfry/mirror/fromlmstfy"
	"github.com/belfrydb/belfry/mirror/fromyouzan"
	"github.com/belfrydb/belfry/mirror/lmstfy"
	"github.com/belfrydb/belfry/mirror/oneway"
	"github.com/belfrydb/belfry/mirror/redistest"
)

// cutter has one call of a client fail: before it is sent, or once it is done and its answer is
// lost. A cutter that ends does so to the context as well; else the connection is all that breaks.
type cutter struct {
	at, calls   int64
	after, ends bool
	cut         context.CancelFunc
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
	err := io.EOF
	if c.ends {
		c.cut()
		err = context.Canceled
	}
	fail(err)
	return err
}

// interrupt runs an import again and again, on what fill makes each time, and ends it at each of
// its calls to Redis in turn, or breaks the connection there, which it has to outlast. One that was
// ended is run once more. Then what was brought over is compared: ids that a consumer of Belfry
// took and acked between the two runs, and those that are in the queue at the end, must be want,
// each once.
func interrupt(t *testing.T, fill func(r *redis.Client) (want []string), run func(ctx context.Context,
	r *redis.Client, c *client.Client, queue string) error) {
	t.Helper()
	server, c := redistest.Start(t), belfrytest.Start(t).Client(t)
	plain := server.Client()
	for _, how := range []cutter{{ends: true}, {ends: true, after: true}, {after: true}} {
		ended := false
		for at := int64(1); !ended; at++ {
			if err := plain.FlushDB(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			want := fill(plain)
			queue := "interrupted-" + time.Now().Format("150405.000000000")
			ctx, cut := context.WithCancel(t.Context())
			hook := &cutter{at: at, after: how.after, ends: how.ends, cut: cut}
			hooked := redis.NewClient(&redis.Options{Addr: server.Address(), MaxRetries: -1})
			hooked.AddHook(hook)
			err := run(ctx, hooked, c, queue)
			cut()
			_ = hooked.Close() // nothing is under way
			ended = atomic.LoadInt64(&hook.calls) < at
			if cancelled := errors.Is(err, context.Canceled); cancelled != (how.ends && !ended) || err != nil && !cancelled {
				t.Fatalf("call %d failed (done: %v, ends: %v): %v", at, how.after, how.ends, err)
			}
			got := map[string]int{}
			if how.ends {
				for _, id := range consume(t, c, queue) {
					got[id]++
				}
				if err := run(t.Context(), plain, c, queue); err != nil {
					t.Fatalf("after the end at call %d: %v", at, err)
				}
			}
			for id, times := range inBelfry(t, c, queue) {
				got[id] += times
			}
			for _, id := range want {
				if got[id] != 1 {
					t.Errorf("ended at call %d (done: %v): job %s is there %d times", at, how.after, id, got[id])
				}
			}
			if len(got) != len(want) {
				t.Errorf("ended at call %d (done: %v): %d jobs, want %d", at, how.after, len(got), len(want))
			}
			if ended && at < 8 {
				t.Errorf("an import makes only %d calls", at-1)
			}
		}
	}
}

// consume acks up to two jobs of a queue, which may not be there yet.
func consume(t *testing.T, c *client.Client, queue string) (ids []string) {
	t.Helper()
	jobs, err := c.Reserve(t.Context(), client.ReserveOptions{Queues: []string{queue}, Max: 2})
	if err != nil && !errors.Is(err, client.Reason("QUEUE_NOT_FOUND")) {
		t.Fatal(err)
	}
	for _, job := range jobs {
		if err := job.Ack(t.Context()); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, job.ID)
	}
	return ids
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

// redisDo sends commands that must not fail.
type redisDo struct {
	t *testing.T
	r *redis.Client
}

func (s *redisDo) do(args ...any) any {
	s.t.Helper()
	v, err := s.r.Do(s.t.Context(), args...).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		s.t.Fatal(err)
	}
	return v
}

// liveServer stands for a server of a service, at times that it is told.
type liveServer interface {
	// offer publishes a job. move brings what is due to the ready list. handOut gives a job to a
	// consumer for 3 s, an empty id if none is ready. end ends one, and reports whether it was
	// there.
	offer(now time.Time, delay time.Duration) (id string)
	move(now time.Time)
	handOut(now time.Time) (id string, until time.Time)
	end(id string) bool
}

// live imports while a server publishes, hands out, lets leases lapse and ends jobs, and once more
// when it has stopped. A consumer that holds a job can end it until its lease ends, and no job is
// ended there and left in Belfry.
func live(t *testing.T, c *client.Client, s liveServer, run func(ctx context.Context,
	o oneway.Options) (oneway.Counts, error)) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	var brought atomic.Int64
	go func() {
		_, err := run(ctx, oneway.Options{Queue: "jobs", Follow: true, Share: 1,
			Progress: func(n oneway.Counts) { brought.Store(n.Acked) }})
		done <- err
	}()
	random := rand.New(rand.NewPCG(1, 2))
	now := time.Now()
	ended, offered, held := map[string]bool{}, []string{}, map[string]time.Time{}
	for steps := 0; steps < 3000 || brought.Load() < 300; steps++ {
		switch random.IntN(10) {
		case 0, 1, 2, 3:
			offered = append(offered, s.offer(now, time.Duration(random.IntN(6))*time.Second))
		case 4, 5, 6:
			if id, until := s.handOut(now); id != "" {
				held[id] = until
			}
		case 7, 8:
			for id, until := range held {
				if gone := !s.end(id); gone && now.Truncate(time.Second).Before(until.Truncate(time.Second)) {
					t.Errorf("job %s was taken from the consumer that held it", id)
				} else if !gone {
					ended[id] = true
				}
				delete(held, id)
				break
			}
		default:
			now = now.Add(500 * time.Millisecond)
			s.move(now)
			for id, until := range held {
				if random.IntN(3) == 0 && !now.Before(until) {
					delete(held, id) // its consumer has died
				}
			}
		}
	}
	stop()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatalf("the import ended with %v", err)
	}
	rest, err := run(t.Context(), oneway.Options{Queue: "jobs", Stopped: true, Share: 1})
	if err != nil {
		t.Fatal(err)
	}
	there := inBelfry(t, c, "jobs")
	for _, id := range offered {
		if ended[id] == (there[id] > 0) {
			t.Errorf("job %s: ended at the source %v, in Belfry %d times", id, ended[id], there[id])
		}
	}
	t.Logf("%d offered, %d ended there, %d brought over live, then %+v", len(offered), len(ended), brought.Load(), rest)
	if len(ended) == 0 {
		t.Error("the source ended nothing")
	}
}

// TestSourcesRefuseACluster has imports of both kinds refuse a client of a cluster, before they
// send anything.
func TestSourcesRefuseACluster(t *testing.T) {
	r := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	t.Cleanup(func() { _ = r.Close() }) // it was never connected
	if _, err := fromlmstfy.Import(t.Context(), r, nil, fromlmstfy.Options{Source: lmstfy.Queue{Namespace: "n",
		Name: "q"}}); err == nil {
		t.Error("an import from lmstfy in a cluster began")
	}
	if _, err := fromyouzan.Import(t.Context(), r, nil, fromyouzan.Options{Topic: "q"}); err == nil {
		t.Error("an import of a topic in a cluster began")
	}
}
