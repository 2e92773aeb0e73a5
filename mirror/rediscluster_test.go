package mirror_test

import (
	"context"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belfrydb/belfry/client/belfrytest"
	"github.com/belfrydb/belfry/mirror"
	"github.com/belfrydb/belfry/mirror/redistest"
	"github.com/belfrydb/belfry/mirror/redistest/redissontest"
)

// TestRedisClusterMoves: a bridge goes on while the slot of its queue moves to another server, and
// when the server that has it dies.
func TestRedisClusterMoves(t *testing.T) {
	t.Parallel()
	const queue = "{cb}:orders" // whose slot the first server has, which has a replica
	cluster, c := redistest.StartCluster(t, 3, 1), belfrytest.Start(t).Client(t)
	first, slot := cluster.Owner(t, queue)
	if first != cluster.Primaries[0] {
		t.Fatalf("the slot %d is another's", slot)
	}
	other := cluster.Primaries[2]
	b := bridge(t, connect(t, cluster.URL()), c, mirror.BridgeOptions{RedisQueue: queue, Queue: "orders"})
	through(t, first, c, queue, "at first")
	first.Kill()
	second := cluster.Replicas[0]
	second.Promoted()
	through(t, second, c, queue, "after the first has died")
	cluster.Move(t, slot, second, other, func() {
		if _, err := c.Put(t.Context(), "orders", []byte("while it moves")); err != nil {
			t.Fatal(err)
		}
		b.noticed("TRYAGAIN")
	})
	want := map[string]bool{"while it moves": true}
	take(t, redissontest.New(other.Client(), queue, redissontest.NewGeneration, time.Now), want,
		func() bool { return len(want) == 0 })
	through(t, other, c, queue, "after it has moved")
}

// forgetful loses each third answer to a script, after Redis has carried it out.
type forgetful struct{ scripts *atomic.Int64 }

func (f forgetful) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f forgetful) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (f forgetful) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if err == nil && strings.HasPrefix(cmd.Name(), "eval") && f.scripts.Add(1)%3 == 0 {
			cmd.SetErr(io.EOF)
			return io.EOF
		}
		return err
	}
}

// TestRedisClusterAnswerLost: a client of a Redis Cluster sends a script again by itself if it gets
// no answer, which Redis refuses.
func TestRedisClusterAnswerLost(t *testing.T) {
	t.Parallel()
	s, c := redistest.Start(t, redistest.WithCluster()), belfrytest.Start(t).Client(t)
	r := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{s.Address()}, MaxRetries: -1,
		NewClient: func(o *redis.Options) *redis.Client {
			one := redis.NewClient(o)
			one.AddHook(forgetful{new(atomic.Int64)})
			return one
		}})
	defer r.Close()
	bridge(t, r, c, mirror.BridgeOptions{})
	through(t, s, c, "orders", "once each")
	through(t, s, c, "orders", "and again")
}
