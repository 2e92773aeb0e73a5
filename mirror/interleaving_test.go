package mirror

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belfrydb/belfry/client/belfrytest"
	"github.com/belfrydb/belfry/mirror/fromlmstfy"
	"github.com/belfrydb/belfry/mirror/lmstfy"
	"github.com/belfrydb/belfry/mirror/oneway"
	"github.com/belfrydb/belfry/mirror/pair"
	"github.com/belfrydb/belfry/mirror/redisson"
	"github.com/belfrydb/belfry/mirror/redistest"
)

// interleaved is a hook that has something happen around a script, once: the first whose argument
// at a place is this.
type interleaved struct {
	at            int
	argument      any
	before, after func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook)
	done          atomic.Bool
}

func (h *interleaved) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *interleaved) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h *interleaved) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		args := cmd.Args()
		hit := strings.HasPrefix(cmd.Name(), "eval") && len(args) > h.at && args[h.at] == h.argument
		if hit && h.before != nil && h.done.CompareAndSwap(false, true) {
			h.before(ctx, cmd, next)
		}
		err := next(ctx, cmd)
		if hit && err == nil && h.after != nil && h.done.CompareAndSwap(false, true) {
			h.after(ctx, cmd, next)
			return cmd.Err()
		}
		return err
	}
}

// hooked is a client of a server with a hook.
func hooked(t *testing.T, s *redistest.Server, h *interleaved) *redis.Client {
	t.Helper()
	r := redis.NewClient(s.Client().Options())
	t.Cleanup(func() { _ = r.Close() })
	r.AddHook(h)
	return r
}

// TestClaimAnswerLost has the answer to a claim be lost: what it took is brought over all the same.
func TestClaimAnswerLost(t *testing.T) {
	s, c := redistest.Start(t), belfrytest.Start(t).Client(t)
	const id = "01M7YV5MC8FK8Q51Y1PC80W000"
	plain := s.Client()
	member := redis.Z{Score: float64(time.Now().Add(time.Hour).Unix()),
		Member: "\x03\x00ns1\x02\x00q1\x03\x00\x1a\x00" + id}
	if err := plain.Set(t.Context(), "j/ns1/q1/"+id, "body", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := plain.ZAdd(t.Context(), "timer_set", member).Err(); err != nil {
		t.Fatal(err)
	}
	lost := &interleaved{at: 5, argument: "timer_set", after: func(_ context.Context, cmd redis.Cmder,
		_ redis.ProcessHook) {
		cmd.SetErr(io.EOF)
	}}
	o := fromlmstfy.Options{Source: lmstfy.Queue{Namespace: "ns1", Name: "q1"}, Options: oneway.Options{Stopped: true,
		Share: 1}}
	if counts, err := fromlmstfy.Import(t.Context(), hooked(t, s, lost), c, o); err != nil || counts.Acked != 1 ||
		!lost.done.Load() {
		t.Errorf("the import counted %+v, %v", counts, err)
	}
	if _, err := c.Get(t.Context(), "ns1/q1", id); err != nil {
		t.Error(err)
	}
}

// lateClaim imports one entry, offers another, and returns the claim of that import's process as it
// would arrive late.
func lateClaim(t *testing.T, r *redis.Client, run func() error) func(ctx context.Context) error {
	t.Helper()
	k := keysOf("orders")
	offer := func(random byte) {
		m := redisson.Member{Generation: redisson.New, Random: [8]byte{random}, Payload: []byte("p")}.Append(nil)
		if err := r.ZAdd(t.Context(), k.Timer, redis.Z{Score: float64(time.Now().Add(time.Hour).UnixMilli()),
			Member: m}).Err(); err != nil {
			t.Fatal(err)
		}
		if err := r.RPush(t.Context(), k.List, m).Err(); err != nil {
			t.Fatal(err)
		}
	}
	offer(1)
	if err := run(); err != nil {
		t.Fatal(err)
	}
	owner, err := r.HMGet(t.Context(), k.state, "cluster", "queue", "fence").Result()
	if err != nil {
		t.Fatal(err)
	}
	return func(ctx context.Context) error {
		offer(2)
		return claimScript.Run(ctx, r, []string{k.state, k.Timer, k.List, k.handover, k.orphans}, owner[0], owner[1],
			fmt.Sprint(owner[2], " in ", 1<<20), 500, pair.ClaimBytes).Err()
	}
}

// TestLateClaim has the claim of a killed import arrive while the next command begins. Before that
// one's first script it is taken over, after it refused.
func TestLateClaim(t *testing.T) {
	k := keysOf("orders")
	t.Run("rollback", func(t *testing.T) {
		s, c := redistest.Start(t), belfrytest.Start(t).Client(t)
		claim := lateClaim(t, s.Client(), func() error {
			_, err := Import(t.Context(), s.Client(), c, ImportOptions{RedisQueue: "orders", Share: 1})
			return err
		})
		late := &interleaved{at: 3, argument: k.state, before: func(ctx context.Context, _ redis.Cmder, _ redis.ProcessHook) {
			if err := claim(ctx); err != nil {
				t.Error(err)
			}
		}}
		back, err := Rollback(t.Context(), hooked(t, s, late), c, ExportOptions{RedisQueue: "orders", Share: 1})
		if err != nil || back.Returned != 2 || !late.done.Load() {
			t.Errorf("the rollback counted %+v, %v", back, err)
		}
		if n, left := s.Client().ZCard(t.Context(), k.Timer).Val(), s.Client().Exists(t.Context(),
			k.handover).Val(); n != 2 || left != 0 {
			t.Errorf("Redisson has %d entries, the hand-over key is there: %d", n, left)
		}
	})
	t.Run("finalize", func(t *testing.T) {
		s, c := redistest.Start(t), belfrytest.Start(t).Client(t)
		claim := lateClaim(t, s.Client(), func() error {
			_, err := Import(t.Context(), s.Client(), c, ImportOptions{RedisQueue: "orders", Share: 1})
			return err
		})
		if _, err := Finalize(t.Context(), s.Client(), c, FinalizeOptions{RedisQueue: "orders"}); err != nil {
			t.Fatal(err)
		}
		if err := claim(t.Context()); !redis.HasErrorPrefix(err, "BELFRYFENCE") {
			t.Errorf("the late claim: %v", err)
		}
		if n := s.Client().ZCard(t.Context(), k.Timer).Val(); n != 1 {
			t.Errorf("Redisson has %d entries", n)
		}
	})
}
