package nodetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
)

// told is what an event is about.
type told uint8

const (
	wasPut told = iota
	wasGranted
	wasAcked
)

// event is something that a caller was told, with where it took effect.
type event struct {
	witness node.Witness
	kind    told
	serial  uint64
	fence   uint64
	due     fsm.Time
	until   fsm.Time
}

// history is what all callers were told. Only what was applied for certain is in it.
type history struct {
	mu     sync.Mutex
	events []event
}

func (h *history) add(events ...event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, events...)
}

// caller puts, reserves and acks at whichever member leads, repeating what has an unknown outcome
// with the same request id until it knows.
type caller struct {
	name    string
	cluster *Cluster
	history *history
	random  *rand.Rand
	serial  int
}

// call carries out one command, at member after member, until it is applied. It reports false when
// ctx ends first.
func (c *caller) call(ctx context.Context, command fsm.Command) (node.Reply, bool) {
	c.serial++
	req := &fsm.Request{Caller: c.name, ID: fmt.Sprintf("%s-%d", c.name, c.serial), Commands: []fsm.Command{command}}
	for ctx.Err() == nil {
		members := c.cluster.Members()
		m := members[c.random.IntN(len(members))]
		var reply node.Reply
		var err error
		if r, ok := command.(*fsm.Reserve); ok && len(r.Queues) > 0 {
			reply, err = m.Node.Reserve(ctx, 0, req, node.Wait{For: time.Second})
		} else {
			reply, err = m.Node.Do(ctx, 0, req)
		}
		if err == nil {
			return reply, true
		}
		pause := time.NewTimer(time.Duration(1+c.random.IntN(100)) * time.Millisecond)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
		}
	}
	return node.Reply{}, false
}

// produce puts jobs with short delays until ctx ends, about ten a second, so that virtual minutes
// stay affordable.
func (c *caller) produce(ctx context.Context) {
	for ctx.Err() == nil {
		pause, cancel := context.WithTimeout(ctx, time.Duration(50+c.random.IntN(100))*time.Millisecond)
		delay := time.Duration(c.random.IntN(2000)) * time.Millisecond
		if reply, ok := c.call(ctx, &fsm.Put{Queue: "orders", Partitions: 1, Given: fsm.GivenDelay, Delay: delay}); ok {
			r := reply.Results[0]
			c.history.add(event{witness: reply.Witness, kind: wasPut, serial: r.Serial, due: r.Due})
		}
		<-pause.Done()
		cancel()
	}
}

// consume takes jobs and acks most of them until ctx ends; the rest lapse.
func (c *caller) consume(ctx context.Context) {
	for ctx.Err() == nil {
		reply, ok := c.call(ctx, &fsm.Reserve{Queues: []string{"orders"}, Max: 3, TTR: 5 * time.Second})
		if !ok {
			return
		}
		for _, g := range reply.Results[0].Grants {
			c.history.add(event{
				witness: reply.Witness, kind: wasGranted, serial: g.Serial, fence: g.Fence, due: g.Due, until: g.Until,
			})
			if c.random.IntN(10) == 0 {
				continue
			}
			reply, ok := c.call(ctx, &fsm.Ack{Ref: refOf(g)})
			if ok && reply.Results[0].Code == fsm.OK {
				c.history.add(event{witness: reply.Witness, kind: wasAcked, serial: g.Serial, fence: g.Fence})
			}
		}
	}
}

