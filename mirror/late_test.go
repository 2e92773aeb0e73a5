package mirror

import (
	"context"
	"slices"
	"strings"
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

// recorder keeps the scripts that Redis has run, as they were sent.
type recorder struct{ sent [][]any }

func (r *recorder) DialHook(next redis.DialHook) redis.DialHook { return next }
func (r *recorder) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (r *recorder) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if err == nil && strings.HasPrefix(cmd.Name(), "eval") {
			r.sent = append(r.sent, slices.Clone(cmd.Args()))
		}
		return err
	}
}

// TestHeldBack: the network delivers each script a second time once all work is done, as it may
// when an answer did not come and the script was sent again. Redis refuses it.
func TestHeldBack(t *testing.T) {
	for name, work := range map[string]func(ctx context.Context, l *link, job *client.Job) error{
		"deliver": func(ctx context.Context, l *link, job *client.Job) error {
			g := &deliverer{link: *l, codec: redisson.Bytes, report: func(BridgeCounts) {}}
			g.Link = g.Outward()
			return g.deliver(ctx, ctx, []*client.Job{job})
		},
		"export": func(ctx context.Context, l *link, job *client.Job) error {
			if _, _, err := l.Belfry.Release(ctx, job.Lease, 0); err != nil {
				return err
			}
			e := &exporter{link: *l, format: redisson.New, codec: redisson.Bytes, batch: pair.BatchMax}
			if err := e.settleLeftovers(ctx); err != nil {
				return err
			}
			_, err := e.returnState(ctx, "READY")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
			app := redissontest.New(r, "orders", redissontest.NewGeneration, time.Now)
			if _, err := c.Put(t.Context(), "orders", []byte("x"), client.TTR(time.Hour)); err != nil {
				t.Fatal(err)
			}
			job, seen := reserveOne(t, c), &recorder{}
			r.AddHook(seen)
			done := withLink(t, r, c, func(ctx context.Context, l *link) error { return work(ctx, l, job) })
			if _, err := c.Get(t.Context(), "orders", job.ID); !pair.IsGone(err) {
				t.Fatalf("Belfry still has the job: %v", err)
			}
			if _, err := app.Transfer(t.Context(), time.Now().Add(time.Minute).UnixMilli()); err != nil {
				t.Fatal(err)
			}
			if got := r.LPop(t.Context(), done.keys.Ready).Val(); got != "x" {
				t.Fatalf("delivered is %q", got)
			}
			refused := 0
			for _, script := range slices.Clone(seen.sent) {
				if redis.HasErrorPrefix(r.Do(t.Context(), script...).Err(), "BELFRYTURN") {
					refused++
				}
			}
			if refused == 0 {
				t.Errorf("of %d scripts none was refused", len(seen.sent))
			}
			if n := r.Exists(t.Context(), done.keys.Ready, done.keys.Timer, done.keys.List).Val(); n != 0 {
				t.Error("the job came back")
			}
		})
	}
}

// TestForgetsLater: Redis fails between the ack of a job and the forgetting of its id. It forgets
// that in the next turn.
func TestForgetsLater(t *testing.T) {
	r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
	if _, err := c.Put(t.Context(), "orders", []byte("x"), client.TTR(time.Hour)); err != nil {
		t.Fatal(err)
	}
	job := reserveOne(t, c)
	withLink(t, r, c, func(ctx context.Context, l *link) error {
		g := &deliverer{link: *l, codec: redisson.Bytes, report: func(BridgeCounts) {}}
		g.Link = g.Outward()
		delivered := g.keys.delivered
		cut := redis.NewClient(r.Options())
		defer cut.Close()
		cut.AddHook(&interruption{after: deliverScript, stop: func() { r.Set(ctx, delivered, "text", 0) }})
		g.Redis = cut
		if err := g.deliver(ctx, ctx, []*client.Job{job}); !redis.HasErrorPrefix(err, "WRONGTYPE") {
			t.Errorf("delivering ended with %v", err)
		}
		if err := r.Del(ctx, delivered).Err(); err != nil {
			return err
		}
		if err := r.SAdd(ctx, delivered, tagOf(job)).Err(); err != nil {
			return err
		}
		if err := g.forget(ctx); err != nil || r.Exists(ctx, delivered).Val() != 0 {
			t.Errorf("the id is still there: %v", err)
		}
		return nil
	})
}
