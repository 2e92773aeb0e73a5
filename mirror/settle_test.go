package mirror

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/client/belfrytest"
	"github.com/belfrydb/belfry/mirror/pair"
	"github.com/belfrydb/belfry/mirror/redisson"
	"github.com/belfrydb/belfry/mirror/redistest"
	"github.com/belfrydb/belfry/mirror/redistest/redissontest"
)

// withLink runs work with the hold of the queue orders.
func withLink(t *testing.T, r redis.UniversalClient, c *client.Client, work func(context.Context, *link) error) *link {
	t.Helper()
	l := newLink(r, c, pair.Options{RedisQueue: "orders", Share: 1})
	if err := l.check(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := l.WithHold(t.Context(), func(ctx context.Context) error { return work(ctx, &l) }); err != nil {
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

// TestSettleDelivered: a bridge dies after it has put a job on the ready list and before it acks
// it. The next bridge removes the job, be it reserved or not: an export does not make an entry of
// it, and a finished migration does not wait for it.
func TestSettleDelivered(t *testing.T) {
	for _, released := range []bool{false, true} {
		for name, next := range map[string]func(redis.UniversalClient, *client.Client) error{
			"export": func(r redis.UniversalClient, c *client.Client) error {
				_, err := Export(t.Context(), r, c, ExportOptions{RedisQueue: "orders", Format: redisson.New,
					Codec: redisson.Bytes})
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
					_, _, err := l.Script(ctx, deliverScript, []string{l.keys.Ready, l.keys.delivered}, tagOf(job), job.Body)
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
				if n := r.Exists(t.Context(), k.Timer, k.List, k.delivered, k.returned).Val(); n != 0 {
					t.Errorf("%d keys are there besides the ready list", n)
				}
				if ready := r.LRange(t.Context(), k.Ready, 0, -1).Val(); len(ready) != 1 {
					t.Errorf("the ready list has %q", ready)
				}
			})
		}
	}
}

// TestFence: the bridge that had the hold before is refused as soon as another has settled, also if
// that one had nothing to write.
func TestFence(t *testing.T) {
	r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
	overtaken := withLink(t, r, c, func(ctx context.Context, l *link) error { return l.settleLeftovers(ctx) })
	withLink(t, r, c, func(ctx context.Context, l *link) error { return l.settleLeftovers(ctx) })
	keys := []string{overtaken.keys.Ready, overtaken.keys.delivered}
	_, _, err := overtaken.Script(t.Context(), deliverScript, keys, "tag", "x")
	if !redis.HasErrorPrefix(err, "BELFRYFENCE") {
		t.Errorf("its script was answered with %v", err)
	}
	if n := r.Exists(t.Context(), overtaken.keys.Ready).Val(); n != 0 {
		t.Error("it put something on the ready list")
	}
}

// TestHoldLength: the lease of the hold lasts as long as was asked for.
func TestHoldLength(t *testing.T) {
	for asked, want := range map[time.Duration]time.Duration{0: pair.HoldDefault, pair.HoldMin: pair.HoldMin,
		pair.HoldMin - 1: pair.HoldDefault, pair.HoldMax: pair.HoldMax, pair.HoldMax + 1: pair.HoldDefault} {
		if l := newLink(nil, nil, pair.Options{RedisQueue: "orders", Share: 1, Hold: asked}); l.Hold != want {
			t.Errorf("of %v became %v", asked, l.Hold)
		}
	}
	r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
	withLink(t, r, c, func(context.Context, *link) error { return nil }) // which makes the job
	l := newLink(r, c, pair.Options{RedisQueue: "orders", Share: 1, Hold: pair.HoldMin})
	if err := l.WithHold(t.Context(), func(ctx context.Context) error {
		_, until, err := l.Holder(ctx)
		// not the default; the clocks of a shard and of this process may differ a little
		if err == nil && time.Until(until) > 2*pair.HoldMin {
			t.Errorf("the lease ends in %v", time.Until(until))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// TestReadyClaimed: an import dies after it has claimed a payload of the ready list. The next
// import takes it along, also if not asked for the ready list.
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
				_, _, err := l.Script(ctx, readyScript, []string{k.Ready, k.readyHand}, "claim", 1, 1)
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

// TestOvertaken has a process that slept through a takeover wake up: Redis refuses its scripts.
func TestOvertaken(t *testing.T) {
	r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
	app := redissontest.New(r, "orders", redissontest.NewGeneration, time.Now)
	if err := app.Offer(t.Context(), []byte("a"), time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	var links [2]*importer
	for n := range links {
		links[n] = newImporter(newLink(r, c, pair.Options{RedisQueue: "orders", Share: 1}), ImportOptions{})
		err := errors.Join(links[n].check(t.Context()), links[n].WithHold(t.Context(), links[n].settleLeftovers))
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := links[0].claim(t.Context()); err == nil || !errors.Is(pair.Explain(err), pair.ErrHoldLost) {
		t.Errorf("the claim of the one that was overtaken: %v", err)
	}
	if n := r.Exists(t.Context(), "belfry_handover:{orders}").Val(); n != 0 {
		t.Error("it claimed all the same")
	}
	if got, err := links[1].claim(t.Context()); err != nil || len(got.entries) != 1 {
		t.Errorf("the claim of the other: %+v, %v", got, err)
	}
}
