package client

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
)

// TestBroadcastForOtherCallers: callers that arrived together share a broadcast. Those without an
// answer when it is sent wait on.
func TestBroadcastForOtherCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := NewFake()
		c := start(t, newPipeNet(), []Option{Coalescing{InFlight: 1}}, fake)
		fake.failBefore(func(_ context.Context, method string, _ proto.Message) error {
			time.Sleep(time.Second) // a batch a second
			return nil
		})
		began := time.Now()
		took := make([]time.Duration, 10)
		var all sync.WaitGroup
		for i := range took {
			all.Go(func() {
				if _, err := c.Put(t.Context(), fmt.Sprint("q", i), make([]byte, 1<<20)); err != nil {
					t.Error(err)
				}
				took[i] = time.Since(began).Truncate(time.Second)
			})
			synctest.Wait()
		}
		all.Wait()
		for i, seconds := range []int{1, 2, 2, 2, 3, 3, 3, 4, 4, 4} { // three fit into 4 MiB
			if took[i] != time.Duration(seconds)*time.Second {
				t.Errorf("put %d took %v, want %d s", i, took[i], seconds)
			}
		}
	})
}

// TestBroadcastForOtherPolls: of callers that wait together each gets one job in turn, and callers
// that leave get none.
func TestBroadcastForOtherPolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := NewFake()
		c := start(t, newPipeNet(), nil, fake)
		ctx, cancel := context.WithCancel(t.Context())
		answers := reserveAll(ctx, c, 5, orders)
		for i := range 3 {
			if _, err := c.Put(t.Context(), "orders", nil); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if got := <-answers; got.caller != i || got.job == nil {
				t.Errorf("job %d came to caller %d: %+v", i, got.caller, got.err)
			}
			if len(answers) > 0 {
				t.Errorf("%d more were answered", len(answers))
			}
		}
		cancel()
		for range 2 {
			if got := <-answers; got.err == nil || got.job != nil {
				t.Errorf("caller %d left with %v", got.caller, got.job)
			}
		}
	})
}
