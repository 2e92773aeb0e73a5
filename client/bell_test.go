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

// TestABellRingsOnce, also if callers of two batches had it.
func TestABellRingsOnce(t *testing.T) {
	var tower tower
	var all bells
	for range 5 {
		all.add(tower.next(2))
	}
	if len(all) != 3 {
		t.Errorf("5 callers have %d bells", len(all))
	}
	all.ring()
	all.ring()
	for _, b := range all {
		<-b.c
	}
}

// TestABellThatRangForOthers: callers who came together wait for one bell, and those that have no answer when it rings wait on for theirs.
func TestABellThatRangForOthers(t *testing.T) {
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

// TestABellThatRangForOtherPolls: of callers that wait together each gets the job that comes for it, and who leaves after that gets none.
func TestABellThatRangForOtherPolls(t *testing.T) {
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

// TestABellThatRingsIsGivenToNobody: who comes after an answer waits for another bell, also while no poll leaves.
func TestABellThatRingsIsGivenToNobody(t *testing.T) {
	p := &poller{}
	w := &caller{bell: p.tower.next(2)}
	p.answer(w, polled{})
	if p.tower.next(2) == w.bell {
		t.Error("the next caller has the bell that rings for the one before")
	}
}

// TestLeaveAfterRenew: whose answer came does not look for its place in the batch, which may have become smaller.
func TestLeaveAfterRenew(t *testing.T) {
	q := &coalescer[int, int]{}
	e := &entry[int, int]{place: 1}
	b := &batch[int, int]{entries: []*entry[int, int]{{}, e}, reqs: []int{1, 2}, open: 2}
	e.batch = b
	b.answer(e, reply[int]{})
	b.renew("another")
	if err := q.leave(t.Context(), e); err != nil {
		t.Errorf("it has its answer, and this: %v", err)
	}
}

// TestACrowdOfLongAgo holds nobody up.
func TestACrowdOfLongAgo(t *testing.T) {
	for age, want := range map[time.Duration]bool{0: true, 2 * crowdMax: false} {
		if got := (Coalescing{MaxJobs: 1000}).crowd(1, wave{crowdFrom, time.Now().Add(-age)}); got != want {
			t.Errorf("one call %v after a crowd waits for other kinds: %v", age, got)
		}
	}
}

// TestAPollLeavesWithThoseOfOtherQueues, also where its queue had more callers long ago.
func TestAPollLeavesWithThoseOfOtherQueues(t *testing.T) {
	c := &Client{limits: Coalescing{MaxJobs: 1000}}
	c.polls.eager.Store(crowdFrom)
	p := &poller{client: c, callers: []*caller{{}}, last: wave{10 * crowdFrom, time.Now().Add(-2 * crowdMax)}}
	if !p.crowd() {
		t.Error("it leaves alone")
	}
}
