package coalesce

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/client/internal/batching"
	"github.com/belfrydb/belfry/client/internal/failure"
)

// TestAnswerClosesTheGroup: a caller that arrives after an answer waits for another broadcast, even
// if no poll has left since.
func TestAnswerClosesTheGroup(t *testing.T) {
	p := &poller[int]{}
	w := &caller[int]{wake: p.arrivals.Join(2)}
	p.answer(w, polled[int]{})
	if p.arrivals.Join(2) == w.wake {
		t.Error("the next caller shares the broadcast of an answered one")
	}
}

// TestWithdrawAfterRenew: a caller with an answer does not use its place in the batch, which may
// have shrunk.
func TestWithdrawAfterRenew(t *testing.T) {
	q := &Calls[int, int, int]{}
	e := &entry[int, int]{place: 1}
	b := &batch[int, int]{entries: []*entry[int, int]{{}, e}, reqs: []int{1, 2}, open: 2}
	e.batch = b
	b.answer(e, Reply[int]{})
	b.renew("another")
	if err := q.withdraw(t.Context(), e); err != nil {
		t.Errorf("it has its answer, and this: %v", err)
	}
}

// TestPollCountsCallersOfOtherQueues: what is expected to leave together are the callers of all
// pollers.
func TestPollCountsCallersOfOtherQueues(t *testing.T) {
	var gate batching.Gate
	all := NewPolls(PollConfig[int]{Shared: Shared{Limits: Limits{MaxCalls: 1000}, Gate: &gate}})
	all.eager.Store(batching.GateMinCalls)
	p := newPoller(all, pollKey{}, Poll{})
	if source := p.source(); source.Gate != &gate || source.Expected() != batching.GateMinCalls {
		t.Errorf("the poll expects %d callers", source.Expected())
	}
}

// TestPollerWithoutCallersIsForgotten, so that a client keeps nothing of queues that it asked once.
func TestPollerWithoutCallersIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := NewPolls(PollConfig[int]{
			Shared: Shared{
				Limits: Limits{InFlight: 2, MaxCalls: 1000}, Gate: &batching.Gate{}, Lifetime: t.Context,
				Start: func(f func()) bool {
					go f()
					return true
				},
			},
			Reserve: func(_ context.Context, poll Poll, _ func(*failure.Error)) ([]int, *failure.Error) {
				return make([]int, poll.Max), nil
			},
		})
		for range 100 {
			go func() {
				if _, err := all.Reserve(t.Context(), Poll{Queues: []string{"orders"}, Wait: time.Minute}); err != nil {
					t.Error(err)
				}
			}()
		}
		synctest.Wait()
		all.mu.Lock()
		defer all.mu.Unlock()
		if len(all.byKey) != 0 {
			t.Error("a poller without callers is kept")
		}
	})
}
