package longpoll

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node/clock"
	"github.com/belfrydb/belfry/node/clock/clocktest"
	"github.com/belfrydb/belfry/node/outcome"
	"github.com/belfrydb/belfry/node/propose"
)

// TestEmptyAnswerNamesItsEntry: a call that stood in line in vain says all the same which entry it
// cost.
func TestEmptyAnswerNamesItsEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := Config{WaitersMax: 1, Clock: clock.NewShard(clocktest.NewHand(), time.Second)}
		cs := &Calls{cfg: cfg, waiters: newWaiters(cfg, &pendingGrants{}, nil)}
		cs.waiters.open()
		first := propose.Reply{Witness: propose.Witness{Term: 2, Index: 7, Time: 1}, Results: make([]fsm.Result, 1)}
		req := &fsm.Request{Commands: []fsm.Command{&fsm.Reserve{Queues: []string{"orders"}, Max: 1}}}
		if reply, err := cs.parkBriefly(t.Context(), req, first); err != nil || reply.Witness != first.Witness {
			t.Errorf("answered %+v, %v; want the witness %+v", reply, err, first.Witness)
		}
	})
}

// TestNothingStaysOfACallThatEnds: neither of its queues, nor of its request, nor of its tenant.
func TestNothingStaysOfACallThatEnds(t *testing.T) {
	gone := errors.New("gone")
	for name, end := range map[string]func(t *testing.T, ws *waiters, w *waiter){
		"its wait is over": func(_ *testing.T, ws *waiters, w *waiter) { ws.timeOut(w) },
		"its caller leaves": func(t *testing.T, ws *waiters, w *waiter) {
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(gone)
			if _, err := ws.abandon(ctx, w); !errors.Is(err, gone) || !errors.Is(err, outcome.ErrCanceled) {
				t.Errorf("it ended with %v", err)
			}
		},
		"the leadership ends": func(_ *testing.T, ws *waiters, _ *waiter) { ws.close(outcome.ErrNoLeader) },
	} {
		t.Run(name, func(t *testing.T) {
			hand := clocktest.NewHand()
			ws := newWaiters(Config{WaitersMax: 10, Clock: clock.NewShard(hand, time.Second)}, nil, nil)
			ws.open()
			req := &fsm.Request{Caller: "c", ID: "r1", Commands: []fsm.Command{
				&fsm.Reserve{Queues: []string{"a", "b", "a"}}}}
			w := &waiter{request: req, reserve: req.Commands[0].(*fsm.Reserve), done: make(chan answer, 1)}
			if err := ws.add(w); err != nil {
				t.Fatal(err)
			}
			for _, q := range ws.queues {
				ws.schedule(q, hand.Wall().Add(time.Hour))
			}
			end(t, ws, w)
			if looks := ws.readQueues(); len(looks) != 0 {
				t.Errorf("%d queues are read", len(looks))
			}
			if len(ws.queues) != 0 || len(ws.due) != 0 || len(ws.byName) != 0 || len(ws.tenants) != 0 || ws.size() != 0 {
				t.Errorf("of it stay %d queues, %d timers, %d requests, %d tenants and %d calls", len(ws.queues), len(ws.due),
					len(ws.byName), len(ws.tenants), ws.size())
			}
		})
	}
}
