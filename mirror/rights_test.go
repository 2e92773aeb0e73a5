package mirror_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/client/belfrytest"
	"github.com/belfrydb/belfry/mirror"
	"github.com/belfrydb/belfry/mirror/pair"
	"github.com/belfrydb/belfry/mirror/redisson"
	"github.com/belfrydb/belfry/mirror/redistest"
	"github.com/belfrydb/belfry/mirror/redistest/redissontest"
)

// documented are the rights that the mirror's page lists.
func documented(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile(`(?s)ACL SETUSER mirror on '>secret' (.*?)\nbelfry`).FindSubmatch(text)
	if block == nil {
		t.Fatal("the page has no user")
	}
	return strings.Fields(strings.NewReplacer("\\\n", " ", "'", "").Replace(string(block[1])))
}

// An operation is what a user may do with a queue: prepare is done as one with all rights, work as
// the user, to its end.
type operation struct {
	prepare, work func(ctx context.Context, r redis.UniversalClient, queue string) error
}

func operations(c *client.Client) map[string]operation {
	until := func(ctx context.Context, work func(ctx context.Context, stop func()) error) error {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		if err := work(ctx, stop); !errors.Is(err, context.Canceled) {
			return err
		}
		return nil
	}
	none := func(context.Context, redis.UniversalClient, string) error { return nil }
	come := func(ctx context.Context, r redis.UniversalClient, queue string) error {
		_, err := mirror.Import(ctx, r, c, mirror.ImportOptions{RedisQueue: queue, SetAside: true, Share: 1})
		return err
	}
	return map[string]operation{
		"inspect": {none, func(ctx context.Context, r redis.UniversalClient, queue string) error {
			if _, err := mirror.FindQueues(ctx, r); err != nil {
				return err
			}
			_, err := mirror.Inspect(ctx, r, queue)
			return err
		}},
		"import": {none, func(ctx context.Context, r redis.UniversalClient, queue string) error {
			_, err := mirror.Import(ctx, r, c, mirror.ImportOptions{RedisQueue: queue, Ready: true, SetAside: true, Share: 1})
			return err
		}},
		"run": {none, func(ctx context.Context, r redis.UniversalClient, queue string) error {
			return until(ctx, func(ctx context.Context, stop func()) error {
				return mirror.Bridge(ctx, r, c, mirror.BridgeOptions{RedisQueue: queue, SetAside: true, Codec: redisson.Bytes,
					Share: 1, Progress: func(n mirror.BridgeCounts) {
						if n.Out > 0 && n.In.Acked > 0 {
							stop()
						}
					}})
			})
		}},
		"cutover": {none, func(ctx context.Context, r redis.UniversalClient, queue string) error {
			return until(ctx, func(ctx context.Context, stop func()) error {
				_, err := mirror.Cutover(ctx, r, c, mirror.CutoverOptions{
					ImportOptions: mirror.ImportOptions{RedisQueue: queue, SetAside: true, Share: 1}, Looked: func([]pair.Check,
						time.Duration) {
						stop()
					},
				})
				return err
			})
		}},
		"rollback": {come, func(ctx context.Context, r redis.UniversalClient, queue string) error {
			_, err := mirror.Rollback(ctx, r, c, mirror.ExportOptions{RedisQueue: queue, Format: redisson.New,
				Codec: redisson.Bytes, Share: 1})
			return err
		}},
		"finalize": {func(ctx context.Context, r redis.UniversalClient, queue string) error {
			return errors.Join(come(ctx, r, queue), r.Del(ctx, queue, "belfry_aside:{"+queue+"}").Err())
		}, func(ctx context.Context, r redis.UniversalClient, queue string) error {
			_, err := mirror.Finalize(ctx, r, c, mirror.FinalizeOptions{RedisQueue: queue})
			return err
		}},
	}
}

// fill has a queue with an entry that is due, one that cannot be brought over, and a payload on the
// ready list.
func fill(t *testing.T, r *redis.Client, queue string) {
	t.Helper()
	if err := errors.Join(r.FlushDB(t.Context()).Err(), r.ScriptFlush(t.Context()).Err()); err != nil {
		t.Fatal(err)
	}
	if err := redissontest.New(r, queue, redissontest.NewGeneration, time.Now).Offer(t.Context(), []byte("due"),
		time.Now()); err != nil {
		t.Fatal(err)
	}
	_, err := r.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		bad := member(1, "cannot be brought over")
		p.ZAdd(t.Context(), "redisson_delay_queue_timeout:{"+queue+"}", redis.Z{Score: -1, Member: bad})
		p.RPush(t.Context(), "redisson_delay_queue:{"+queue+"}", bad)
		p.RPush(t.Context(), queue, "due")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestRights lets a user do everything with the rights that the page lists, and takes them away one
// by one: what then cannot be done is refused with a line that names the right, and Redis is as it
// was.
func TestRights(t *testing.T) {
	t.Parallel()
	server, c := redistest.Start(t), belfrytest.Start(t).Client(t)
	rights, cases := documented(t), 0
	for _, without := range append([]string{""}, rights...) {
		// pings are for connections on which nothing comes for long
		if slices.Contains([]string{"-@all", "resetkeys", "resetchannels", "+ping"}, without) {
			continue
		}
		granted := slices.DeleteFunc(slices.Clone(rights), func(right string) bool { return right == without })
		needed := without == ""
		for name, one := range operations(c) {
			cases++
			queue := fmt.Sprintf("orders-%d", cases)
			fill(t, server.Client(), queue)
			if err := one.prepare(t.Context(), server.Client(), queue); err != nil {
				t.Fatal(err)
			}
			user := server.User("app", strings.Split(strings.ReplaceAll(strings.Join(granted, " "), "~orders", "~"+queue),
				" ")...)
			before := redistest.Dump(t, server.Client())
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			err := one.work(ctx, connect(t, user), queue)
			cancel()
			if err == nil {
				continue
			}
			needed = true
			if word := strings.Trim(without, "+~&*:"); word == "" || strings.Contains(err.Error(), "\n") ||
				!strings.Contains(err.Error(), word) || !strings.Contains(err.Error(), "the Redis user ") {
				t.Errorf("%s without %s: %v", name, without, err)
			}
			if after := redistest.Dump(t, server.Client()); !maps.Equal(before, after) {
				t.Errorf("%s without %s has changed Redis (%v):\n%s", name, without, err, cmp.Diff(before, after))
			}
		}
		if !needed {
			t.Errorf("nobody needs %s", without)
		}
	}
}
