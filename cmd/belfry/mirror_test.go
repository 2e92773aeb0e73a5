package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belfrydb/belfry/mirror/pair"

	"github.com/belfrydb/belfry/client/belfrytest"
	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/clitest"
	"github.com/belfrydb/belfry/mirror/redistest"
	"github.com/belfrydb/belfry/mirror/redistest/redissontest"
)

// mirrorHarness is a harness with a real server, and a real Redis whose delayed queue orders has
// entries that are due a day after now.
func mirrorHarness(t *testing.T, payloads ...string) (*clitest.Harness, *redistest.Server) {
	t.Helper()
	h, r := newHarness(t, nil), redistest.Start(t)
	h.Env["BELFRY_SERVER"] = belfrytest.Start(t).URL
	h.System.Now = time.Now
	app := redissontest.New(r.Client(), "orders", redissontest.NewGeneration, time.Now)
	for _, payload := range payloads {
		if err := app.Offer(t.Context(), []byte(payload), time.Now().Add(36*time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	return h, r
}

// printed reads the one line of JSON that a command printed.
func printed[T any](t *testing.T, o clitest.Outcome) T {
	t.Helper()
	var value T
	if o.Code != 0 || strings.Count(o.Out, "\n") != 1 {
		t.Errorf("got %+v, want one line", o)
	}
	decoder := json.NewDecoder(strings.NewReader(o.Out))
	if err := decoder.Decode(&value); err != nil {
		t.Fatalf("%q: %v", o.Out, err)
	}
	return value
}

// TestMirrorThereAndBack is a migration by hand, back, and again until its end.
func TestMirrorThereAndBack(t *testing.T) {
	h, r := mirrorHarness(t, `"a"`, `"b"`, `"c"`)
	redis := r.URL()
	h.Run("mirror", "inspect", redis).Holds(t, 0,
		"queue       orders\n", "entries     3, in the list 3, ready 0\n",
		"format      3 new, 0 old, 0 neither\n", "json (3)",
		"7d 3", "import      would bring over 3 entries\n", "! no process of Redisson listens")
	before := r.Client().Dump(t.Context(), "redisson_delay_queue_timeout:{orders}").Val()
	h.Run("mirror", "import", redis, "--queue", "orders", "--dry-run").Holds(t, 0, "entries     3, in the list 3",
		"into        orders, which would be made; it would remember ids without end until finalize; epoch 1\n")
	if r.Client().Dump(t.Context(), "redisson_delay_queue_timeout:{orders}").Val() != before ||
		r.Client().DBSize(t.Context()).Val() != 2 {
		t.Error("the dry run changed something")
	}
	h.Run("mirror", "finalize", redis, "-q", "orders").Holds(t, 1,
		"NO  no entry waits in Redis (redisson_delay_queue_timeout:{orders} has 3)\n", "ok  no entry is set aside",
		"cannot be ended yet")
	h.Run("queue", "show", "orders").Holds(t, cli.CodeNotFound)
	h.Run("mirror", "import", redis, "--queue", "orders", "--codec", "json").Holds(t, 0,
		"claimed          3\n", "put              3, of which Belfry had 0 already\n", "gone from Redis  3\n",
		"decoded          3 of 3\n")
	h.Run("mirror", "inspect", redis, "-q", "orders").Holds(t, 0, "entries     0, in the list 0, ready 0\n", "by cluster ")
	h.Run("mirror", "export", redis, "-q", "orders").Holds(t, 0, "gone back       3\n", "as they came    3\n",
		"ok  the format is that which Redisson reads (new, as the jobs came from Redis in it)\n",
		"NO  a process of Redisson listens (0 connections listen; nothing is delivered until one does)\n",
		"the queue stays paused; 'belfry queue resume orders' ends that\n")
	if after := r.Client().Dump(t.Context(), "redisson_delay_queue_timeout:{orders}").Val(); after != before {
		t.Error("the timer is not as it was")
	}
	code0(t, h.Run("mirror", "finalize", redis, "-q", "orders"), "ok  the jobs are Redisson's again (epoch 2)\n",
		"ok  no entry is set aside")
	code0(t, h.Run("mirror", "cutover", redis, "-q", "orders", "--quiet", "1ms"),
		"put              3, of which Belfry had 0 already\n", "ok  no entry waits in Redis (",
		"'belfry mirror finalize' ends the migration\n")
	code0(t, h.Run("mirror", "finalize", redis, "-q", "orders"), "ok  no entry waits in Redis",
		"\nthe migration has ended")
	// The fence stays for a day.
	if keys := r.Client().Keys(t.Context(), "*").Val(); len(keys) != 1 ||
		r.Client().TTL(t.Context(), "belfry_mirror:{orders}").Val() <= 0 {
		t.Errorf("the keys %q are left in Redis", keys)
	}
}

// code0 is holds for a command that also says how far it is.
func code0(t *testing.T, o clitest.Outcome, words ...string) {
	t.Helper()
	o.Err = ""
	o.Holds(t, 0, words...)
}

// TestMirrorDecoded: how many payloads a codec could read is said if it was none, too.
func TestMirrorDecoded(t *testing.T) {
	h, r := mirrorHarness(t, `"a"`, "b")
	h.Run("mirror", "import", r.URL(), "-q", "orders", "--codec", "json").Holds(t, 0,
		"decoded          1 of 2; the others stay as they are\n")
	if err := redissontest.New(r.Client(), "orders", redissontest.NewGeneration, time.Now).Offer(t.Context(), []byte("c"),
		time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	h.Run("mirror", "import", r.URL(), "-q", "orders", "--codec", "json").Holds(t, 0,
		"decoded          0 of 1; the others stay as they are\n")
}

// TestMirrorInJSON has the same numbers for scripts.
func TestMirrorInJSON(t *testing.T) {
	h, r := mirrorHarness(t, "a", "b", "c")
	if err := r.Client().RPush(t.Context(), "redisson_delay_queue:{orders}", "short").Err(); err != nil {
		t.Fatal(err)
	}
	if err := r.Client().Do(t.Context(), "ZADD", "redisson_delay_queue_timeout:{orders}", 5, "short").Err(); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) clitest.Outcome { return h.Run(append(args, "-o", "json")...) }
	found := printed[struct {
		Redisson []struct {
			Queue              string
			Timer, New, Bad    int64
			Earliest, FirstBad string
		}
	}](t, run("mirror", "inspect", r.URL())).Redisson
	if len(found) != 1 || found[0].Queue != "orders" || found[0].Timer != 4 || found[0].New != 3 || found[0].Bad != 1 ||
		found[0].FirstBad == "" {
		t.Errorf("inspect printed %+v", found)
	}
	counts := printed[map[string]int64](t, run("mirror", "import", r.URL(), "-q", "orders", "--set-aside"))
	if counts["acked"] != 3 || counts["setAside"] != 1 || counts["total"] != 4 || counts["slowestNs"] <= 0 {
		t.Errorf("import printed %v", counts)
	}
	back := printed[struct {
		Returned, Original, Aside int
		Checks                    []pair.Check
	}](t, run("mirror", "rollback", r.URL(), "-q", "orders"))
	if back.Returned != 3 || back.Original != 3 || back.Aside != 1 || len(back.Checks) != 11 {
		t.Errorf("rollback printed %+v", back)
	}
	if err := r.Client().FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	checks := printed[[]struct {
		What, Found string
		OK          bool
	}](t, run("mirror", "finalize", r.URL(), "-q", "orders"))
	if len(checks) != 6 || !checks[0].OK || checks[0].What == "" || checks[0].Found == "" {
		t.Errorf("finalize printed %+v", checks)
	}
	if err := r.Client().FlushAll(t.Context()).Err(); err != nil { // finalize has left its note for a day
		t.Fatal(err)
	}
	if none := printed[map[string]any](t, run("mirror", "inspect", r.URL())); len(none) != 0 {
		t.Errorf("without a queue it printed %v", none)
	}
}

// TestMirrorLists shows some of what cannot be brought over, and says after an import where to
// look.
func TestMirrorLists(t *testing.T) {
	h, r := mirrorHarness(t, "a")
	for n := range 25 {
		if err := r.Client().Do(t.Context(), "ZADD", "redisson_delay_queue_timeout:{orders}", n,
			fmt.Sprintf("\x1bshort%02d", n)).Err(); err != nil {
			t.Fatal(err)
		}
	}
	h.Run("mirror", "import", r.URL(), "-q", "orders", "--set-aside").Holds(t, 0,
		"set aside        25\n", "'belfry mirror inspect REDIS --queue orders' lists what was set aside, and the orphans\n")
	got := h.Run("mirror", "inspect", r.URL(), "-q", "orders")
	got.Holds(t, 0, "in belfry_aside:{orders}:\n  score 0, 8 bytes \"\\x1bshort00\": 8 bytes are no member",
		"  and 5 more; -o json shows up to 1,000 of each key\n")
	if n := strings.Count(got.Out, "\n  score "); n != 20 || strings.Contains(got.Out, "\x1b") {
		t.Errorf("it lists %d, and printed %q", n, got.Out)
	}
}

// TestMirrorRefuses gives each refusal its exit code and one line.
func TestMirrorRefuses(t *testing.T) {
	h, r := mirrorHarness(t, "a")
	app := redissontest.New(r.Client(), "订单", redissontest.NewGeneration, time.Now)
	if err := app.Offer(t.Context(), []byte("a"), time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := "redis://" + listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	secret := redistest.Start(t, redistest.WithTLS(redistest.NewAuthority(t)))
	withoutEval := r.User("app", "+@all", "-evalsha", "-eval", "~*", "&*")
	for _, test := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"import", r.URL()}, cli.CodeUsage, "--queue is missing"},
		{[]string{"import", "-q", "orders"}, cli.CodeUsage, "REDIS"},
		{[]string{"import", r.URL(), "-q", "orders", "--share", "0"}, cli.CodeUsage, "--share"},
		{[]string{"import", r.URL(), "-q", "orders", "--codec", "xml"}, cli.CodeUsage, `there is no codec "xml"`},
		{[]string{"export", r.URL(), "-q", "orders", "--redisson-format", "3.20"}, cli.CodeUsage, "--redisson-format"},
		{[]string{"run", r.URL(), "-q", "orders", "--no-in", "--no-out"}, cli.CodeUsage, "leave nothing to do"},
		{[]string{"import", "app:secret@host", "-q", "orders"}, cli.CodeUsage, "should begin with redis://"},
		{[]string{"inspect", nobody}, cli.CodeUnavailable, "no Redis answers"},
		{[]string{"inspect", r.URL() + "/9999"}, cli.CodeUsage, "no database of that number"},
		{[]string{"inspect", strings.Replace(r.URL(), "://", "+cluster://", 1)}, cli.CodeUsage, "begins with redis://"},
		{[]string{"inspect", strings.Replace(h.URL, "http", "redis", 1)}, cli.CodeUnavailable, "speaks HTTP"},
		{[]string{"inspect", "redis://" + secret.Address()}, cli.CodeUnavailable, "begins with rediss://"},
		{[]string{"inspect", "rediss://" + r.Address() + "?dial_timeout=100ms"}, cli.CodeUnavailable, "begins with redis://"},
		{[]string{"import", nobody, "-q", "orders"}, cli.CodeUnavailable, "no Redis answers"},
		{[]string{"import", r.URL(), "-q", "orders", "--server", strings.TrimPrefix(nobody, "redis://")}, cli.CodeUnavailable,
			"no server answers"},
		{[]string{"import", r.URL(), "-q", "odrers"}, cli.CodeNotFound, `no delayed queue "odrers"`},
		{[]string{"export", r.URL(), "-q", "odrers"}, cli.CodeNotFound, "the queue odrers of Belfry"},
		{[]string{"import", r.URL(), "-q", "订单"}, cli.CodeUsage, "--belfry-queue"},
		{[]string{"import", withoutEval, "-q", "orders"}, cli.CodeForbidden, "lacks a right"},
		{[]string{"import", strings.Replace(withoutEval, "password-of", "no-password-of", 1), "-q", "orders"},
			cli.CodeForbidden, "name a user and its password"},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			got := h.Run(append([]string{"mirror"}, test.args...)...)
			got.Holds(t, test.code, test.says)
			lines := 1
			if test.code == cli.CodeUsage && strings.Contains(got.Err, "--help") {
				lines = 2
			}
			if got.Out != "" || strings.Count(got.Err, "\n") != lines || strings.Contains(got.Err, "secret") {
				t.Errorf("it printed %q and said %q", got.Out, got.Err)
			}
		})
	}
}

// TestMirrorFollowsUntilInterrupted ends a follower as a person does.
func TestMirrorFollowsUntilInterrupted(t *testing.T) {
	h, r := mirrorHarness(t, "a", "b")
	ctx, interrupt := context.WithCancelCause(t.Context())
	ended := make(chan clitest.Outcome, 1)
	go func() { ended <- h.RunContext(ctx, "mirror", "import", r.URL(), "-q", "orders", "--follow") }()
	await(t, "the entries to be gone", func() bool {
		return r.Client().Exists(t.Context(), "redisson_delay_queue_timeout:{orders}", "belfry_handover:{orders}").Val() == 0
	})
	interrupt(cli.Interruption{Signal: syscall.SIGINT})
	got := <-ended
	if got.Code != 130 ||
		got.Err != "belfry: interrupted; what was claimed is brought over by the next run of any mirror command\n" ||
		!strings.Contains(got.Out, "gone from Redis  2\n") {
		t.Errorf("got %+v", got)
	}
}