// check holds the history against what must be true whatever happened. held are the jobs left at
// the end.
func (h *history) check(t *testing.T, held map[uint64]bool) {
	t.Helper()
	due, acked := map[uint64]fsm.Time{}, map[uint64]event{}
	grants := map[uint64][]event{}
	for _, e := range h.events {
		switch e.kind {
		case wasPut:
			due[e.serial] = e.due
		case wasGranted:
			grants[e.serial] = append(grants[e.serial], e)
		case wasAcked:
			if before, twice := acked[e.serial]; twice {
				t.Errorf("job %d was acked with fence %d and with fence %d", e.serial, before.fence, e.fence)
			}
			acked[e.serial] = e
		}
	}
	for serial := range due {
		if _, done := acked[serial]; !done && !held[serial] && len(grants[serial]) == 0 {
			t.Errorf("job %d was put, never granted, and is gone", serial)
		}
	}
	for serial, list := range grants {
		for i, a := range list {
			if at, known := due[serial]; known && a.witness.Time < at {
				t.Errorf("job %d was granted at %d, before it was due at %d", serial, a.witness.Time, at)
			}
			if end, done := acked[serial]; done && a.witness.Index > end.witness.Index {
				t.Errorf("job %d was acked at index %d and granted at %d", serial, end.witness.Index, a.witness.Index)
			}
			for _, b := range list[:i] {
				checkGrants(t, a, b)
			}
		}
	}
	t.Logf("%d jobs put, %d granted, %d acked, %d left", len(due), len(grants), len(acked), len(held))
	if len(acked) < 100 {
		t.Errorf("only %d jobs came through: this shows nothing", len(acked))
	}
}

// checkGrants compares two grants of one job.
func checkGrants(t *testing.T, a, b event) {
	t.Helper()
	if a.witness.Index > b.witness.Index {
		a, b = b, a
	}
	if a.fence >= b.fence {
		t.Errorf("job %d was granted with fence %d at index %d and with %d at %d", a.serial, a.fence, a.witness.Index,
			b.fence, b.witness.Index)
	}
	// No caller gives jobs back here, so the first lease must have lapsed.
	if b.witness.Time < a.until {
		t.Errorf("job %d was granted until %d and again at %d", a.serial, a.until, b.witness.Time)
	}
}

// start has six producers and six consumers work, until the function that it returns is called.
func (h *history) start(t *testing.T, c *Cluster) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	for i := range 6 {
		for _, role := range []string{"producer", "consumer"} {
			one := &caller{
				name: fmt.Sprintf("%s-%d", role, i), cluster: c, history: h,
				random: rand.New(rand.NewPCG(uint64(i), uint64(len(role)+i))),
			}
			if role == "producer" {
				callers.Go(func() { one.produce(ctx) })
			} else {
				callers.Go(func() { one.consume(ctx) })
			}
		}
	}
	return func() {
		cancel()
		callers.Wait()
	}
}

// whatIsHeld returns the jobs that are left. Nothing may be under way any more, so that several
// reads see one state.
func whatIsHeld(t *testing.T, c *Cluster) map[uint64]bool {
	t.Helper()
	held, leader := map[uint64]bool{}, c.Leader(0)
	for _, state := range []fsm.State{fsm.Delayed, fsm.Ready, fsm.Reserved, fsm.Dead} {
		r, _, err := leader.Node.Query(t.Context(), 0, &fsm.ListQuery{Queue: "orders", State: state, Max: 1_000_000})
		if err != nil {
			t.Fatal(err)
		}
		for _, job := range r.Jobs {
			held[job.Serial] = true
		}
	}
	return held
}

func TestNothingIsLostWhileLeadersAreCutOff(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := New(t, Options{Dir: dir, Configure: func(cfg *node.Config) {
			cfg.SnapshotBytes, cfg.TrailingBytes = 64<<10, 1
		}})
		h := &history{}
		stop := h.start(t, c)
		random := rand.New(rand.NewPCG(1, 2))
		for round := range 12 {
			time.Sleep(time.Duration(1+random.IntN(3)) * time.Second)
			victim := c.Leader(0)
			if round%3 == 2 {
				victim = c.Members()[random.IntN(3)]
			}
			c.Isolate(victim)
			time.Sleep(time.Duration(2+random.IntN(6)) * time.Second)
			c.Heal(victim)
		}
		time.Sleep(5 * time.Second)
		stop()
		c.Converge(0)
		h.check(t, whatIsHeld(t, c))
	})
}
