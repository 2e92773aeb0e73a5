package oneway_test

import (
	"context"
	"encoding/hex"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/client/belfrytest"
	"github.com/belfrydb/belfry/mirror/fromlmstfy"
	"github.com/belfrydb/belfry/mirror/lmstfy"
	"github.com/belfrydb/belfry/mirror/oneway"
	"github.com/belfrydb/belfry/mirror/redistest"
)

// What a real server wrote: a delayed job with three tries, and a ready one.
const (
	lmstfyDelayedID  = "01M7YV5MC8FK8Q51Y1PC80W000"
	lmstfyMemberHex  = "03006e73310200713103001a0030314d375956354d4338464b3851353159315043383057303030"
	lmstfyReadyID    = "01M7YV5MCGJ9WWV0GCV0000000"
	lmstfyElementHex = "01001a0030314d375956354d43474a395757563047435630303030303030"
)

func unhex(t *testing.T, text string) string {
	t.Helper()
	b, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func source() lmstfy.Queue { return lmstfy.Queue{Namespace: "ns1", Name: "q1"} }

// job reads a job, which must be there.
func job(t *testing.T, c *client.Client, queue, id string) *client.Job {
	t.Helper()
	j, err := c.Get(t.Context(), queue, id)
	if err != nil {
		t.Fatalf("job %s: %v", id, err)
	}
	return j
}

// nothingLeft fails the test if Redis has keys other than those named.
func nothingLeft(t *testing.T, r *redis.Client, but ...string) {
	t.Helper()
	keys, err := r.Keys(t.Context(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(keys)
	slices.Sort(but)
	if diff := cmp.Diff(but, keys); diff != "" {
		t.Errorf("keys that are left (-want +got):\n%s", diff)
	}
}

// TestImportLmstfy brings over what a stopped server has, and looks at all that a job says.
func TestImportLmstfy(t *testing.T) {
	t.Parallel()
	r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
	s := &lmstfyServer{redisDo: redisDo{t, r}, ns: "ns1", q: "q1"}
	other := &lmstfyServer{redisDo: redisDo{t, r}, ns: "ns1", q: "q10", serial: 1 << 20}
	now := time.Now().Truncate(time.Second)
	due := now.Add(time.Hour)

	s.value(lmstfyDelayedID, "from a real server", 24*time.Hour)
	s.do("ZADD", "timer_set", due.Unix(), unhex(t, lmstfyMemberHex))
	s.value(lmstfyReadyID, "", 0)
	s.do("LPUSH", s.ready(), unhex(t, lmstfyElementHex))
	versioned := "1" + s.id(now, time.Minute)
	s.value(versioned, `{"body":"bm93","attributes":{"trace":"abc"}}`, 0)
	s.do("ZADD", "timer_set", now.Add(time.Minute).Unix(), s.pack("timer", 65535, versioned))
	foreign := "1" + s.id(now, time.Minute)
	s.value(foreign, "not JSON", 0)
	s.do("ZADD", "timer_set", now.Add(time.Minute).Unix(), s.pack("timer", 1, foreign))
	held := s.publish(now, "held", 0, time.Hour, 3)
	if first, second := s.consume(now, 10*time.Minute), s.consume(now, 10*time.Minute); first != lmstfyReadyID ||
		second != held {
		t.Fatalf("%s and %s were handed out", first, second)
	}
	empty, zero := s.publish(now, "", 0, 0, 7), s.publish(now, "zero", 0, 0, 0)
	finished := s.publish(now, "finished", time.Minute, time.Hour, 1)
	s.ack(finished)
	elsewhere := other.publish(now, "elsewhere", time.Hour, 0, 1)

	counts, err := fromlmstfy.Import(t.Context(), r, c, fromlmstfy.Options{Source: source(),
		Options: oneway.Options{Stopped: true, Share: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if counts.Claimed != 6 || counts.Committed != 6 || counts.Acked != 6 || counts.Dead != 1 ||
		counts.Gone+counts.SetAside+counts.Unnamed+counts.Unread+counts.Repeated != 0 {
		t.Errorf("the import counted %+v", counts)
	}
	written := job(t, c, "ns1/q1", lmstfyDelayedID)
	if string(written.Body) != "from a real server" || !written.DueAt.Equal(due) || written.MaxAttempts != 3 ||
		written.State != "DELAYED" {
		t.Errorf("the delayed job is %+v", written)
	}
	if left := written.ExpiresAt.Sub(written.CreatedAt); left > 24*time.Hour || left < 24*time.Hour-time.Minute {
		t.Errorf("the delayed job lives for %v", left)
	}
	attributes := job(t, c, "ns1/q1", versioned)
	if string(attributes.Body) != "now" || attributes.Headers["trace"] != "abc" || attributes.MaxAttempts != 65535 ||
		!attributes.ExpiresAt.IsZero() {
		t.Errorf("the job with attributes is %+v", attributes)
	}
	if body := job(t, c, "ns1/q1", foreign).Body; string(body) != "not JSON" {
		t.Errorf("the body that is not of its form is %q", body)
	}
	if j := job(t, c, "ns1/q1", held); !j.DueAt.Equal(now.Add(10*time.Minute)) || j.MaxAttempts != 2 ||
		j.ExpiresAt.IsZero() {
		t.Errorf("the reserved job is %+v", j)
	}
	if j := job(t, c, "ns1/q1", empty); len(j.Body) != 0 || j.MaxAttempts != 7 || j.State != "READY" {
		t.Errorf("the ready job is %+v", j)
	}
	if j := job(t, c, "ns1/q1", zero); j.MaxAttempts != 1 {
		t.Errorf("the ready job without a try is %+v", j)
	}
	// The other one that is reserved had one try: its lease will end it as a dead letter, and those
	// stay.
	nothingLeft(t, r, "timer_set", other.key(elsewhere), s.key(lmstfyReadyID), "belfry_mirror:lmstfy:ns1/q1")
}

// TestImportLmstfyReserved leaves what consumers hold while servers run, and takes it once it was
// let go.
func TestImportLmstfyReserved(t *testing.T) {
	t.Parallel()
	r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
	s := &lmstfyServer{redisDo: redisDo{t, r}, ns: "ns1", q: "q1"}
	now := time.Now()
	s.publish(now, "one", 0, 0, 3)
	s.publish(now.Add(-10*time.Second), "two", 10*time.Second, 0, 3)
	s.pump(now)
	held := []string{s.consume(now, 3*time.Second), s.consume(now, 3*time.Second)}
	o := fromlmstfy.Options{Source: source(), Options: oneway.Options{Queue: "jobs", Share: 1}}
	counts, err := fromlmstfy.Import(t.Context(), r, c, o)
	if err != nil || counts.Claimed != 0 || counts.Reserved != 2 {
		t.Fatalf("the import counted %+v, error %v", counts, err)
	}
	if !s.ack(held[0]) {
		t.Error("the job was gone although a consumer held it")
	}
	s.pump(now.Add(3 * time.Second))
	counts, err = fromlmstfy.Import(t.Context(), r, c, o)
	if err != nil || counts.Claimed != 1 || counts.Reserved != 0 {
		t.Errorf("the import counted %+v, error %v", counts, err)
	}
	if j := job(t, c, "jobs", held[1]); j.MaxAttempts != 2 {
		t.Errorf("the job that was let go is %+v", j)
	}
	nothingLeft(t, r, "belfry_mirror:lmstfy:ns1/q1")
}

// TestImportLmstfyDead does with dead letters what it is told: those of the list, and one that
// would become one at the end of its lease.
func TestImportLmstfyDead(t *testing.T) {
	t.Parallel()
	server, c := redistest.Start(t), belfrytest.Start(t).Client(t)
	r := server.Client()
	for _, dead := range []fromlmstfy.DeadLetters{fromlmstfy.DeadLeave, fromlmstfy.DeadQueue, fromlmstfy.DeadRespawn} {
		t.Run(string(dead), func(t *testing.T) {
			s := &lmstfyServer{redisDo: redisDo{t, r}, ns: "ns1", q: "q1"}
			s.do("FLUSHDB")
			now := time.Now().Truncate(time.Second)
			letter := s.publish(now, "dead", 0, time.Hour, 1)
			s.consume(now, 2*time.Second)
			s.pump(now.Add(2 * time.Second))
			dying := s.publish(now, "dying", 0, time.Hour, 1)
			s.consume(now, time.Minute)
			queue := "jobs-" + string(dead)
			counts, err := fromlmstfy.Import(t.Context(), r, c, fromlmstfy.Options{
				Source: source(), Dead: dead, Options: oneway.Options{Queue: queue, Stopped: true, Share: 1},
			})
			if err != nil {
				t.Fatal(err)
			}
			state := "belfry_mirror:lmstfy:ns1/q1"
			switch dead {
			case fromlmstfy.DeadLeave:
				if counts.Claimed != 0 || counts.Dead != 2 || counts.Unnamed != 0 {
					t.Errorf("the import counted %+v", counts)
				}
				nothingLeft(t, r, "timer_set", s.dead(), s.key(letter), s.key(dying), state)
				return
			case fromlmstfy.DeadQueue:
				queue += ".dead"
			case fromlmstfy.DeadRespawn: // into the queue itself
			}
			for _, id := range []string{letter, dying} {
				if j := job(t, c, queue, id); j.MaxAttempts != 1 || !j.ExpiresAt.IsZero() {
					t.Errorf("the dead letter is %+v", j)
				}
			}
			if q, err := c.Admin().Queue(t.Context(), queue); err != nil || !*q.Settings.DedupForever {
				t.Errorf("the queue forgets ids: %v, error %v", q.Settings, err)
			}
			nothingLeft(t, r, state)
		})
	}
}

// TestImportLmstfyBad refuses what cannot be brought over before anything changes, and sets it
// aside if told to.
func TestImportLmstfyBad(t *testing.T) {
	t.Parallel()
	r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
	s := &lmstfyServer{redisDo: redisDo{t, r}, ns: "ns1", q: "q1"}
	now := time.Now().Truncate(time.Second)
	long := s.publish(now, strings.Repeat("x", 1<<20+1), time.Hour, 0, 1)
	good := s.publish(now, "good", time.Hour, 0, 1)
	ready := s.publish(now, "ready", 0, 0, 1)
	s.do("RPUSH", s.ready(), "\x01\x00\x09\x00short")
	s.do("ZADD", "timer_set", 1700000000, s.pack("timer", 1, "no ULID"))
	lost := s.id(now, 0)
	s.value(lost, "lost", 0)
	before := redistest.Dump(t, r)
	o := fromlmstfy.Options{Source: source(), Options: oneway.Options{Stopped: true, Share: 1}}
	if _, err := fromlmstfy.Import(t.Context(), r, c, o); err == nil || !strings.Contains(err.Error(),
		"3 jobs cannot be brought over") {
		t.Errorf("the import ended with %v", err)
	}
	if diff := cmp.Diff(before, redistest.Dump(t, r)); diff != "" {
		t.Errorf("the refused import changed something (-before +after):\n%s", diff)
	}
	o.SetAside = true
	counts, err := fromlmstfy.Import(t.Context(), r, c, o)
	if err != nil || counts.SetAside != 2 || counts.Unread != 1 || counts.Unnamed != 1 || counts.Acked != 2 {
		t.Errorf("the import counted %+v, error %v", counts, err)
	}
	job(t, c, "ns1/q1", good)
	job(t, c, "ns1/q1", ready)
	names := []string{"belfry_mirror:lmstfy:ns1/q1", "belfry_aside:lmstfy:ns1/q1", "belfry_unread:lmstfy:ns1/q1",
		"timer_set", s.key(long)}
	nothingLeft(t, r, append(names, s.key(lost))...)
	o.Unnamed = true
	counts, err = fromlmstfy.Import(t.Context(), r, c, o)
	if err != nil || counts.Acked != 1 || counts.Unnamed != 0 {
		t.Errorf("the import of what nothing names counted %+v, error %v", counts, err)
	}
	if body := job(t, c, "ns1/q1", lost).Body; string(body) != "lost" {
		t.Errorf("the lost job has %q", body)
	}
	nothingLeft(t, r, names...)
}

// TestImportLmstfyRestores gives back what Belfry refuses only when it is put: each to where it
// was.
func TestImportLmstfyRestores(t *testing.T) {
	t.Parallel()
	r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
	s := &lmstfyServer{redisDo: redisDo{t, r}, ns: "ns1", q: "q1"}
	now := time.Now().Truncate(time.Second)
	far := 110 * 8766 * time.Hour // further than Belfry looks ahead
	s.publish(now, "far", far, 0, 5)
	before := redistest.Dump(t, r)
	o := fromlmstfy.Options{Source: source(), Options: oneway.Options{Share: 1}}
	if _, err := fromlmstfy.Import(t.Context(), r, c, o); err == nil || !strings.Contains(err.Error(), "was given back") {
		t.Errorf("the import ended with %v", err)
	}
	after := redistest.Dump(t, r)
	delete(after, "belfry_mirror:lmstfy:ns1/q1")
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("it is not as it was (-before +after):\n%s", diff)
	}
	s.do("FLUSHDB")
	bad := strings.Repeat("i", 300) // an id that is too long
	for n, text := range []string{"a", "b"} {
		s.value(bad+text, text, 0)
		s.do("LPUSH", s.ready(), s.pack("list", n+1, bad+text))
	}
	before = redistest.Dump(t, r)
	if _, err := fromlmstfy.Import(t.Context(), r, c, o); err == nil || !strings.Contains(err.Error(), "was given back") {
		t.Errorf("the import ended with %v", err)
	}
	after = redistest.Dump(t, r)
	delete(after, "belfry_mirror:lmstfy:ns1/q1")
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("it is not as it was (-before +after):\n%s", diff)
	}
}

// TestImportLmstfyEnded cancels in Belfry what is finished at lmstfy between the claim and the ack.
func TestImportLmstfyEnded(t *testing.T) {
	t.Parallel()
	server, c := redistest.Start(t), belfrytest.Start(t).Client(t)
	s := &lmstfyServer{redisDo: redisDo{t, server.Client()}, ns: "ns1", q: "q1"}
	s.publish(time.Now(), "ready", 0, 0, 1)
	ended := s.publish(time.Now(), "ended", 0, 0, 1)
	hooked := redis.NewClient(&redis.Options{Addr: server.Address(), MaxRetries: -1})
	t.Cleanup(func() { _ = hooked.Close() }) // nothing is under way
	hooked.AddHook(&between{do: func() {
		if s.do("HEXISTS", "belfry_handover:lmstfy:ns1/q1", s.key(ended)) == int64(1) {
			s.ack(ended)
		}
	}})
	counts, err := fromlmstfy.Import(t.Context(), hooked, c, fromlmstfy.Options{Source: source(),
		Options: oneway.Options{Share: 1}})
	if err != nil || counts.Committed != 2 || counts.Acked != 1 || counts.Gone != 1 {
		t.Errorf("the import counted %+v, error %v", counts, err)
	}
	if there := inBelfry(t, c, "ns1/q1"); there[ended] != 0 || len(there) != 1 {
		t.Errorf("Belfry has %v", there)
	}
	nothingLeft(t, s.r, "belfry_mirror:lmstfy:ns1/q1")
}

// between does something before each command.
type between struct{ do func() }

func (b *between) DialHook(next redis.DialHook) redis.DialHook { return next }

func (b *between) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (b *between) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		b.do()
		return next(ctx, cmd)
	}
}

// TestImportLmstfyComesBack meets a job again that Redis had forgotten to forget, with what is left
// of its life by then: it is the same job.
func TestImportLmstfyComesBack(t *testing.T) {
	t.Parallel()
	r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
	s := &lmstfyServer{redisDo: redisDo{t, r}, ns: "ns1", q: "q1"}
	id := s.publish(time.Now(), "job", 0, time.Hour, 3)
	o := fromlmstfy.Options{Source: source(), Options: oneway.Options{Share: 1}}
	for n := range int64(2) {
		counts, err := fromlmstfy.Import(t.Context(), r, c, o)
		if err != nil || counts.Acked != 1 || counts.Repeated != n {
			t.Errorf("the import counted %+v, error %v", counts, err)
		}
		s.value(id, "job", time.Minute)
		s.do("LPUSH", s.ready(), s.pack("list", 3, id))
	}
	if there := inBelfry(t, c, "ns1/q1"); there[id] != 1 || len(there) != 1 {
		t.Errorf("Belfry has %v", there)
	}
}

// TestImportLmstfyInterrupted ends an import at each of its calls, and runs it again.
func TestImportLmstfyInterrupted(t *testing.T) {
	t.Parallel()
	interrupt(t, func(r *redis.Client) (want []string) {
		s := &lmstfyServer{redisDo: redisDo{t, r}, ns: "ns1", q: "q1", serial: rand.Uint64() >> 40}
		now := time.Now().Truncate(time.Second)
		for n := range 3 {
			want = append(want, s.publish(now, "ready", 0, time.Hour, n+1), s.publish(now, "delayed", time.Hour,
				time.Hour+time.Minute, n+1))
		}
		held := s.publish(now, "held", 0, time.Hour, 9)
		s.do("LMOVE", s.ready(), s.ready(), "LEFT", "RIGHT")
		if s.consume(now, time.Minute) != held {
			t.Fatal("another job was handed out")
		}
		dead := s.publish(now, "dead", 0, time.Hour, 1)
		s.do("LMOVE", s.ready(), s.ready(), "LEFT", "RIGHT")
		if s.consume(now, time.Second) != dead {
			t.Fatal("another job was handed out")
		}
		s.pump(now.Add(2 * time.Second))
		lost := s.id(now, 0)
		s.value(lost, "lost", 0)
		return append(want, held, dead, lost)
	}, func(ctx context.Context, r *redis.Client, c *client.Client, queue string) error {
		_, err := fromlmstfy.Import(ctx, r, c, fromlmstfy.Options{
			Source: source(), Dead: fromlmstfy.DeadRespawn, Options: oneway.Options{Queue: queue, Stopped: true,
				Unnamed: true, Share: 1},
		})
		return err
	})
}

// lmstfyLive is a server of lmstfy as live works with one.
type lmstfyLive struct{ *lmstfyServer }

func (s lmstfyLive) offer(now time.Time, delay time.Duration) string {
	return s.publish(now, "x", delay, 0, 1000)
}
func (s lmstfyLive) move(now time.Time) { s.pump(now) }
func (s lmstfyLive) end(id string) bool { return s.ack(id) }
func (s lmstfyLive) handOut(now time.Time) (string, time.Time) {
	return s.consume(now, 3*time.Second), now.Add(3 * time.Second)
}

func TestImportLmstfyLive(t *testing.T) {
	t.Parallel()
	r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
	live(t, c, lmstfyLive{&lmstfyServer{redisDo: redisDo{t, r}, ns: "ns1", q: "q1"}}, func(ctx context.Context,
		o oneway.Options) (oneway.Counts, error) {
		return fromlmstfy.Import(ctx, r, c, fromlmstfy.Options{Source: source(), Options: o})
	})
	nothingLeft(t, r, "belfry_mirror:lmstfy:ns1/q1")
}
