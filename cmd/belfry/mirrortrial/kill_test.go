package mirrortrial

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

var kills = flag.Int("trial.kills", 10, "how often each of the TestKill… kills its commands")

const (
	// killQueues is how many queues a trial of kills has: each is out of work for the length of a hold
	// after a kill.
	killQueues = 4
	// longTrial is how many kills make a trial one that must hit.
	longTrial = 100
	// payloadAt is where the payload of a member of the new format begins.
	payloadAt = 17
	// longDelay is the delay of what is not to fall due within a trial.
	longDelay = time.Hour
)

// soon is a delay that is over within the trial, so that sometimes Redisson delivers and sometimes
// Belfry.
func soon() time.Duration { return rand.N(3 * time.Second) }

// TestKillImport kills `belfry mirror import --follow` while producers, workers and consumers of
// both sides go on, and Redis is restarted and cut off.
func TestKillImport(t *testing.T) {
	t.Parallel()
	s := newStage(t, "always", killQueues)
	var repeats atomic.Int64
	k := &killing{
		stage: s, mark: "belfry_handover",
		args: func(q *queue) []string {
			args := s.mirrorArgs(q, "import", "--follow", "--share", "1")
			if q == s.queues[0] {
				args = append(args, "--ready")
			}
			if rand.IntN(2) == 0 {
				return append(args, "--set-aside")
			}
			return args
		},
		later: func(ctx context.Context, q *queue) { repeats.Add(s.repeatsAhead(ctx, q)) },
	}
	producing, transferring, consuming := s.produce(soon, 0), s.transfer(), s.consume()
	k.run(*kills)
	producing.end()
	var last int64
	for _, q := range s.queues {
		last += s.importAll(q).Repeated
	}
	transferring.end()
	s.await("the jobs of Belfry to be consumed", func(ctx context.Context) (bool, error) {
		for _, q := range s.queues {
			if n, err := s.held(ctx, q); n > 0 || err != nil {
				return false, err
			}
		}
		return true, nil
	})
	consuming.end()
	s.takeReady()
	s.wantEmpty()
	k.print()
	t.Logf("at least %d repeats absorbed, %d of them by the last import; %+v", repeats.Load()+last, last,
		s.ledger.close(t, true))
	if long := *kills >= longTrial; long && (k.hits == 0 || repeats.Load() == 0) {
		t.Error("the kills did not hit")
	}
}

// repeatsAhead counts the claimed entries of a queue that Belfry has or had: the next import puts
// them again.
func (s *stage) repeatsAhead(ctx context.Context, q *queue) int64 {
	members, err := s.rdb.ZRange(ctx, q.key("belfry_handover"), 0, -1).Result()
	if err != nil {
		return 0 // Redis is away, and nothing depends on it
	}
	var n atomic.Int64
	var asking sync.WaitGroup
	for _, member := range members {
		asking.Go(func() {
			sum := sha256.Sum256([]byte("redisson\x001\x00" + q.name + "\x00" + member))
			_, err := s.sdk.Get(ctx, q.name, "redisson:"+hex.EncodeToString(sum[:16]))
			if err == nil || s.ledger.isInBelfry(member[payloadAt:]) {
				n.Add(1)
			}
		})
	}
	asking.Wait()
	return n.Load()
}

// TestKillBridge kills `belfry mirror run` while producers of both sides and workers go on.
// Everything comes to the ready list, once.
func TestKillBridge(t *testing.T) {
	t.Parallel()
	s := newStage(t, "always", killQueues)
	k := &killing{
		stage: s, mark: "belfry_rung",
		args: func(q *queue) []string { return s.mirrorArgs(q, "run", "--share", "1", "--codec", "bytes") },
	}
	offering, putting, transferring := s.produce(soon, 5*time.Millisecond), s.put(soon, time.Millisecond), s.transfer()
	k.run(*kills)
	offering.end()
	putting.end()
	for _, q := range s.queues {
		s.drainBridge(q)
	}
	transferring.end()
	s.takeReady()
	s.wantEmpty()
	k.print()
	t.Logf("%+v", s.ledger.close(t, false))
	if long := *kills >= longTrial; long && k.hits == 0 {
		t.Error("the kills did not hit")
	}
}

// drainBridge has a bridge put everything of a queue on its ready list.
func (s *stage) drainBridge(q *queue) {
	s.t.Helper()
	p := s.run(s.mirrorArgs(q, "run", "--codec", "bytes")...)
	s.await("the bridge to have done everything", func(ctx context.Context) (bool, error) {
		sizes, err := s.sizes(ctx, q)
		if err != nil || sizes["timer"]+sizes["handover"]+sizes["delivered"] > 0 {
			return false, err
		}
		n, err := s.held(ctx, q)
		return n == 0, err
	})
	p.signal(syscall.SIGINT)
}

// refill is how many jobs are put when an export has come to its end before it was killed often
// enough.
const refill = 2000

// TestKillExport kills `belfry mirror export` while jobs are put and workers go on, until
// everything is back in Redis.
func TestKillExport(t *testing.T) {
	t.Parallel()
	s := newStage(t, "always", 2)
	delay := func() time.Duration {
		if rand.IntN(4) == 0 {
			return soon()
		}
		return longDelay
	}
	fill := func(_ context.Context, q *queue) {
		var putting sync.WaitGroup
		for range 8 {
			putting.Go(func() {
				for range refill / 8 {
					s.putOne(q, delay())
				}
			})
		}
		putting.Wait()
	}
	k := &killing{
		stage: s, mark: "belfry_returned", done: fill,
		args: func(q *queue) []string {
			return s.mirrorArgs(q, "export", "--redisson-format", "new", "--codec", "bytes", "--share", "1")
		},
	}
	s.offerMany(refill)
	for _, q := range s.queues {
		s.importAll(q)
		fill(t.Context(), q)
	}
	transferring := s.transfer()
	k.run(*kills)
	for _, q := range s.queues {
		p := s.run(k.args(q)...)
		<-p.ended
		if p.err != nil {
			t.Errorf("the last export of %s ended with %v:\n%s", q.name, p.err, p.tail())
		}
		if n, err := s.held(t.Context(), q); n > 0 || err != nil {
			t.Errorf("Belfry still has %d jobs of %s: %v", n, q.name, err)
		}
	}
	transferring.end()
	s.takeReady()
	for _, q := range s.queues {
		s.stay(q)
	}
	s.wantEmpty("timer", "list")
	k.print()
	t.Logf("%+v", s.ledger.close(t, false))
	if long := *kills >= longTrial; long && k.hits == 0 {
		t.Error("the kills did not hit")
	}
}

// offerMany has each queue get so many entries that do not fall due.
func (s *stage) offerMany(each int) {
	s.t.Helper()
	var offering sync.WaitGroup
	for _, q := range s.queues {
		offering.Go(func() {
			for range each {
				n, payload := s.ledger.begin()
				if err := q.app.Offer(s.t.Context(), payload, time.Now().Add(longDelay)); err != nil {
					s.t.Error(err)
					return
				}
				s.ledger.offered(n)
			}
		})
	}
	offering.Wait()
}

// stay enters what Redisson still holds of a queue, which its list and its timer must agree about.
func (s *stage) stay(q *queue) {
	s.t.Helper()
	payloads, err := q.app.ReadAll(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	for _, payload := range payloads {
		s.ledger.byRedis(string(payload))
	}
	sizes, err := s.sizes(s.t.Context(), q)
	if err != nil || sizes["timer"] != int64(len(payloads)) {
		s.t.Errorf("the list of %s has %d entries, the timer %d: %v", q.name, len(payloads), sizes["timer"], err)
	}
}
