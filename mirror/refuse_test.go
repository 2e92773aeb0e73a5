package mirror_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/client/belfrytest"
	"github.com/belfrydb/belfry/mirror"
	"github.com/belfrydb/belfry/mirror/redisconn"
	"github.com/belfrydb/belfry/mirror/redistest"
	"github.com/belfrydb/belfry/mirror/redistest/redissontest"
)

const (
	timerKey = "redisson_delay_queue_timeout:{orders}"
	listKey  = "redisson_delay_queue:{orders}"
)

// queues are the queues that Belfry has, and how many jobs, and whether they are paused.
func queues(t *testing.T, c *client.Client) []string {
	t.Helper()
	var names []string
	for q, err := range c.Admin().Queues(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, fmt.Sprint(q.Name, " ", q.Delayed, " ", *q.Settings.Paused))
	}
	return names
}

// refused runs something that should be refused with one line that has all the words, and looks
// that neither side has changed.
func refused(t *testing.T, r *redis.Client, c *client.Client, work func() error, words ...string) {
	t.Helper()
	before, made := redistest.Dump(t, r), queues(t, c)
	err := work()
	if err == nil {
		t.Fatal("it was not refused")
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("the error lacks %q: %v", word, err)
		}
	}
	if strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "@user_script") {
		t.Errorf("the error is not for people: %v", err)
	}
	if after := redistest.Dump(t, r); !maps.Equal(before, after) {
		t.Errorf("Redis has changed (-before +after):\n%s", cmp.Diff(before, after))
	}
	if diff := cmp.Diff(made, queues(t, c)); diff != "" {
		t.Errorf("Belfry has changed (-before +after):\n%s", diff)
	}
}

