package mirror_test

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/client/belfrytest"
	"github.com/belfrydb/belfry/mirror"
	"github.com/belfrydb/belfry/mirror/redisson"
	"github.com/belfrydb/belfry/mirror/redistest"
	"github.com/belfrydb/belfry/mirror/redistest/redissontest"
)

// broken is a hook that fails one command as a connection that is cut does, done or not.
type broken struct {
	at, calls int64
	after     bool
}

func (b *broken) DialHook(next redis.DialHook) redis.DialHook { return next }

func (b *broken) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return b.call(func() error { return next(ctx, cmd) }, cmd.SetErr)
	}
}

func (b *broken) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return b.call(func() error { return next(ctx, cmds) }, func(err error) {
			for _, cmd := range cmds {
				cmd.SetErr(err)
			}
		})
	}
}

func (b *broken) call(next func() error, fail func(error)) error {
	if b.calls++; b.calls != b.at { // one at a time
		return next()
	}
	if b.after {
		_ = next() // the answer is lost
	}
	fail(io.EOF)
	return io.EOF
}

// TestReconnects: an operation goes on, whichever of its commands a broken connection takes along.
func TestReconnects(t *testing.T) {
	t.Parallel()
	due := time.Now().Add(time.Hour)
	operations := map[string]struct {
		fill func(t *testing.T, r *redis.Client, c *client.Client)
		run  func(ctx context.Context, r *redis.Client, c *client.Client) error
	}{
		"import": {func(t *testing.T, r *redis.Client, _ *client.Client) {
			if err := redissontest.New(r, "orders", redissontest.NewGeneration, time.Now).Offer(t.Context(), []byte("x"),
				due); err != nil {
				t.Fatal(err)
			}
		}, func(ctx context.Context, r *redis.Client, c *client.Client) error {
			_, err := mirror.Import(ctx, r, c, mirror.ImportOptions{RedisQueue: "orders", Ready: true, Share: 1})
			return err
		}},
		"rollback": {func(t *testing.T, r *redis.Client, c *client.Client) {
			if err := r.HSet(t.Context(), "belfry_mirror:{orders}", "fence", 0).Err(); err != nil { // a mirror has begun
				t.Fatal(err)
			}
			if _, err := c.Put(t.Context(), "orders", []byte("x"), client.At(due)); err != nil {
				t.Fatal(err)
			}
		}, func(ctx context.Context, r *redis.Client, c *client.Client) error {
			_, err := mirror.Rollback(ctx, r, c, mirror.ExportOptions{RedisQueue: "orders", Format: redisson.New,
				Codec: redisson.Bytes, Share: 1})
			return err
		}},
	}
	for name, operation := range operations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			for _, after := range []bool{false, true} {
				c := belfrytest.Start(t).Client(t)
				for at, ended := int64(1), false; !ended; at++ {
					if err := server.Client().FlushDB(t.Context()).Err(); err != nil {
						t.Fatal(err)
					}
					operation.fill(t, server.Client(), c)
					r := redis.NewClient(server.Client().Options())
					hook := &broken{at: at, after: after}
					r.AddHook(hook)
					if err := operation.run(t.Context(), r, c); err != nil {
						t.Errorf("the connection broke at command %d, done %v, and it ended with %v", at, after, err)
					}
					ended = hook.calls < at
					if err := r.Close(); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
}
