package mirror

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belfrydb/belfry/client/admin"
	"github.com/belfrydb/belfry/client/belfrytest"
	"github.com/belfrydb/belfry/mirror/pair"
	"github.com/belfrydb/belfry/mirror/redistest"
	"github.com/belfrydb/belfry/mirror/redistest/redissontest"
)

// wrong are the things that are not as they must be.
func wrong(checks []pair.Check) []string {
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
		command := map[string][]any{"zset": {"ZADD", test.key, 1, "x"}, "list": {"RPUSH", test.key, "x"}, "set": {"SADD",
			test.key, "x"}, "hash": {"HSET", test.key, "x", "x"}}[test.kind]
		if err := r.Do(t.Context(), command...).Err(); err != nil {
			t.Fatal(err)
		}
		checks, err := Drained(t.Context(), r, "orders")
		if diff := cmp.Diff([]string{test.says}, wrong(checks)); err != nil || len(checks) != 9 || diff != "" {
			t.Errorf("%s: %d checks, %v; not as they must be (-want +got):\n%s", test.key, len(checks), err, diff)
		}
		if _, err := Finalize(t.Context(), r, c, FinalizeOptions{RedisQueue: "orders"}); err == nil ||
			!strings.Contains(err.Error(), test.says+" ("+test.key+" has 1)") {
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
	if checks, err := drained(t.Context(), r, "orders", 1); err != nil || pair.Failed(checks) != nil {
		t.Errorf("it is our own: %v, %v", checks, err)
	}
	if err := news.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestFinalize removes what the mirror keeps in Redis and has the queue forget ids again. Repeating
// it changes nothing.
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
		return isSet(queue.Settings.DedupForever)
	}
	if counts, err := Import(t.Context(), r, c, ImportOptions{RedisQueue: "orders"}); err != nil ||
		counts.Orphans != 1 || !forever() {
		t.Fatalf("the import counted %+v, %v; ids are remembered: %v", counts, err, forever())
	}
	var told []string
	for range 2 {
		if checks, err := Finalize(t.Context(), r, c, FinalizeOptions{RedisQueue: "orders",
			Notice: func(err error) { told = append(told, err.Error()) }}); err != nil || pair.Failed(checks) != nil ||
			forever() {
			t.Errorf("finalize: %v, %v; ids are remembered: %v", checks, err, forever())
		}
		// The fence stays for a while, so that a bridge that was overtaken stays refused.
		state, left := r.HKeys(t.Context(), "belfry_mirror:{orders}").Val(), r.TTL(t.Context(),
			"belfry_mirror:{orders}").Val()
		if n := r.DBSize(t.Context()).Val(); n != 1 || !slices.Equal(slices.Sorted(slices.Values(state)),
			[]string{"ended", "fence"}) || left <= 0 {
			t.Errorf("%d keys are left, the state has %v for %v", n, state, left)
		}
	}
	if left := bodies(t, c); len(left) != 1 {
		t.Errorf("Belfry has %v", left)
	}
	if want := []string{"1 places of Redisson's list that would never have been delivered are removed with " +
		"belfry_orphans:{orders}"}; !slices.Equal(told, want) {
		t.Errorf("it told %q, want %q", told, want)
	}
}

// holdUntil closes held once it has the hold, and keeps it until release is closed.
func holdUntil(t *testing.T, l link, held, release chan struct{}) error {
	return l.WithHold(t.Context(), func(context.Context) error {
		close(held)
		<-release
		return nil
	})
}

// TestCutover follows a process of Redisson, tells what is in the way, and ends when the process
// has.
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
		other <- holdUntil(t, newLink(r, c, pair.Options{RedisQueue: "orders"}), held, release)
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
			Looked: func(checks []pair.Check, _ time.Duration) { looked <- wrong(checks) },
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
	if _, err := Finalize(t.Context(), r, c, FinalizeOptions{RedisQueue: "orders"}); err != nil {
		t.Error(err)
	}
	if left := bodies(t, c); len(left) != 20 {
		t.Errorf("Belfry has %d jobs", len(left))
	}
}

// TestFinalizeKeepsSettings: a queue that remembered ids without end before the first import does
// so afterwards, and one that is paused is named. Another migration looks anew.
func TestFinalizeKeepsSettings(t *testing.T) {
	r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
	app := redissontest.New(r, "orders", redissontest.NewGeneration, time.Now)
	if _, err := c.Admin().CreateQueue(t.Context(), "orders", 1, &admin.QueueSettings{Paused: new(true)}); err != nil {
		t.Fatal(err)
	}
	for _, was := range []bool{true, false, true} {
		if _, err := c.Admin().UpdateQueue(t.Context(), "orders", &admin.QueueSettings{DedupForever: &was}); err != nil {
			t.Fatal(err)
		}
		if err := app.Offer(t.Context(), []byte("a"), time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second sees what the first has set
			if _, err := Import(t.Context(), r, c, ImportOptions{RedisQueue: "orders"}); err != nil {
				t.Fatal(err)
			}
		}
		var told []string
		if _, err := Finalize(t.Context(), r, c, FinalizeOptions{RedisQueue: "orders",
			Notice: func(err error) { told = append(told, err.Error()) }}); err != nil {
			t.Fatal(err)
		}
		if len(told) != 1 || !strings.Contains(told[0], "is paused") {
			t.Errorf("it told %q", told)
		}
		queue, err := c.Admin().Queue(t.Context(), "orders")
		if got := isSet(queue.Settings.DedupForever); err != nil || got != was {
			t.Errorf("without end: %v, was %v, %v", got, was, err)
		}
	}
}

// TestFinalizeSettles: what a killed export or bridge left in both is gone from Belfry, so that
// only what Redis has is in the way.
func TestFinalizeSettles(t *testing.T) {
	r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
	if _, err := c.Put(t.Context(), "orders", []byte("x")); err != nil {
		t.Fatal(err)
	}
	job := reserveOne(t, c)
	told := make(chan error, 100)
	ended := make(chan error, 1)
	withLink(t, r, c, func(ctx context.Context, l *link) error {
		_, _, err := l.Script(ctx, deliverScript, []string{l.keys.Ready, l.keys.delivered}, tagOf(job), job.Body)
		go func() { // which waits, and says so
			checks, err := Finalize(t.Context(), r, c, FinalizeOptions{RedisQueue: "orders",
				Notice: func(err error) { told <- err }})
			if diff := cmp.Diff([]string{"no job waits on the ready list"}, wrong(checks)); diff != "" {
				t.Errorf("not as they must be (-want +got):\n%s", diff)
			}
			ended <- err
		}()
		until(told, pair.ErrHeld)
		return err
	})
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "no job waits on the ready list") {
		t.Errorf("it ended with %v", err)
	}
	if left := bodies(t, c); len(left) != 0 {
		t.Errorf("Belfry has %v", left)
	}
}