// offer adds entries that are due in an hour.
func offer(t *testing.T, r *redis.Client, queue string, payloads ...string) {
	t.Helper()
	app := redissontest.New(r, queue, redissontest.NewGeneration, time.Now)
	for _, payload := range payloads {
		if err := app.Offer(t.Context(), []byte(payload), time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
}

// member is one of the new generation.
func member(number byte, payload string) string {
	size := len(payload)
	return "\x08rand\x00\x00\x00" + string([]byte{number, byte(size), byte(size >> 8), byte(size >> 16), 0, 0, 0, 0,
		0}) + payload
}

// add adds an entry with any score and member.
func add(t *testing.T, r *redis.Client, score any, member string) {
	t.Helper()
	if err := r.Do(t.Context(), "ZADD", timerKey, score, member).Err(); err != nil {
		t.Fatal(err)
	}
	if err := r.RPush(t.Context(), listKey, member).Err(); err != nil {
		t.Fatal(err)
	}
}

// TestRefusesWrongTypes makes each key of a queue something that it is not.
func TestRefusesWrongTypes(t *testing.T) {
	r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
	for _, key := range []string{
		timerKey, listKey, "orders", "belfry_mirror:{orders}", "belfry_handover:{orders}", "belfry_orphans:{orders}",
		"belfry_aside:{orders}",
		"belfry_returned:{orders}", "belfry_rung:{orders}",
	} {
		t.Run(key, func(t *testing.T) {
			if err := r.FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			offer(t, r, "orders", "a", "b")
			if err := r.Set(t.Context(), key, "text", 0).Err(); err != nil {
				t.Fatal(err)
			}
			for _, setAside := range []bool{false, true} {
				refused(t, r, c, func() error {
					_, err := mirror.Import(t.Context(), r, c, mirror.ImportOptions{RedisQueue: "orders", SetAside: setAside})
					return err
				}, "the key "+key+" is a string, should be a ", "rename it")
			}
		})
	}
}

// TestRefusesBadEntries has one entry among good ones that Belfry cannot take.
func TestRefusesBadEntries(t *testing.T) {
	r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
	soon := time.Now().Add(time.Hour).UnixMilli()
	for name, bad := range map[string]struct {
		score         any
		member, words string
	}{
		"negative":     {-5, member(1, "x"), "negative"},
		"fraction":     {"1700000000123.5", member(1, "x"), "no whole number"},
		"infinite":     {"inf", member(1, "x"), "infinite"},
		"exponent":     {"1e17", member(1, "x"), "1e17"},
		"far future":   {time.Now().AddDate(101, 0, 0).UnixMilli(), member(1, "x"), "100 years"},
		"year 100,000": {"3093527980800000", member(1, "x"), "100 years"},
		"empty member": {soon, "", "0 bytes are no member"},
		"short member": {soon, "abc", "3 bytes are no member"},
		"cut member":   {soon, member(1, "long payload")[:20], "no member"},
		"huge member":  {soon, member(1, strings.Repeat("x", 1<<20+1)), "1048577 bytes, a body may have 1048576"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := r.FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			offer(t, r, "orders", "a", "b", "c")
			add(t, r, bad.score, bad.member)
			for _, follow := range []bool{false, true} {
				refused(t, r, c, func() error {
					_, err := mirror.Import(t.Context(), r, c, mirror.ImportOptions{RedisQueue: "orders", Follow: follow})
					return err
				}, "1 entries cannot be brought over, and nothing was changed", "--set-aside", bad.words)
			}
		})
	}
}

// TestRefusesNames has names that Redis or Belfry does not have, or cannot have.
func TestRefusesNames(t *testing.T) {
	r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
	for _, name := range []string{"订单", "{svc}:orders", "\xff\xfe", "a{b", "a}b", "{}x"} {
		t.Run(name, func(t *testing.T) {
			offer(t, r, name, "a", "b")
			refused(t, r, c, func() error {
				_, err := mirror.Import(t.Context(), r, c, mirror.ImportOptions{RedisQueue: name})
				return err
			}, fmt.Sprintf("%q", name), "--belfry-queue")
			counts, err := mirror.Import(t.Context(), r, c, mirror.ImportOptions{RedisQueue: name, Queue: "orders", Share: 1})
			if err != nil || counts.Acked != 2 {
				t.Errorf("with a name of its own in Belfry: %+v, %v", counts, err)
			}
		})
	}
	t.Run("unknown", func(t *testing.T) {
		refused(t, r, c, func() error {
			_, err := mirror.Import(t.Context(), r, c, mirror.ImportOptions{RedisQueue: "odrers"})
			return err
		}, `no delayed queue "odrers"`, "redisson_delay_queue_timeout:{odrers}", "belfry mirror inspect")
		refused(t, r, c, func() error {
			_, err := mirror.Export(t.Context(), r, c, mirror.ExportOptions{RedisQueue: "odrers"})
			return err
		}, "the queue odrers of Belfry")
	})
}

// TestRefusesNamesInCluster has names whose keys are in several slots.
func TestRefusesNamesInCluster(t *testing.T) {
	r, c := redistest.Start(t, redistest.WithCluster()).Client(), belfrytest.Start(t).Client(t)
	for _, name := range []string{"a{b", "a}b", "{}x"} {
		add := r.ZAdd(t.Context(), "redisson_delay_queue_timeout:"+name, redis.Z{Score: 1, Member: "x"})
		if err := add.Err(); err != nil {
			t.Fatal(err)
		}
		refused(t, r, c, func() error {
			_, err := mirror.Import(t.Context(), r, c, mirror.ImportOptions{RedisQueue: name, Queue: "orders"})
			return err
		}, "different slots of the Redis Cluster")
	}
	offer(t, r, "{svc}:orders", "a")
	if counts, err := mirror.Import(t.Context(), r, c, mirror.ImportOptions{RedisQueue: "{svc}:orders",
		Queue: "orders"}); err != nil || counts.Acked != 1 {
		t.Errorf("a name with a hash tag: %+v, %v", counts, err)
	}
}

// TestRefusesReplica reads from a replica and does not try to write to it.
func TestRefusesReplica(t *testing.T) {
	primary, c := redistest.Start(t), belfrytest.Start(t).Client(t)
	offer(t, primary.Client(), "orders", "a")
	r := primary.Replica(t).Client()
	if found, err := mirror.Inspect(t.Context(), r, "orders"); err != nil || found.New != 1 {
		t.Errorf("looking at a replica: %+v, %v", found, err)
	}
	refused(t, r, c, func() error {
		_, err := mirror.Import(t.Context(), r, c, mirror.ImportOptions{RedisQueue: "orders"})
		return err
	}, "a read-only replica; name its primary")
}

// TestRefusesUsers lacks one right at a time.
func TestRefusesUsers(t *testing.T) {
	server, c := redistest.Start(t), belfrytest.Start(t).Client(t)
	offer(t, server.Client(), "orders", "a")
	rights := []string{"+@all", "-@admin", "~redisson_*", "~belfry_*", "~orders", "&redisson_delay_queue_channel:*"}
	for name, test := range map[string]struct {
		without string
		with    []string
		words   []string
	}{
		"redisson's keys":   {"~redisson_*", nil, []string{"~" + timerKey}},
		"the mirror's keys": {"~belfry_*", nil, []string{"~belfry_mirror:{orders}"}},
		"the ready list":    {"~orders", nil, []string{"key orders"}},
		"only reading":      {"~redisson_*", []string{"%R~redisson_*"}, []string{"~" + timerKey, "write"}},
		"the channel": {"&redisson_delay_queue_channel:*", nil, []string{"may not publish",
			"&redisson_delay_queue_channel:{orders}"}},
		"eval":      {"", []string{"-evalsha", "-eval"}, []string{"evalsha", "lacks a right"}},
		"publish":   {"", []string{"-publish"}, []string{"may not publish", "+publish"}},
		"subscribe": {"", []string{"-subscribe"}, []string{"may not subscribe", "+subscribe"}},
		"zadd":      {"", []string{"-zadd"}, []string{"zadd", "lacks a right"}},
		"zrem":      {"", []string{"-zrem"}, []string{"zrem", "lacks a right"}},
		"ltrim":     {"", []string{"-ltrim"}, []string{"ltrim", "lacks a right"}},
		"srem":      {"", []string{"-srem"}, []string{"srem", "lacks a right"}},
		"time":      {"", []string{"-time"}, []string{"time", "lacks a right"}},
		"pubsub":    {"", []string{"-pubsub"}, []string{"pubsub", "lacks a right"}},
	} {
		t.Run(name, func(t *testing.T) {
			rules := append([]string(nil), test.with...)
			for n := len(rights) - 1; n >= 0; n-- {
				if rights[n] != test.without {
					rules = append([]string{rights[n]}, rules...)
				}
			}
			r, err := redisconn.Connect(server.User("app", rules...))
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			refused(t, server.Client(), c, func() error {
				_, err := mirror.Import(t.Context(), r, c, mirror.ImportOptions{RedisQueue: "orders", Follow: true})
				return err
			}, test.words...)
		})
	}
	r, err := redisconn.Connect(server.User("app", rights...))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if counts, err := mirror.Import(t.Context(), r, c, mirror.ImportOptions{RedisQueue: "orders"}); err != nil ||
		counts.Acked != 1 {
		t.Errorf("with all rights: %+v, %v", counts, err)
	}
	if back, err := mirror.Rollback(t.Context(), r, c, mirror.ExportOptions{RedisQueue: "orders"}); err != nil ||
		back.Original != 1 {
		t.Errorf("back with all rights: %+v, %v", back, err)
	}
}

// TestRefusesSecondMirror brings a queue to one place and then tries others.
func TestRefusesSecondMirror(t *testing.T) {
	r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
	offer(t, r, "orders", "a")
	if _, err := mirror.Import(t.Context(), r, c, mirror.ImportOptions{RedisQueue: "orders"}); err != nil {
		t.Fatal(err)
	}
	offer(t, r, "orders", "b")
	id, err := r.HGet(t.Context(), "belfry_mirror:{orders}", "cluster").Result()
	if err != nil {
		t.Fatal(err)
	}
	other := belfrytest.Start(t).Client(t)
	for _, there := range []*client.Client{c, other} {
		if _, err := there.Admin().CreateQueue(t.Context(), "elsewhere", 1, nil); err != nil {
			t.Fatal(err)
		}
		for name, work := range map[string]func(context.Context) error{
			"import": func(ctx context.Context) error {
				_, err := mirror.Import(ctx, r, there, mirror.ImportOptions{RedisQueue: "orders", Queue: "elsewhere"})
				return err
			},
			"rollback": func(ctx context.Context) error {
				_, err := mirror.Rollback(ctx, r, there, mirror.ExportOptions{RedisQueue: "orders", Queue: "elsewhere"})
				return err
			},
			"finalize": func(ctx context.Context) error {
				_, err := mirror.Finalize(ctx, r, there, mirror.FinalizeOptions{RedisQueue: "orders", Queue: "elsewhere"})
				return err
			},
			"run": func(ctx context.Context) error {
				return mirror.Bridge(ctx, r, there, mirror.BridgeOptions{RedisQueue: "orders", Queue: "elsewhere"})
			},
		} {
			t.Run(name, func(t *testing.T) {
				refused(t, r, there, func() error { return work(t.Context()) },
					"mirrored to the queue orders of the Belfry cluster "+id, "finalize there first")
			})
		}
	}
}

// TestRefusesLowerFence is what a process meets that was overtaken, or a Belfry that was restored
// from an older backup.
func TestRefusesLowerFence(t *testing.T) {
	r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
	offer(t, r, "orders", "a")
	if _, err := mirror.Import(t.Context(), r, c, mirror.ImportOptions{RedisQueue: "orders"}); err != nil {
		t.Fatal(err)
	}
	offer(t, r, "orders", "b")
	if err := r.HSet(t.Context(), "belfry_mirror:{orders}", "fence", "99999999999").Err(); err != nil {
		t.Fatal(err)
	}
	for _, work := range []func() error{
		func() error {
			_, err := mirror.Import(t.Context(), r, c, mirror.ImportOptions{RedisQueue: "orders"})
			return err
		},
		func() error {
			_, err := mirror.Export(t.Context(), r, c, mirror.ExportOptions{RedisQueue: "orders"})
			return err
		},
	} {
		refused(t, r, c, work, "the right to mirror this queue was lost", "99999999999", "HDEL belfry_mirror:{orders} fence")
	}
	if err := r.Del(t.Context(), timerKey, listKey).Err(); err != nil {
		t.Fatal(err)
	}
	refused(t, r, c, func() error {
		_, err := mirror.Finalize(t.Context(), r, c, mirror.FinalizeOptions{RedisQueue: "orders"})
		return err
	}, "99999999999")
}
