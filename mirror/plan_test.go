package mirror

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belfrydb/belfry/client/belfrytest"
	"github.com/belfrydb/belfry/mirror/redistest"
	"github.com/belfrydb/belfry/mirror/redistest/redissontest"
)

// wrong are the things that are not as they must be.
func wrong(checks []Check) []string {
	names := []string{}
	for _, check := range checks {
		if !check.OK {
			names = append(names, check.What)
		}
	}
	return names
}

// TestDrained finds each thing that may be left.
func TestDrained(t *testing.T) {
	r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
	for _, test := range []struct {
		key, kind, says string
	}{
		{timerKey, "zset", "no entry waits in Redis"},
		{listKey, "list", "the list of entries is empty"},
		{"orders", "list", "no job waits on the ready list"},
		{"belfry_handover:{orders}", "zset", "every claimed entry is in Belfry"},
		{"belfry_handover_ready:{orders}", "hash", "every claimed payload of the ready list is in Belfry"},
		{"belfry_aside:{orders}", "zset", "no entry is set aside"},
		{"belfry_returned:{orders}", "set", "every job that went back is gone from Belfry"},
		{"belfry_rung:{orders}", "set", "every job put on the ready list is acked"},
	} {
		command := map[string][]any{"zset": {"ZADD", test.key, 1, "x"}, "list": {"RPUSH", test.key, "x"}, "set": {"SADD", test.key, "x"}, "hash": {"HSET", test.key, "x", "x"}}[test.kind]
		if err := r.Do(t.Context(), command...).Err(); err != nil {
			t.Fatal(err)
		}
		checks, err := Drained(t.Context(), r, "orders")
		if diff := cmp.Diff([]string{test.says}, wrong(checks)); err != nil || len(checks) != 9 || diff != "" {
			t.Errorf("%s: %d checks, %v; not as they must be (-want +got):\n%s", test.key, len(checks), err, diff)
		}
		if _, err := Finalize(t.Context(), r, c, "orders", ""); err == nil || !strings.Contains(err.Error(), test.says+" ("+test.key+" has 1)") {
			t.Errorf("finalize with %s: %v", test.key, err)
		}
		if n := r.DBSize(t.Context()).Val(); n != 1 {
			t.Errorf("finalize with %s left %d keys, there was one", test.key, n)
		}
		if err := r.Del(t.Context(), test.key).Err(); err != nil {
			t.Fatal(err)
		}
	}
	news := r.Subscribe(t.Context(), "redisson_delay_queue_channel:{orders}")
	if _, err := news.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	checks, err := Drained(t.Context(), r, "orders")
	if diff := cmp.Diff([]string{"no process of Redisson listens"}, wrong(checks)); err != nil || diff != "" {
		t.Errorf("one listens: %v; not as they must be (-want +got):\n%s", err, diff)
	}
	if checks, err := drained(t.Context(), r, "orders", 1); err != nil || failed(checks) != nil {
		t.Errorf("it is our own: %v, %v", checks, err)
	}
	if err := news.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestFinalize removes what the mirror keeps in Redis and has the queue forget ids again. Repeating it changes nothing.
func TestFinalize(t *testing.T) {
	r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
	app := redissontest.New(r, "orders", redissontest.NewGeneration, time.Now)
	if err := app.Offer(t.Context(), []byte("a"), time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if err := r.RPush(t.Context(), listKey, "an orphan").Err(); err != nil {
		t.Fatal(err)
	}
	forever := func() bool {
		queue, err := c.Admin().Queue(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		return queue.GetSettings().GetDedupForever()
	}
	if counts, err := Import(t.Context(), r, c, ImportOptions{RedisQueue: "orders"}); err != nil || counts.Orphans != 1 || !forever() {
		t.Fatalf("the import counted %+v, %v; ids are remembered: %v", counts, err, forever())
	}
	for range 2 {
		if checks, err := Finalize(t.Context(), r, c, "orders", ""); err != nil || failed(checks) != nil || forever() {
			t.Errorf("finalize: %v, %v; ids are remembered: %v", checks, err, forever())
		}
		// The fence stays for a while, so that whoever was overtaken stays refused.
		state, left := r.HKeys(t.Context(), "belfry_mirror:{orders}").Val(), r.TTL(t.Context(), "belfry_mirror:{orders}").Val()
		if n := r.DBSize(t.Context()).Val(); n != 1 || !slices.Equal(state, []string{"fence"}) || left <= 0 {
			t.Errorf("%d keys are left, the state has %v for %v", n, state, left)
		}
	}
	if left := bodies(t, c); len(left) != 1 {
		t.Errorf("Belfry has %v", left)
	}
}

// TestCutover follows a process of Redisson, tells what is in the way, and ends when the process has.
func TestCutover(t *testing.T) {
	r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
	app := redissontest.New(r, "orders", redissontest.NewGeneration, time.Now)
	for n := range 20 {
		if err := app.Offer(t.Context(), []byte{byte(n)}, time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	// Another mirror has the hold at first: what it sees meanwhile does not count.
	held, release, told := make(chan struct{}), make(chan struct{}), make(chan struct{})
	other := make(chan error, 1)
	go func() {
		other <- hold(t.Context(), c, controlQueue("orders", "orders"), HoldDefault, func() {}, func(context.Context, uint64) error {
			close(held)
			<-release
			return nil
		})
	}()
	<-held
	running, stop := context.WithCancel(t.Context())
	stopped, transferred := make(chan struct{}), make(chan struct{}, 1000)
	app.Observe(func(string, error) { transferred <- struct{}{} })
	go func() {
		app.Run(running)
		close(stopped)
	}()
	<-transferred // it listens
	looked := make(chan []string, 1000)
	waits := true
	ended := make(chan error, 1)
	var counts ImportCounts
	go func() {
		var err error
		counts, err = Cutover(t.Context(), r, c, CutoverOptions{
			ImportOptions: ImportOptions{RedisQueue: "orders", Share: 1, Notice: func(err error) {
				if waits {
					waits = false
					close(told)
				}
			}},
			Quiet:  time.Millisecond,
			Looked: func(checks []Check, _ time.Duration) { looked <- wrong(checks) },
		})
		ended <- err
	}()
	<-told
	select {
	case found := <-looked:
		t.Errorf("it has looked without the hold: %v", found)
	default:
	}
	close(release)
	if err := <-other; err != nil {
		t.Error(err)
	}
	for found := <-looked; !slices.Equal(found, []string{"no process of Redisson listens"}); found = <-looked {
		if len(found) == 0 {
			t.Fatal("nothing is in the way although a process listens")
		}
	}
	stop()
	<-stopped
	if err := <-ended; err != nil || counts.Acked != 20 {
		t.Errorf("it ended with %+v, %v", counts, err)
	}
	if _, err := Finalize(t.Context(), r, c, "orders", ""); err != nil {
		t.Error(err)
	}
	if left := bodies(t, c); len(left) != 20 {
		t.Errorf("Belfry has %d jobs", len(left))
	}
}
