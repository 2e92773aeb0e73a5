package mirror

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/client/belfrytest"
	"github.com/belfrydb/belfry/mirror/redisson"
	"github.com/belfrydb/belfry/mirror/redistest"
)

// withLink runs work with the hold of the queue orders.
func withLink(t *testing.T, r redis.UniversalClient, c *client.Client, work func(context.Context, *link) error) *link {
	t.Helper()
	l := newLink(r, c, "orders", "", 1, 0, nil)
	if err := l.check(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := l.withHold(t.Context(), func(ctx context.Context) error { return work(ctx, &l) }); err != nil {
		t.Fatal(err)
	}
	return &l
}

// reserveOne takes the only job of the queue orders.
func reserveOne(t *testing.T, c *client.Client) *client.Job {
	t.Helper()
	jobs, err := c.Reserve(t.Context(), client.ReserveOptions{Queues: []string{"orders"}, Wait: 20 * time.Second})
	if err != nil || len(jobs) != 1 {
		t.Fatalf("reserving: %d jobs, %v", len(jobs), err)
	}
	return jobs[0]
}

// TestSettleRung: a bridge dies after it has put a job on the ready list and before it acks it. Whoever comes next removes the job, be it reserved or not: an export does not make
// an entry of it, and a finished migration does not wait for it.
func TestSettleRung(t *testing.T) {
	for _, released := range []bool{false, true} {
		for name, next := range map[string]func(redis.UniversalClient, *client.Client) error{
			"export": func(r redis.UniversalClient, c *client.Client) error {
				_, err := Export(t.Context(), r, c, ExportOptions{RedisQueue: "orders", Format: redisson.New, Codec: redisson.Bytes})
				return err
			},
			"import": func(r redis.UniversalClient, c *client.Client) error {
				_, err := Import(t.Context(), r, c, ImportOptions{RedisQueue: "orders"})
				return err
			},
		} {
			t.Run(name, func(t *testing.T) {
				r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
				if _, err := c.Put(t.Context(), "orders", []byte("x"), client.TTR(time.Hour)); err != nil {
					t.Fatal(err)
				}
				job := reserveOne(t, c)
				dead := withLink(t, r, c, func(ctx context.Context, l *link) error {
					_, _, err := l.script(ctx, ringScript, []string{l.keys.state, l.keys.Ready, l.keys.rung}, tagOf(job), job.Body)
					return err
				})
				if released {
					if _, _, err := c.Release(t.Context(), job.Lease, 0); err != nil {
						t.Fatal(err)
					}
				}
				if err := next(r, c); err != nil {
					t.Fatal(err)
				}
				if _, err := c.Get(t.Context(), "orders", job.ID); !errors.Is(err, client.ErrJobNotFound) {
					t.Errorf("the job is still there: %v", err)
				}
				k := dead.keys
				if n := r.Exists(t.Context(), k.Timer, k.List, k.rung, k.returned).Val(); n != 0 {
					t.Errorf("%d keys are there besides the ready list", n)
				}
				if ready := r.LRange(t.Context(), k.Ready, 0, -1).Val(); len(ready) != 1 {
					t.Errorf("the ready list has %q", ready)
				}
			})
		}
	}
}

// TestFence: who had the hold before is refused as soon as another has settled, also if that one had nothing to write.
func TestFence(t *testing.T) {
	r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
	overtaken := withLink(t, r, c, func(ctx context.Context, l *link) error { return l.settle(ctx) })
	withLink(t, r, c, func(ctx context.Context, l *link) error { return l.settle(ctx) })
	_, _, err := overtaken.script(t.Context(), ringScript, []string{overtaken.keys.state, overtaken.keys.Ready, overtaken.keys.rung}, "tag", "x")
	if !redis.HasErrorPrefix(err, "BELFRYFENCE") {
		t.Errorf("its script was answered with %v", err)
	}
	if n := r.Exists(t.Context(), overtaken.keys.Ready).Val(); n != 0 {
		t.Error("it put something on the ready list")
	}
}

// TestHoldLength: the lease of the hold lasts as long as was asked for.
func TestHoldLength(t *testing.T) {
	for asked, want := range map[time.Duration]time.Duration{0: HoldDefault, HoldMin: HoldMin, HoldMin - 1: HoldDefault, HoldMax: HoldMax, HoldMax + 1: HoldDefault} {
		if l := newLink(nil, nil, "orders", "", 1, asked, nil); l.lease != want {
			t.Errorf("of %v became %v", asked, l.lease)
		}
	}
	r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
	withLink(t, r, c, func(context.Context, *link) error { return nil }) // which makes the job
	l := newLink(r, c, "orders", "", 1, HoldMin, nil)
	if err := l.withHold(t.Context(), func(ctx context.Context) error {
		job, err := c.Get(ctx, l.control, holdID)
		if err == nil && time.Until(job.LeaseUntil) > 2*HoldMin { // not the default; the clocks of a shard and of this process may differ a little
			t.Errorf("the lease ends in %v", time.Until(job.LeaseUntil))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// TestReadyClaimed: an import dies after it has claimed a payload of the ready list. Whoever comes next takes it along, also if not asked for the ready list.
func TestReadyClaimed(t *testing.T) {
	for name, next := range map[string]func(redis.UniversalClient, *client.Client) error{
		"export": func(r redis.UniversalClient, c *client.Client) error {
			_, err := Export(t.Context(), r, c, ExportOptions{RedisQueue: "orders", Format: redisson.New})
			return err
		},
		"import": func(r redis.UniversalClient, c *client.Client) error {
			_, err := Import(t.Context(), r, c, ImportOptions{RedisQueue: "orders"})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
			if _, err := c.Admin().CreateQueue(t.Context(), "orders", 1, nil); err != nil {
				t.Fatal(err)
			}
			k := keysOf("orders")
			if err := r.RPush(t.Context(), k.Ready, "x").Err(); err != nil {
				t.Fatal(err)
			}
			withLink(t, r, c, func(ctx context.Context, l *link) error {
				_, _, err := l.script(ctx, readyScript, []string{k.state, k.Ready, k.readyHand}, "claim", 1, 1)
				return err
			})
			if err := next(r, c); err != nil {
				t.Fatal(err)
			}
			queue, err := c.Admin().Queue(t.Context(), "orders")
			if err != nil {
				t.Fatal(err)
			}
			if n := r.Exists(t.Context(), k.readyHand).Val(); n != 0 {
				t.Error("it is still claimed")
			}
			if there := int64(queue.Ready) + r.ZCard(t.Context(), k.Timer).Val(); there != 1 {
				t.Errorf("it is in %d places", there)
			}
		})
	}
}
