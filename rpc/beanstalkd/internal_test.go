package beanstalkd

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/belfrydb/belfry/access/connlimit"
	"github.com/belfrydb/belfry/fsm"
)

// TestSecondsLeft: a lease that has just begun has a second less left than its length, as beanstalkd
// says.
func TestSecondsLeft(t *testing.T) {
	now := fsm.Time(time.Hour)
	for left, want := range map[time.Duration]uint64{
		10 * time.Second: 9, 10*time.Second + time.Millisecond - 1: 9, 9500 * time.Millisecond: 9, 9 * time.Second: 8, 0: 0,
		-time.Hour: 0,
	} {
		if got := secondsLeft(now+fsm.Time(left), now); got != want {
			t.Errorf("%v are %d seconds, want %d", left, got, want)
		}
	}
}

// TestSlotOfAWaitingConnection: a newcomer takes the slot of an idle connection, and not that of one
// that waits or holds a job.
func TestSlotOfAWaitingConnection(t *testing.T) {
	limiter := connlimit.New(1)
	ours, theirs := net.Pipe()
	t.Cleanup(func() { _ = theirs.Close() })
	slot, _ := limiter.Acquire(ours)
	c := &conn{net: ours, slot: slot, held: map[uint64]*heldJob{}}
	newcomer := func() bool {
		other, end := net.Pipe()
		t.Cleanup(func() { _, _ = other.Close(), end.Close() })
		taken, _ := limiter.Acquire(other)
		if taken != nil {
			taken.Release()
		}
		return taken != nil
	}
	_, cancel := context.WithCancel(t.Context())
	defer cancel()
	c.setWait(cancel)
	if newcomer() {
		t.Error("a newcomer took the slot of a connection that waits")
	}
	c.held[1] = &heldJob{}
	c.setWait(nil)
	if newcomer() {
		t.Error("a newcomer took the slot of a connection that holds a job")
	}
	c.drop(1)
	if !newcomer() {
		t.Error("an idle connection keeps its slot")
	}
}

// TestGroupsPassOn: with as many groups in flight as there may be, calls wait; each is carried out once,
// whichever group ends first.
func TestGroupsPassOn(t *testing.T) {
	const calls = 200
	var mu sync.Mutex
	seen, inFlight, most := map[int]int{}, 0, 0
	g := &groups[int]{carryOut: func(_ context.Context, group []*groupCall[int]) {
		mu.Lock()
		inFlight++
		most = max(most, inFlight)
		for _, call := range group {
			seen[call.commands[0]]++
			call.answers = append(call.answers, answer{serial: uint64(call.commands[0])}) //nolint:gosec // from 0 on
		}
		mu.Unlock()
		mu.Lock()
		inFlight--
		mu.Unlock()
	}}
	var all sync.WaitGroup
	for i := range calls {
		all.Go(func() {
			call := &groupCall[int]{commands: []int{i}, proceed: make(chan bool, 1)}
			g.do(t.Context(), call)
			if len(call.answers) != 1 || call.answers[0].serial != uint64(i) { //nolint:gosec // likewise
				t.Errorf("call %d is answered with %v", i, call.answers)
			}
		})
	}
	all.Wait()
	if len(seen) != calls || most > groupsInFlightMax || g.inFlight != 0 {
		t.Errorf("%d of %d calls were carried out, up to %d groups at a time, %d left", len(seen), calls, most, g.inFlight)
	}
	for call, times := range seen {
		if times != 1 {
			t.Errorf("call %d was carried out %d times", call, times)
		}
	}
}
