package propose

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/fsm/machine"
	"github.com/belfrydb/belfry/node/admit"
	"github.com/belfrydb/belfry/node/outcome"
)

// queueNames returns the names of so many queues of a namespace.
func queueNames(space string, n int) (queues []string) {
	for i := range n {
		queues = append(queues, fmt.Sprintf("%s/%d", space, i))
	}
	return queues
}

// sendPuts queues a request of a put into each of some queues and returns where its answer will be.
func (b *bench) sendPuts(t *testing.T, queues ...string) chan result {
	t.Helper()
	req := &fsm.Request{}
	for _, queue := range queues {
		req.Commands = append(req.Commands, &fsm.Put{Queue: queue, Partitions: 1})
	}
	answers := make(chan result, 1)
	if err := b.Enqueue(&Proposal{
		Request: req, Encoded: codec.AppendRequest(nil, req), Format: b.format,
		Complete: func(reply Reply, err error) {
			*req = fsm.Request{} // it is the caller's again
			answers <- result{reply, err}
		},
	}); err != nil {
		t.Fatal(err)
	}
	return answers
}

// TestQueuesOnTheirWayCount: what entries in flight make counts once, also of one that was not
// looked at when it was logged, and if it is applied meanwhile or its callers were given up. It is
// there for who puts into the same queue, and counts no more when its entry has failed.
func TestQueuesOnTheirWayCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := machine.New(fsm.Config{QueuesMax: 100})
		limit := admit.NewQueueLimit(m, new(atomic.Bool), func(f func(*machine.Machine, fsm.Time)) { f(m, m.Clock()) })
		b := startProposer(t, Config{EntriesInFlight: 4, EntryBytesMax: 1, ProposeTimeout: time.Second, Limit: limit})
		refused := func(used, free int, queues ...string) {
			t.Helper()
			answers := b.sendPuts(t, queues...)
			b.none(t)
			e, ok := errors.AsType[*admit.QueuesError]((<-answers).err)
			if !ok || e.Used != used || e.Free != free {
				t.Errorf("refused with %+v, want %d queues of the namespace and %d that are free", e, used, free)
			}
		}
		all := queueNames("t", 100)
		b.sendPuts(t, all[:40]...)
		first := b.next(t)
		time.Sleep(2 * time.Second) // its callers are given up
		refused(50, 50, all[40:51]...)
		entries := []*fakeFuture{first}
		for _, queues := range [][]string{all[:10], all[40:50], {"u/0"}} {
			b.sendPuts(t, queues...)
			entries = append(entries, b.next(t))
		}
		entries[1].fail(outcome.ErrUnknownOutcome) // all that it makes another one makes too
		synctest.Wait()
		refused(50, 49, "t/50")
		if _, err := m.Apply(1, first.entry); err != nil {
			t.Fatal(err)
		}
		limit.SetQueues(m)
		refused(50, 49, "t/50")
		for _, f := range []*fakeFuture{first, entries[2], entries[3]} {
			f.fail(outcome.ErrUnknownOutcome)
		}
		synctest.Wait()
		refused(50, 50, all[40:60]...)
		b.sendPuts(t, all[40:50]...)
		b.next(t).apply(t, 2)
	})
}

// countingLimit counts the batches that were checked.
type countingLimit struct {
	*admit.QueueLimit
	checks int
}

func (l *countingLimit) Check(batch []*fsm.Request) map[int]error {
	l.checks++
	return l.QueueLimit.Check(batch)
}

// TestFarFromTheLimitNothingIsChecked: a batch is only checked if it could reach the limit, since a
// check decodes the entries in flight.
func TestFarFromTheLimitNothingIsChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := machine.New(fsm.Config{QueuesMax: 100})
		view := func(f func(*machine.Machine, fsm.Time)) { f(m, m.Clock()) }
		limit := &countingLimit{QueueLimit: admit.NewQueueLimit(m, new(atomic.Bool), view)}
		b := startProposer(t, Config{EntriesInFlight: 4, EntryBytesMax: 1, ProposeTimeout: time.Second, Limit: limit})
		all := queueNames("t", 50)
		var entries []*fakeFuture
		for _, puts := range []struct{ from, to, checks int }{{0, 25, 0}, {25, 49, 0}, {49, 50, 1}} {
			b.sendPuts(t, all[puts.from:puts.to]...)
			entries = append(entries, b.next(t))
			if limit.checks != puts.checks {
				t.Errorf("after %d queues %d batches were checked, want %d", puts.to, limit.checks, puts.checks)
			}
		}
		for _, f := range entries {
			f.fail(outcome.ErrUnknownOutcome)
		}
	})
}
