package mirror_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/client/belfrytest"
	"github.com/belfrydb/belfry/mirror"
	"github.com/belfrydb/belfry/mirror/redisconn"
	"github.com/belfrydb/belfry/mirror/redisson"
	"github.com/belfrydb/belfry/mirror/redistest"
	"github.com/belfrydb/belfry/mirror/redistest/redissontest"
)

// connect is a client for a URL.
func connect(t *testing.T, url string) redis.UniversalClient {
	t.Helper()
	r, err := redisconn.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// running is a bridge that runs for the time of a test.
type running struct {
	t       *testing.T
	stop    context.CancelFunc
	done    chan error
	notices chan string
	acked   chan int64
}

// bridge runs a bridge of the queue orders.
func bridge(t *testing.T, r redis.UniversalClient, c *client.Client, o mirror.BridgeOptions) *running {
	ctx, stop := context.WithCancel(t.Context())
	b := &running{t: t, stop: stop, done: make(chan error, 1), notices: make(chan string, 10_000),
		acked: make(chan int64, 10_000)}
	o.Codec, o.Share = redisson.Bytes, 1
	if o.RedisQueue == "" {
		o.RedisQueue = "orders"
	}
	o.Notice = func(err error) { b.notices <- err.Error() }
	o.Progress = func(n mirror.BridgeCounts) { b.acked <- n.In.Acked }
	go func() { b.done <- mirror.Bridge(ctx, r, c, o) }()
	t.Cleanup(b.end)
	return b
}

// noticed waits until it has said something.
func (b *running) noticed(word string) {
	b.t.Helper()
	for {
		select {
		case text := <-b.notices:
			if strings.Contains(text, word) {
				return
			}
		case err := <-b.done:
			b.done <- err
			b.t.Fatalf("it ended with %v, and never said %q", err, word)
		}
	}
}

// took waits until it has brought over so many entries.
func (b *running) took(entries int64) {
	b.t.Helper()
	for {
		select {
		case n := <-b.acked:
			if n >= entries {
				return
			}
		case err := <-b.done:
			b.done <- err
			b.t.Fatalf("it ended with %v before it took %d entries", err, entries)
		}
	}
}

// end stops it, and looks that nothing else has.
func (b *running) end() {
	b.stop()
	err := <-b.done
	if b.done <- err; !errors.Is(err, context.Canceled) {
		b.t.Errorf("the bridge ended with %v", err)
	}
}

// through has entries of Redisson and jobs of Belfry delivered to the ready list of a server, each
// once.
func through(t *testing.T, s *redistest.Server, c *client.Client, queue, name string) {
	t.Helper()
	app := redissontest.New(s.Client(), queue, redissontest.NewGeneration, time.Now)
	want := map[string]bool{}
	for n := range 10 {
		offered, put := fmt.Sprintf("%s, offered %d", name, n), fmt.Sprintf("%s, put %d", name, n)
		want[offered], want[put] = true, true
		if err := app.Offer(t.Context(), []byte(offered), time.Now()); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Put(t.Context(), "orders", []byte(put)); err != nil {
			t.Fatal(err)
		}
	}
	take(t, app, want, func() bool { return len(want) == 0 })
}

// empty waits until Belfry has no job left: the last ones are acked.
func empty(t *testing.T, c *client.Client) {
	t.Helper()
	for left := int(1); left > 0; {
		queue, err := c.Admin().Queue(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		left = queue.Delayed + queue.Ready + queue.Reserved
	}
}

// TestSentinelFailover: a bridge goes on when a Sentinel has made the replica the primary, because
// the primary died or hangs.
func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(*redistest.Server){"killed": (*redistest.Server).Kill,
		"hangs": (*redistest.Server).Pause} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			primary, c := redistest.Start(t), belfrytest.Start(t).Client(t)
			replica := primary.Replica(t)
			sentinel, url := primary.Sentinel(t)
			bridge(t, connect(t, url), c, mirror.BridgeOptions{})
			through(t, primary, c, "orders", "before")
			empty(t, c)
			fail(primary)
			sentinel.Primary(replica)
			through(t, replica, c, "orders", "after")
		})
	}
}

// TestSentinelUnknown: a name that no Sentinel knows is told at once.
func TestSentinelUnknown(t *testing.T) {
	t.Parallel()
	primary := redistest.Start(t)
	primary.Replica(t)
	_, url := primary.Sentinel(t)
	err := mirror.Bridge(t.Context(), connect(t, url+"s"), belfrytest.Start(t).Client(t),
		mirror.BridgeOptions{RedisQueue: "orders"})
	if err == nil || !strings.Contains(err.Error(), "no Sentinel knows a primary of the name") ||
		strings.Count(err.Error(), "no Sentinel") != 1 {
		t.Errorf("it ended with %v", err)
	}
}

