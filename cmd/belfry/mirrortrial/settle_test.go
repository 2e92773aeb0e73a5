package mirrortrial

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/belfrydb/belfry/mirror"
)

// TestKillSettle kills `belfry mirror import --follow` and `belfry mirror settle` by turns, while
// producers, workers and consumers of both sides go on. Settle alone brings over what was claimed
// then; the last import finds nothing half done. Nothing is lost, nothing comes twice, and
// Redisson's clients and Belfry deliver nothing before its time.
func TestKillSettle(t *testing.T) {
	t.Parallel()
	s := newStage(t, "always", killQueues)
	k := &killing{
		stage: s, mark: "belfry_handover",
		args: func(q *queue) []string {
			if rand.IntN(3) == 0 {
				return s.mirrorArgs(q, "settle", "--share", "1")
			}
			return s.mirrorArgs(q, "import", "--follow", "--share", "1")
		},
	}
	for _, q := range s.queues {
		s.offerSoon(q, 1, 0)
	}
	for _, q := range s.queues {
		s.importAll(q) // of a queue that was never mirrored there is nothing to settle
	}
	producing, transferring, consuming := s.produce(soon, 0), s.transfer(), s.consume()
	k.run(*kills)
	producing.end()
	for _, q := range s.queues {
		s.strand(q)
		if found := settleOf[mirror.Unsettled](s, q, "--dry-run"); found.Claimed == 0 || found.Held {
			t.Errorf("%s: a look found %+v, want what a killed import claimed", q.name, found)
		}
		done := settleOf[mirror.Settled](s, q)
		if done.Before.Claimed == 0 || done.BroughtOver != done.Before.Claimed || done.GivenBack != 0 {
			t.Errorf("%s: settled %+v", q.name, done)
		}
		if again := settleOf[mirror.Settled](s, q); again != (mirror.Settled{}) {
			t.Errorf("%s: settled again %+v", q.name, again)
		}
		if counts := s.importAll(q); counts.Repeated != 0 {
			t.Errorf("%s: the import after it counted %+v", q.name, counts)
		}
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
	t.Logf("%+v", s.ledger.close(t, true))
}

// strand has an import claim entries that it cannot put, because the server stands still, and kills
// it then.
func (s *stage) strand(q *queue) {
	s.t.Helper()
	before := s.fenceBefore(s.t.Context(), q)
	p := s.run(s.mirrorArgs(q, "import", "--follow", "--share", "1", "--hold", "5s")...)
	s.t.Cleanup(func() {
		if s.t.Failed() {
			s.t.Logf("%s: the import that was to be stranded wrote:\n%s", q.name, p.tail())
		}
	})
	s.await("the import to have the queue, and to have brought over everything", func(ctx context.Context) (bool, error) {
		sizes, err := s.sizes(ctx, q)
		return s.fence(ctx, q) != before && sizes["timer"]+sizes["handover"] == 0, err
	})
	s.server.Signal(syscall.SIGSTOP)
	s.offerSoon(q, 20, 10*time.Second)
	s.await("entries to be claimed", func(ctx context.Context) (bool, error) {
		sizes, err := s.sizes(ctx, q)
		return sizes["handover"] > 0, err
	})
	p.signal(syscall.SIGKILL)
	s.server.Signal(syscall.SIGCONT)
	s.await("the hold of the killed import to end", func(context.Context) (bool, error) {
		return !settleOf[mirror.Unsettled](s, q, "--dry-run").Held, nil
	})
}

// offerSoon offers so many entries that are due after a delay.
func (s *stage) offerSoon(q *queue, entries int, delay time.Duration) {
	s.t.Helper()
	for range entries {
		n, payload := s.ledger.begin()
		if err := q.app.Offer(s.t.Context(), payload, time.Now().Add(delay)); err != nil {
			s.t.Fatal(err)
		}
		s.ledger.offered(n)
	}
}

// settleOf runs `belfry mirror settle` and returns what it wrote.
func settleOf[T any](s *stage, q *queue, more ...string) (out T) {
	s.t.Helper()
	p := s.run(s.mirrorArgs(q, "settle", append(more, "-o", "json")...)...)
	<-p.ended
	if p.err != nil {
		s.t.Fatalf("the settle of %s ended with %v:\n%s", q.name, p.err, p.tail())
	}
	if err := json.Unmarshal(p.out.Bytes(), &out); err != nil {
		s.t.Fatalf("the settle of %s wrote %q: %v", q.name, p.out.String(), err)
	}
	return out
}
