package node

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node/histogram"
	"github.com/belfrydb/belfry/node/measure"
)

// expectLateness compares the two parts of the lateness of jobs with what they should be, to the
// millisecond.
func expectLateness(t *testing.T, n *Node, jobs uint64, server, worker time.Duration) {
	t.Helper()
	st := n.Stats().Shards[0]
	for part, h := range map[string]histogram.Values{"server": st.ServerLateSeconds, "workers": st.WorkerLateSeconds,
		"queue": st.Queues["orders"].LatenessSeconds} {
		want := map[string]time.Duration{"server": server, "workers": worker, "queue": server + worker}[part]
		got := time.Duration(h.Sum * float64(time.Second))
		if off := got - want; h.Count != jobs || off < 0 || off > time.Millisecond {
			t.Errorf("by the %s: %d jobs, %v late; want %d, %v late", part, h.Count, got, jobs, want)
		}
	}
}

// TestLatenessIsSplit: if a job falls due after a second, the server's part of its lateness is only
// the time for which a call waits for it.
func TestLatenessIsSplit(t *testing.T) {
	paused := &fsm.Configure{Queue: "orders", Partitions: 1, Version: 1, Settings: fsm.Settings{Paused: true}}
	for name, tt := range map[string]struct {
		play           func(t *testing.T, n *Node)
		server, worker time.Duration
		jobs           uint64
	}{
		"a worker waits": {func(t *testing.T, n *Node) { startPoll(t, n, time.Minute, 1, "orders").grants(t) }, 0, 0, 1},
		"a worker comes late": {func(t *testing.T, n *Node) {
			pass(4 * time.Second)
			startPoll(t, n, time.Minute, 1, "orders").grants(t)
		}, 0, 3 * time.Second, 1},
		"a worker who does not wait comes late": {func(t *testing.T, n *Node) {
			pass(4 * time.Second)
			startPoll(t, n, 0, 1, "orders").grants(t)
		}, 0, 3 * time.Second, 1},
		"a worker waits for a queue that is paused": {func(t *testing.T, n *Node) {
			do(t, n, 0, paused)
			p := startPoll(t, n, time.Minute, 1, "orders")
			pass(4 * time.Second)
			do(t, n, 0, &fsm.Configure{Queue: "orders", Partitions: 1, Version: 2})
			p.grants(t)
		}, 0, 3 * time.Second, 1},
		"a worker waits for a queue with as many jobs reserved as it may": {func(t *testing.T, n *Node) {
			do(t, n, 0, &fsm.Configure{Queue: "orders", Partitions: 1, Version: 1, Settings: fsm.Settings{MaxInFlight: 1}},
				put("orders", "held", 0))
			held := startPoll(t, n, time.Minute, 1, "orders").grants(t)
			p := startPoll(t, n, time.Minute, 1, "orders")
			pass(4 * time.Second)
			do(t, n, 0, &fsm.Ack{Ref: refOf(held[0])})
			p.grants(t)
		}, 0, 3 * time.Second, 2},
		"a worker waits and nothing is logged": {func(t *testing.T, n *Node) {
			p := startPoll(t, n, time.Minute, 1, "orders")
			p0 := n.shards[0].Load().proposer
			release := p0.Hold()
			pass(4 * time.Second)
			release()
			p.grants(t)
		}, 3 * time.Second, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				n := openNode(t, testConfig(t, dir))
				do(t, n, 0, put("orders", "x", time.Second))
				tt.play(t, n)
				expectLateness(t, n, tt.jobs, tt.server, tt.worker)
			})
		})
	}
}

// TestRedeliveriesAreCounted: only a later attempt counts, and what is repeated from memory counts
// as nothing.
func TestRedeliveriesAreCounted(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := openNode(t, testConfig(t, dir))
		do(t, n, 0, put("orders", "x", time.Second))
		pass(time.Second)
		request := &fsm.Request{ID: "r1", Commands: []fsm.Command{&fsm.Reserve{Queues: []string{"orders"}, Max: 1,
			TTR: time.Minute}}}
		first := startRequest(t, n, Wait{}, request).grants(t)
		if again := startRequest(t, n, Wait{}, request).grants(t); len(again) != 1 || again[0].Serial != first[0].Serial {
			t.Fatalf("%+v is repeated as %+v", first, again)
		}
		expectLateness(t, n, 1, 0, 0)
		do(t, n, 0, &fsm.Nack{Ref: refOf(first[0])})
		startPoll(t, n, time.Minute, 1, "orders").grants(t)
		expectLateness(t, n, 1, 0, 0)
		if got := n.Stats().Shards[0].Redelivered; got != 1 {
			t.Errorf("%d redeliveries are counted, want 1", got)
		}
	})
}

// TestWaitingIsCountedByQueue: whatever callers name, no more queues than a bound are told apart.
func TestWaitingIsCountedByQueue(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := openNode(t, testConfig(t, dir))
		startPoll(t, n, time.Hour, 1, "a", "b")
		short := startPoll(t, n, time.Second, 1, "b")
		if got := n.Stats().Shards[0].Queues; got["a"].Waiting != 1 || got["b"].Waiting != 2 {
			t.Errorf("%+v wait", got)
		}
		for queue, want := range map[string]uint64{"a": 1, "b": 2} {
			do(t, n, 0, put(queue, "x", 2*time.Hour))
			read, _, err := n.Query(t.Context(), 0, &fsm.QueueQuery{Queue: queue})
			if err != nil || len(read.Queues) != 1 || read.Queues[0].Parked == nil || *read.Queues[0].Parked != want {
				t.Errorf("the queue is %+v, %v; want %d parked calls", read.Queues, err, want)
			}
			if read, _, err = n.Peek(0, &fsm.QueueQuery{Queue: queue}); err != nil || read.Queues[0].Parked != nil {
				t.Errorf("any replica says %+v, %v", read.Queues, err)
			}
		}
		short.grants(t)
		if got := n.Stats().Shards[0].Queues["b"].Waiting; got != 1 {
			t.Errorf("%d wait after one has left, want 1", got)
		}
		for i := range 2*measure.QueuesMax + 10 {
			startPoll(t, n, time.Hour, 1, fmt.Sprint("made-up-", i))
		}
		got := n.Stats().Shards[0].Queues
		if len(got) > 2*measure.QueuesMax+1 || got[OtherQueues].Waiting < 10 {
			t.Errorf("%d queues, %d wait for others", len(got), got[OtherQueues].Waiting)
		}
	})
}

// pass lets time pass.
func pass(d time.Duration) {
	timer := time.NewTimer(d)
	<-timer.C
}
