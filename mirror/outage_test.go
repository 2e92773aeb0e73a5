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
)

// TestOutageCountsNoAttempt: Redis is away for longer than a bridge's leases last. The job that it
// has in hand is given back before, as if it had not been taken; and so if the bridge is stopped
// meanwhile.
func TestOutageCountsNoAttempt(t *testing.T) {
	for name, stopped := range map[string]bool{"running": false, "stopped": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, c := redistest.Start(t), belfrytest.Start(t).Client(t)
			if _, err := c.Put(t.Context(), "orders", []byte("x"), client.MaxAttempts(1)); err != nil {
				t.Fatal(err)
			}
			withLink(t, s.Client(), c, func(ctx context.Context, l *link) error {
				g := &deliverer{link: *l, codec: redisson.Bytes, ttr: 2 * time.Second, report: func(BridgeCounts) {}}
				g.Link = g.Outward()
				jobs, err := c.Reserve(ctx, client.ReserveOptions{Queues: []string{"orders"}, TTR: g.ttr})
				if err != nil || len(jobs) != 1 {
					t.Fatalf("reserved %d jobs, %v", len(jobs), err)
				}
				s.Kill()
				ctx, stop := context.WithCancel(ctx)
				defer stop()
				if stopped {
					g.ttr = time.Hour
					stop()
				}
				if err := g.finishDelivery(ctx, jobs); err == nil {
					t.Error("it delivered without Redis")
				}
				if job, err := c.Get(t.Context(), "orders", jobs[0].ID); err != nil || job.State != "READY" || job.Attempt != 0 {
					t.Errorf("afterwards it is %+v, %v", job, err)
				}
				return nil
			})
		})
	}
}

// TestClaimedIsDecoded: a bridge that leaves new entries to Redisson puts those that an import had
// claimed as its codec says.
func TestClaimedIsDecoded(t *testing.T) {
	r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
	payload, err := redisson.Kryo5String.Encode([]byte("hello"))
	if err != nil {
		t.Fatal(err)
	}
	member := redisson.Member{Generation: redisson.New, Payload: payload}.Append(nil)
	if err := r.ZAdd(t.Context(), keysOf("orders").handover,
		redis.Z{Score: float64(time.Now().Add(time.Hour).UnixMilli()), Member: member}).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Admin().CreateQueue(t.Context(), "orders", 1, nil); err != nil {
		t.Fatal(err)
	}
	withLink(t, r, c, func(ctx context.Context, l *link) error {
		_, err := l.putClaimed(ctx,
			redisson.Kryo5String)
		return err
	})
	if got := bodies(t, c); got["hello"] != 1 {
		t.Errorf("the bodies are %v", got)
	}
}

// TestImportDuringRollback: an import that is started while a rollback is under way does not undo
// it.
func TestImportDuringRollback(t *testing.T) {
	r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
	putAll(t, c, time.Now().Add(time.Hour), nil, "a")
	withLink(t, r, c, func(context.Context, *link) error { return nil })
	cut := redis.NewClient(r.Options())
	defer cut.Close()
	refused := false
	cut.AddHook(&interruption{after: returnScript, stop: func() {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := Import(ctx, r, c, ImportOptions{RedisQueue: "orders", Share: 1})
		if refused = errors.Is(err, pair.ErrWished); !refused {
			t.Errorf("the import ended with %v", err)
		}
	}})
	if counts, err := Rollback(t.Context(), cut, c, ExportOptions{RedisQueue: "orders", Format: redisson.New,
		Codec: redisson.Bytes, Share: 1}); err != nil || counts.Returned != 1 || !refused {
		t.Errorf("the rollback counted %+v, %v", counts, err)
	}
}

// TestQuietBeginsAnew: what is offered and brought over between two looks of a cut-over counts as
// well.
func TestQuietBeginsAnew(t *testing.T) {
	r := redistest.Start(t).Client()
	looks, moves := 0, int64(0)
	moved := func() int64 { // in each of the first looks
		moves = min(moves+1, 20)
		return moves
	}
	err := watch(t.Context(), r, CutoverOptions{ImportOptions: ImportOptions{RedisQueue: "orders"},
		Quiet: time.Millisecond, Looked: func([]pair.Check, time.Duration) { looks++ }}, moved)
	if !errors.Is(err, errQuiet) || looks < 10 {
		t.Errorf("it ended after %d looks with %v", looks, err)
	}
}
