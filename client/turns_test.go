package client

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
)

// TestTurns: what comes while a turn is under way leaves in the next, all at once.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turns turns
		var mu sync.Mutex
		var began []string
		take := func(name string, number uint64) {
			go func() {
				number := turns.take(number, true)
				mu.Lock()
				defer mu.Unlock()
				began = append(began, fmt.Sprint(name, number))
			}()
			synctest.Wait()
		}
		expect := func(want ...string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if slices.Sort(began); !slices.Equal(began, want) {
				t.Errorf("began %v, want %v", began, want)
			}
			began = nil
		}
		take("puts", 0)
		expect("puts1")
		take("acks", 0)
		take("polls", 0)
		expect()
		take("puts", 1) // whoever ends a turn leaves with those that waited for that
		expect("acks2", "polls2", "puts2")
		take("acks", 2)
		turns.take(2, false)
		expect()
		turns.take(2, false)
		expect("acks3")
		take("puts", 0)
		time.Sleep(waveMax)
		expect()
		time.Sleep(time.Nanosecond)
		expect("puts4") // the one before takes long
		take("polls", 0)
		take("acks", 3)
		expect() // and its end is not that of the next
		if got := turns.take(4, false); got != 0 {
			t.Errorf("a batch that is the last one has the number %d", got)
		}
		expect("acks5", "polls5")
		turns.take(5, false)
		take("puts", 5)
		expect("puts6") // nothing is left of the turns before
	})
}

// TestACrowdWaitsForOtherKinds, and a few callers do not.
func TestACrowdWaitsForOtherKinds(t *testing.T) {
	for _, tt := range []struct {
		acks int
		o    Coalescing
		want int // acks that the server has while puts are out
	}{
		{crowdFrom, Coalescing{}, 0},
		{crowdFrom - 1, Coalescing{}, crowdFrom - 1},
		{crowdFrom, Coalescing{MaxJobs: crowdFrom}, crowdFrom}, // a full batch
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
			start(1, ack) // the first of each leaves alone, and the others gather behind it
			start(crowdFrom, put)
			start(tt.acks, ack)
			puts <- struct{}{}
			if n := sent("PutBatch"); n != 1+crowdFrom {
				t.Fatalf("%d puts are out", n)
			}
			close(acks)
			if n := sent("AckBatch"); n != 1+tt.want {
				t.Errorf("%d acks are sent while puts are out, want %d", n, 1+tt.want)
			}
			time.Sleep(waveMax + 1)
			if n := sent("AckBatch"); n != 1+tt.acks {
				t.Errorf("%d acks are sent once the puts take long", n)
			}
		})
	}
}

// TestPollsOfManyQueues leave in turns too, unless they wait at the servers.
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
		for i := range crowdFrom + 2 {
			reserve(fmt.Sprint("q", i), 0)
			synctest.Wait()
		}
		expect(crowdFrom) // the last of these is the first turn
		reserve("waits", time.Minute)
		expect(crowdFrom + 1)
		time.Sleep(waveMax + 1)
		expect(crowdFrom + 3) // the turn takes long
	})
}