// TestStates puts Redis into states in which it refuses to write, while entries wait there and jobs
// fall due. The bridge says so and goes on afterwards; one that begins meanwhile is refused.
func TestStates(t *testing.T) {
	t.Parallel()
	s, other, c := redistest.Start(t), redistest.Start(t), belfrytest.Start(t).Client(t)
	r, app := s.Client(), redissontest.New(s.Client(), "orders", redissontest.NewGeneration, time.Now)
	b := bridge(t, r, c, mirror.BridgeOptions{})
	through(t, s, c, "orders", "at first")
	setting := func(name, value string) func() {
		return func() {
			if err := r.ConfigSet(t.Context(), name, value).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	follow := func(address ...string) func() {
		return func() {
			if err := r.ReplicaOf(t.Context(), address[0], address[1]).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	host, port, err := net.SplitHostPort(other.Address())
	if err != nil {
		t.Fatal(err)
	}
	for n, test := range []struct {
		word         string
		enter, leave func()
	}{
		{"maxmemory", setting("maxmemory", "1"), setting("maxmemory", "0")},
		{"lacks replicas", setting("min-replicas-to-write", "1"), setting("min-replicas-to-write", "0")},
		{"cannot write to its disk", s.CannotSave, s.CanSave},
		// the other has nothing: what Redis had is forgotten as well
		{"a read-only replica; name its primary", follow(host, port), follow("NO", "ONE")},
	} {
		put := fmt.Sprintf("put %d", n)
		test.enter()
		if _, err := c.Put(t.Context(), "orders", []byte(put)); err != nil {
			t.Fatal(err)
		}
		b.noticed(test.word)
		err := mirror.Bridge(t.Context(), r, c, mirror.BridgeOptions{RedisQueue: "orders"})
		if err == nil || !strings.Contains(err.Error(), test.word) || strings.Count(err.Error(), ": ") > 2 {
			t.Errorf("%s: one that begins ended with %v", test.word, err)
		}
		test.leave()
		want := map[string]bool{put: true}
		take(t, app, want, func() bool { return len(want) == 0 })
	}
	through(t, s, c, "orders", "at last")
}

// TestFollowStates is the same for an import that follows, whose entries came while Redis still
// wrote.
func TestFollowStates(t *testing.T) {
	t.Parallel()
	s, c := redistest.Start(t), belfrytest.Start(t).Client(t)
	r := s.Client()
	b := bridge(t, r, c, mirror.BridgeOptions{NoOut: true})
	offer(t, r, "orders", "x")
	b.took(1)
	for n, setting := range []struct{ name, refuses, takes string }{{"maxmemory", "1", "0"}, {"min-replicas-to-write",
		"1", "0"}} {
		entry := member(byte(n+1), "x")
		if _, err := r.TxPipelined(t.Context(), func(p redis.Pipeliner) error {
			p.ZAdd(t.Context(), timerKey, redis.Z{Score: float64(time.Now().Add(time.Hour).UnixMilli()), Member: entry})
			p.RPush(t.Context(), listKey, entry)
			p.ConfigSet(t.Context(), setting.name, setting.refuses)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		b.noticed("this Redis")
		if err := r.ConfigSet(t.Context(), setting.name, setting.takes).Err(); err != nil {
			t.Fatal(err)
		}
		b.took(int64(n + 2))
	}
}

// TestReplicas: a job is acked once a replica has its payload. What the primary had answered before
// it died, and the replica does not have, is delivered there once more; without that it is lost.
func TestReplicas(t *testing.T) {
	t.Parallel()
	for _, replicas := range []int{0, 1} {
		t.Run(fmt.Sprint(replicas), func(t *testing.T) {
			t.Parallel()
			primary, c := redistest.Start(t), belfrytest.Start(t).Client(t)
			replica := primary.Replica(t)
			replica.Replica(t) // what the replica needs once it is the primary
			var address atomic.Value
			address.Store(primary.Address())
			r := redis.NewClient(&redis.Options{MaxRetries: -1, Dialer: func(ctx context.Context, network,
				_ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, address.Load().(string))
			}})
			defer r.Close()
			b := bridge(t, r, c, mirror.BridgeOptions{Replicas: replicas})
			through(t, primary, c, "orders", "before")
			primary.CutReplicas()
			if _, err := c.Put(t.Context(), "orders", []byte("late"), client.ID("late")); err != nil {
				t.Fatal(err)
			}
			app := redissontest.New(primary.Client(), "orders", redissontest.NewGeneration, time.Now)
			want := map[string]bool{"late": true}
			take(t, app, want, func() bool { return len(want) == 0 })
			if replicas == 0 { // it is acked when the next one is
				through(t, primary, c, "orders", "meanwhile")
				empty(t, c)
			} else {
				b.noticed("too few replicas")
			}
			_, err := c.Get(t.Context(), "orders", "late")
			if kept := err == nil; kept != (replicas > 0) || !kept && !errors.Is(err, client.ErrJobNotFound) {
				t.Errorf("Belfry has the job: %v, %v", kept, err)
			}
			address.Store(replica.Address())
			primary.Kill()
			if err := replica.Client().ReplicaOf(t.Context(), "NO", "ONE").Err(); err != nil {
				t.Fatal(err)
			}
			if replicas > 0 {
				want["late"] = true
				take(t, redissontest.New(replica.Client(), "orders", redissontest.NewGeneration, time.Now), want,
					func() bool { return len(want) == 0 })
			}
			through(t, replica, c, "orders", "after")
		})
	}
}

// TestReplicasExport: a job leaves Belfry once a replica has its entry, and an export that could
// not have that does not begin.
func TestReplicasExport(t *testing.T) {
	t.Parallel()
	primary, c := redistest.Start(t), belfrytest.Start(t).Client(t)
	if _, err := c.Put(t.Context(), "orders", []byte("x"), client.ID("one")); err != nil {
		t.Fatal(err)
	}
	options := mirror.ExportOptions{RedisQueue: "orders", Format: redisson.New, Codec: redisson.Bytes, Replicas: 1}
	refused(t, primary.Client(), c, func() error {
		_, err := mirror.Export(t.Context(), primary.Client(), c, options)
		return err
	}, "too few replicas", "0, want 1", "--replicas")
	primary.Replica(t)
	held, err := c.Reserve(t.Context(), client.ReserveOptions{Queues: []string{"orders"}, Wait: time.Minute})
	if err != nil || len(held) != 1 {
		t.Fatal(held, err)
	}
	notices, done := make(chan string, 10_000), make(chan error, 1)
	options.Notice = func(err error) { notices <- err.Error() }
	go func() {
		_, err := mirror.Export(t.Context(), primary.Client(), c, options)
		done <- err
	}()
	noticed := func(word string) {
		for {
			select {
			case text := <-notices:
				if strings.Contains(text, word) {
					return
				}
			case err := <-done:
				t.Fatalf("it ended with %v, and never said %q", err, word)
			}
		}
	}
	noticed("jobs are left")
	primary.CutReplicas()
	if _, _, err := c.Release(t.Context(), held[0].Lease, time.Hour); err != nil {
		t.Fatal(err)
	}
	noticed("too few replicas")
	if _, err := c.Get(t.Context(), "orders", "one"); err != nil {
		t.Errorf("Belfry has the job no more: %v", err)
	}
	primary.RestoreReplicas()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if left, back := delayed(t, c, "orders"), entries(t, primary.Client(), "orders"); left != 0 || len(back) != 1 {
		t.Errorf("%d jobs are left, %d went back", left, len(back))
	}
}

// TestDialFails has the connections that a bridge makes fail for a while, from each of them on, one
// bridge after the other.
func TestDialFails(t *testing.T) {
	t.Parallel()
	s, c := redistest.Start(t), belfrytest.Start(t).Client(t)
	for bad, made := int64(1), int64(1); bad <= made; bad++ {
		var dials atomic.Int64
		r := redis.NewClient(&redis.Options{MaxRetries: -1, DialerRetries: 1, Dialer: func(ctx context.Context, network,
			_ string) (net.Conn, error) {
			if n := dials.Add(1); n >= bad && n < bad+3 { // one that listens is tried twice at once
				return nil, &net.OpError{Op: "dial", Err: errors.New("it fails")}
			}
			return new(net.Dialer).DialContext(ctx, network, s.Address())
		}})
		queue := fmt.Sprintf("orders-%d", bad)
		b := bridge(t, r, c, mirror.BridgeOptions{RedisQueue: queue})
		offer(t, s.Client(), queue, "x")
		b.took(1)
		b.end()
		made = dials.Load()
		r.Close()
	}
}
