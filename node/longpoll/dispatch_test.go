package longpoll

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node/admit"
	"github.com/belfrydb/belfry/node/clock"
	"github.com/belfrydb/belfry/node/clock/clocktest"
	"github.com/belfrydb/belfry/node/propose"
	"github.com/belfrydb/belfry/node/storage/disk"
)

// Two entries may be answered in the wrong order: what came free in one queue is passed over while
// a waiter's reservation seems to be on its way, although it was applied before and found nothing.
func TestWaiterThatComesBackEmptyHasAllItsQueuesLookedAt(t *testing.T) {
	ws := newWaiters(Config{WaitersMax: 10}, nil, nil)
	ws.open()
	req := &fsm.Request{Commands: []fsm.Command{&fsm.Reserve{Queues: []string{"a", "b"}}}}
	w := &waiter{request: req, reserve: req.Commands[0].(*fsm.Reserve), done: make(chan answer, 1)}
	if err := ws.add(w); err != nil {
		t.Fatal(err)
	}
	for _, q := range ws.queues {
		q.dirty = false
	}
	ws.dirty = nil
	w.state, ws.queues["a"].reserving = reserving, 1
	ws.reserveDone(t.Context(), reserveAttempt{waiter: w, queue: ws.queues["a"], max: 1},
		propose.Reply{Results: make([]fsm.Result, 1)}, nil)
	if w.state != parked || !ws.queues["a"].dirty || !ws.queues["b"].dirty {
		t.Errorf("the waiter is in state %d, its queues are to be looked at: %v, %v", w.state, ws.queues["a"].dirty,
			ws.queues["b"].dirty)
	}
}

func TestEntryThatIsAppliedTooLateWakesAll(t *testing.T) {
	ws := newWaiters(Config{WaitersMax: 10}, nil, nil)
	ws.open()
	req := &fsm.Request{Commands: []fsm.Command{&fsm.Reserve{Queues: []string{"a", "b"}}}}
	w := &waiter{request: req, reserve: req.Commands[0].(*fsm.Reserve), done: make(chan answer, 1)}
	if err := ws.add(w); err != nil {
		t.Fatal(err)
	}
	for _, q := range ws.queues {
		q.dirty = false
	}
	if ws.recheckAll(); !ws.queues["a"].dirty || !ws.queues["b"].dirty {
		t.Error("a queue with a waiter is not looked at")
	}
}

func TestQueueRestsWhenReservationsComeBackEmpty(t *testing.T) {
	hand := clocktest.NewHand()
	ws := newWaiters(Config{
		WaitersMax: 10, Clock: clock.NewShard(hand, time.Second),
		Admission: admit.New(admit.Config{
			Leads: func() bool { return true }, Voters: func() *admit.VotersError { return nil }, Space: &disk.Space{},
			Memory: admit.NewMemory(0, nil, slog.New(slog.DiscardHandler)), NodeLimited: new(atomic.Bool),
		}),
	}, nil, nil)
	ws.open()
	req := &fsm.Request{Commands: []fsm.Command{&fsm.Reserve{Queues: []string{"a"}}}}
	w := &waiter{request: req, reserve: req.Commands[0].(*fsm.Reserve), done: make(chan answer, 1)}
	if err := ws.add(w); err != nil {
		t.Fatal(err)
	}
	q := ws.queues["a"]
	available := func() []reserveAttempt {
		return ws.chooseWaiters([]queueView{{queue: q, reserving: q.reserving, available: 1}})
	}
	var pauses []time.Duration
	for len(pauses) < 9 {
		asks := available()
		if len(asks) == 0 {
			pauses = append(pauses, q.next.Sub(hand.Wall()))
			continue
		}
		ws.reserveDone(t.Context(), asks[0], propose.Reply{Results: make([]fsm.Result, 1)}, nil)
	}
	ms := time.Millisecond
	want := []time.Duration{10 * ms, 20 * ms, 40 * ms, 80 * ms, 160 * ms, 320 * ms, 640 * ms, time.Second, time.Second}
	if diff := cmp.Diff(want, pauses); diff != "" {
		t.Errorf("pauses (-want +got):\n%s", diff)
	}
}

// settle waits for reservations under way, no longer than its context.
func TestSettleWaitsForReservations(t *testing.T) {
	ws := newWaiters(Config{WaitersMax: 1}, nil, nil)
	ws.queues["orders"] = &waitQueue{name: "orders", heapIndex: -1, reserving: 1}
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	if err := ws.awaitIdle(ctx); !errors.Is(err, gone) {
		t.Errorf("with a reservation under way it ends with %v", err)
	}
}
