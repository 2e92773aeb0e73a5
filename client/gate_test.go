package client

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/client/internal/batching"
	"google.golang.org/protobuf/proto"
)

// TestManyCallsPassTheGate, and a few do not wait there.
func TestManyCallsPassTheGate(t *testing.T) {
	for _, tt := range []struct {
		acks int
		o    Coalescing
		want int // acks that the server has while puts are out
	}{
		{batching.GateMinCalls, Coalescing{}, 0},
		{batching.GateMinCalls - 1, Coalescing{}, batching.GateMinCalls - 1},
		{batching.GateMinCalls, Coalescing{MaxJobs: batching.GateMinCalls}, batching.GateMinCalls}, // a full batch
	} {
		synctest.Test(t, func(t *testing.T) {
			fake := NewFake()
			puts, acks := make(chan struct{}), make(chan struct{})
			fake.failBefore(func(_ context.Context, method string, _ proto.Message) error {
				switch method {
				case "PutBatch":
					<-puts
				case "AckBatch":
					<-acks
				}
				return nil
			})
			c := start(t, newPipeNet(), []Option{tt.o}, fake)
			var all sync.WaitGroup
			defer all.Wait()
			defer close(puts)
			start := func(n int, f func()) {
				for range n {
					all.Go(f)
				}
				synctest.Wait()
			}
			put := func() { _, _ = c.Put(t.Context(), "q", nil) }
			ack := func() { _ = c.Ack(t.Context(), "lease") }
			sent := func(method string) (n int) {
				synctest.Wait()
				for _, size := range fake.sizes(method) {
					n += size
				}
				return n
			}
			start(1, put)
			start(1, ack) // the first of each leaves alone, and the others gather
			start(batching.GateMinCalls, put)
			start(tt.acks, ack)
			puts <- struct{}{}
			if n := sent("PutBatch"); n != 1+batching.GateMinCalls {
				t.Fatalf("%d puts are out", n)
			}
			close(acks)
			if n := sent("AckBatch"); n != 1+tt.want {
				t.Errorf("%d acks are sent while puts are out, want %d", n, 1+tt.want)
			}
			time.Sleep(batching.HoldMax + 1)
			if n := sent("AckBatch"); n != 1+tt.acks {
				t.Errorf("%d acks are sent once the puts take long", n)
			}
		})
	}
}

// TestPollsOfManyQueues pass the gate too, unless they wait at the servers.
func TestPollsOfManyQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := NewFake()
		answer := make(chan struct{})
		fake.failBefore(func(context.Context, string, proto.Message) error {
			<-answer
			return nil
		})
		c := start(t, newPipeNet(), nil, fake)
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		defer all.Wait()
		defer cancel()
		defer close(answer)
		reserve := func(queue string, wait time.Duration) {
			all.Go(func() { _, _ = c.Reserve(ctx, ReserveOptions{Queues: []string{queue}, Wait: wait}) })
		}
		expect := func(want int) {
			t.Helper()
			synctest.Wait()
			if n := len(fake.sizes("Reserve")); n != want {
				t.Errorf("%d polls are out, want %d", n, want)
			}
		}
		for i := range batching.GateMinCalls + 2 {
			reserve(fmt.Sprint("q", i), 0)
			synctest.Wait()
		}
		expect(batching.GateMinCalls) // the last of these is the first round
		reserve("waits", time.Minute)
		expect(batching.GateMinCalls + 1)
		time.Sleep(batching.HoldMax + 1)
		expect(batching.GateMinCalls + 3) // the round takes too long
	})
}
