package mirrortrial

import (
	"context"
	"testing"
	"time"

	"github.com/belfrydb/belfry/mirror/redistest"
	"github.com/belfrydb/belfry/mirror/redistest/aof"
)

// takers is how many consumers of Redisson wait for each ready list.
const takers = 3

// TestKillTake kills `belfry mirror run` and Redis while consumers of Redisson take what is
// delivered. A consumer whose take() got no answer has lost its payload: that is Redisson's way,
// with or without a bridge. So each payload that no consumer received is looked for in Redis'
// append-only file: one that was popped there is counted, and any other is lost by the mirror.
func TestKillTake(t *testing.T) {
	t.Parallel()
	s := newStage(t, "always", 2, redistest.WithWrites())
	k := &killing{
		stage: s, mark: "belfry_rung",
		args: func(q *queue) []string { return s.mirrorArgs(q, "run", "--share", "1", "--codec", "bytes") },
	}
	offering, putting, transferring, taking := s.produce(soon, 5*time.Millisecond), s.put(soon, time.Millisecond),
		s.transfer(), s.take()
	k.run(*kills)
	offering.end()
	putting.end()
	for _, q := range s.queues {
		s.drainBridge(q)
	}
	transferring.end()
	taking.end()
	s.takeReady()
	s.wantEmpty()
	k.print()
	t.Logf("%d payloads were popped by a take() whose answer died with Redis", s.judgeMissing())
	t.Logf("%+v", s.ledger.close(t, false))
}

// take starts consumers of Redisson. What they popped and were told is Redis'; after an error they
// go on.
func (s *stage) take() *traffic {
	next := make(chan *queue, takers*len(s.queues))
	for _, q := range s.queues {
		for range takers {
			next <- q
		}
	}
	return s.begin(takers*len(s.queues), func(ctx context.Context) {
		for q := <-next; ctx.Err() == nil; {
			payload, ok, err := q.app.Take(ctx, time.Second)
			switch {
			case err != nil:
				waitFor(ctx, offerAgain)
			case ok:
				s.ledger.byRedis(string(payload))
			}
		}
	})
}

// judgeMissing looks at each payload that no consumer received. One that a consumer popped is
// excused, and counted; of any other it says what became of it.
func (s *stage) judgeMissing() (excused int) {
	s.t.Helper()
	commands := s.redis.Commands()
	lists := make([]*aof.List, len(s.queues))
	for n, q := range s.queues {
		var err error
		if lists[n], err = aof.ListOf(commands, 0, q.name); err != nil {
			s.t.Fatal(err)
		}
	}
	for _, payload := range s.ledger.missing() {
		text := "it never arrived on a ready list"
		popped := false
		for _, list := range lists {
			fate := list.Of(payload)
			if len(fate.Pushed) > 0 {
				text, popped = fate.Judge(0)
			}
		}
		if popped {
			excused++
			s.ledger.byRedis(payload)
			s.t.Logf("%q was %s", payload, text)
		} else {
			s.t.Errorf("%q is lost: %s", payload, text)
		}
	}
	return excused
}
