package client

import (
	"context"
	"sync"

	"github.com/belfrydb/belfry/client/internal/calls"
	"github.com/belfrydb/belfry/client/internal/coalesce"
	"github.com/belfrydb/belfry/client/internal/failure"
	"github.com/belfrydb/belfry/client/internal/placement"
)

// startCoalescing makes puts, acks and calls for one job share round trips.
func (c *Client) startCoalescing() {
	shared := coalesce.Shared{
		Limits: coalesce.Limits{
			InFlight: c.limits.InFlight, MaxCalls: c.limits.MaxJobs, MaxBytes: batchBytesMax, MaxDelay: c.limits.MaxDelay,
		},
		Gate: &c.gate, Start: c.start, Lifetime: c.lifetime,
	}
	c.puts = newCallsByLeader(coalesce.Config[encodedPut, PutResult, destination]{
		Shared: shared, NewID: c.clock.NewID, Failed: c.leaveFailed, ClockSet: c.clock.SetForwardSince,
		Send: sendOnce(c, sendPuts, func(put encodedPut) placement.Place { return put.place }),
	})
	c.acks = newCallsByLeader(coalesce.Config[string, struct{}, destination]{
		Shared: shared, NewID: func() string { return "" }, Failed: c.leaveFailed, ClockSet: c.clock.SetForwardSince,
		Send: sendOnce(c, sendAcks, placement.OfLease),
	})
	c.polls = coalesce.NewPolls(coalesce.PollConfig[*Job]{Shared: shared, Reserve: c.poll, GiveBack: c.giveBack})
}

// leadersMax bounds the leaders whose calls gather apart. At a further one all are forgotten, so that
// leaders that have gone are too. Calls that have gathered leave all the same.
const leadersMax = 64

// callsByLeader are the calls of one kind, apart for each leader. A server carries out a batch of calls
// that it leads itself; it has to forward the others, each queue of a batch in a call of its own.
type callsByLeader[Q, R any] struct {
	config coalesce.Config[Q, R, destination]

	mu       sync.RWMutex
	byLeader map[*endpoint]*coalesce.Calls[Q, R, destination] // nil for calls whose leader is not known
}

// newCallsByLeader returns the calls of one kind.
func newCallsByLeader[Q, R any](config coalesce.Config[Q, R, destination]) *callsByLeader[Q, R] {
	return &callsByLeader[Q, R]{config: config, byLeader: map[*endpoint]*coalesce.Calls[Q, R, destination]{
		nil: coalesce.NewCalls(config),
	}}
}

// to returns the calls that go to a leader, nil for one that is not known.
func (l *callsByLeader[Q, R]) to(leader *endpoint) *coalesce.Calls[Q, R, destination] {
	l.mu.RLock()
	calls := l.byLeader[leader]
	l.mu.RUnlock()
	if calls != nil {
		return calls
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if calls = l.byLeader[leader]; calls != nil {
		return calls
	}
	if len(l.byLeader) > leadersMax {
		l.byLeader = map[*endpoint]*coalesce.Calls[Q, R, destination]{nil: l.byLeader[nil]}
	}
	calls = coalesce.NewCalls(l.config)
	l.byLeader[leader] = calls
	return calls
}

// A sendFunc sends one batch once. It returns the reply to each entry, in order, or one error for
// all.
type sendFunc[Q, R any] func(ctx context.Context, ep *endpoint, requestID string, reqs []Q) ([]coalesce.Reply[R], error)

// A destination is where an attempt at a batch was made.
type destination struct {
	direct *endpoint // the leader, if the attempt went there directly; nil if it went to server n
	n      uint32
}

// leaveFailed records that an attempt at a batch failed.
func (c *Client) leaveFailed(e *failure.Error, at destination) {
	c.endpoints.leaveFailed(e, at.direct, at.n)
}

// sendOnce returns what sends a batch once: to the leader of its first entry if that is known.
func sendOnce[Q, R any](c *Client, send sendFunc[Q, R], placeOf func(req Q) placement.Place) func(context.Context,
	string, []Q) coalesce.Attempt[R, destination] {
	return func(ctx context.Context, id string, reqs []Q) (got coalesce.Attempt[R, destination]) {
		var ep *endpoint
		ep, got.At.n = c.endpoints.Pick()
		about := placeOf(reqs[0])
		// single calls of a batch have one leader, or had when they came; the server forwards the rest
		got.At.direct = c.endpoints.routes.Leader(about)
		if got.At.direct != nil {
			ep = got.At.direct
		}
		replies, err := attempt(ctx, calls.Kind{}, ep, func(ctx context.Context, ep *endpoint) (*[]coalesce.Reply[R], error) {
			replies, err := send(ctx, ep, id, reqs)
			return &replies, err
		})
		if got.Err = err; err == nil {
			got.Replies = *replies
		}
		if len(got.Replies) == len(reqs) && got.Replies[0].Err == nil { // no route is kept for a queue that is refused
			c.answered(about) //nolint:contextcheck // the route is for later calls too
		}
		return got
	}
}
