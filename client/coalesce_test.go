package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/belfrydb/belfry/client/internal/batching"
	"github.com/belfrydb/belfry/client/internal/requestid"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// putAll puts n jobs at once, each with its queue and body by its number, and gives the errors.
func putAll(t *testing.T, c *Client, n int, job func(i int) (queue string, body []byte)) []error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			queue, body := job(i)
			_, errs[i] = c.Put(t.Context(), queue, body)
		})
	}
	wg.Wait()
	return errs
}

func TestEntriesOfABatchStandAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := NewFake()
		fake.entryFault = func(queue string, attempt int) *belfryv1.EntryError {
			switch {
			case queue == "full":
				return &belfryv1.EntryError{
					Code: "resource_exhausted", Reason: belfryv1.Reason_REASON_QUEUE_FULL, Message: "full",
					Outcome: belfryv1.Outcome_OUTCOME_NOT_APPLIED, Shard: proto.Uint32(5),
				}
			case queue == "moving" && attempt < 3:
				return &belfryv1.EntryError{
					Code: "unavailable", Reason: belfryv1.Reason_REASON_NO_LEADER, Outcome: belfryv1.Outcome_OUTCOME_NOT_APPLIED,
				}
			}
			return nil
		}
		// The fake forgets refused batches, so that the repeat of one is carried out, as by a server
		// whose shard comes back.
		fake.failAfter(func(_ context.Context, method string, req proto.Message) error {
			if batch, ok := req.(*belfryv1.PutBatchRequest); ok {
				fake.mu.Lock()
				defer fake.mu.Unlock()
				delete(fake.answers, batch.GetRequestId())
			}
			return nil
		})
		c := start(t, newPipeNet(), []Option{Coalescing{InFlight: 1}}, fake)
		fake.failBefore(func(context.Context, string, proto.Message) error {
			time.Sleep(time.Millisecond)
			return nil
		})
		queues := []string{"first", "ok", "full", "moving"}
		began := time.Now()
		errs := make([]error, len(queues))
		took := make([]time.Duration, len(queues))
		var wg sync.WaitGroup
		for i, queue := range queues {
			wg.Go(func() {
				_, errs[i] = c.Put(t.Context(), queue, nil, ID(queue))
				took[i] = time.Since(began)
			})
			synctest.Wait()
		}
		wg.Wait()
		if errs[0] != nil || errs[1] != nil || errs[3] != nil || !errors.Is(errs[2], ErrQueueFull) {
			t.Errorf("errors %v", errs)
		}
		var typed *Error
		if !errors.As(errs[2], &typed) || typed.Shard == nil || *typed.Shard != 5 ||
			typed.Code != connect.CodeResourceExhausted || typed.RequestID == "" {
			t.Errorf("error %+v", typed)
		}
		if took[1] > 5*time.Millisecond || took[2] > 5*time.Millisecond {
			t.Errorf("the entries that were answered waited %v and %v for the one that was not", took[1], took[2])
		}
		ids := fake.ids("PutBatch")
		if n := len(slices.Compact(ids)); n != 2 {
			t.Errorf("request ids %v: a batch is repeated under its own", ids)
		}
		if sizes := fake.sizes("PutBatch"); !slices.Equal(sizes, []int{1, 3, 3, 3}) {
			t.Errorf("sizes %v: a batch is repeated as it was", sizes)
		}
	})
}

// A batch that waits for its next attempt must not keep calls to other shards waiting.
func TestRetryingBatchGivesItsSlotBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := NewFake()
		fake.failBefore(func(_ context.Context, _ string, req proto.Message) error {
			if batch, ok := req.(*belfryv1.PutBatchRequest); ok && batch.GetJobs()[0].GetQueue() == "stuck" {
				return refusal(connect.CodeUnavailable, "NO_LEADER", "not_applied", 0)
			}
			return nil
		})
		c := start(t, newPipeNet(), []Option{Coalescing{InFlight: 1}}, fake)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		stuck := make(chan error)
		go func() {
			_, err := c.Put(ctx, "stuck", nil)
			stuck <- err
		}()
		synctest.Wait()
		began := time.Now()
		if _, err := c.Put(ctx, "q", nil); err != nil || time.Since(began) > time.Second {
			t.Errorf("a put to another queue took %v and ended with %v", time.Since(began), err)
		}
		cancel()
		if err := <-stuck; !errors.Is(err, context.Canceled) || !errors.Is(err, Reason("NO_LEADER")) ||
			errors.Is(err, ErrUnknownOutcome) {
			t.Errorf("the stuck put ended with %v", err)
		}
	})
}

func TestCallersLeaveABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := NewFake()
		release := make(chan struct{})
		var ended error
		fake.failBefore(func(ctx context.Context, _ string, _ proto.Message) error {
			select {
			case <-release:
			case <-ctx.Done():
				ended = ctx.Err()
			}
			return nil
		})
		c := start(t, newPipeNet(), []Option{Coalescing{InFlight: 1}}, fake)
		type call struct {
			cancel context.CancelFunc
			err    chan error
		}
		var calls []call
		for range 3 { // the first is on its way, the others are pending
			ctx, cancel := context.WithCancel(t.Context())
			errs := make(chan error, 1)
			go func() {
				_, err := c.Put(ctx, "q", nil)
				errs <- err
			}()
			synctest.Wait()
			calls = append(calls, call{cancel, errs})
		}
		calls[1].cancel()
		if err := <-calls[1].err; errors.Is(err, ErrUnknownOutcome) || !errors.Is(err, context.Canceled) {
			t.Errorf("a pending put ended with %v", err)
		}
		calls[0].cancel()
		if err := <-calls[0].err; !errors.Is(err, ErrUnknownOutcome) || !errors.Is(err, context.Canceled) {
			t.Errorf("a put on its way ended with %v", err)
		}
		synctest.Wait()
		if ended == nil {
			t.Error("the request of a batch whose callers have left goes on")
		}
		close(release)
		if err := <-calls[2].err; err != nil {
			t.Errorf("the put that stayed ended with %v", err)
		}
		if sizes := fake.sizes("PutBatch"); !slices.Equal(sizes, []int{1, 1}) {
			t.Errorf("batches of %v, want the pending put that was cancelled left out", sizes)
		}
		calls[2].cancel()
	})
}

func TestBatchesStayBelowTheLimits(t *testing.T) {
	for name, try := range map[string]struct {
		option Coalescing
		n      int
		bytes  int
		jobs   int
	}{
		"bytes":        {Coalescing{}, 50, 500 << 10, 8},
		"jobs":         {Coalescing{}, 2500, 0, 1000},
		"fewer jobs":   {Coalescing{MaxJobs: 10}, 95, 0, 10},
		"too big each": {Coalescing{}, 3, 5 << 20, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := NewFake()
				var biggest int
				fake.failBefore(func(_ context.Context, _ string, req proto.Message) error {
					time.Sleep(10 * time.Millisecond)
					fake.mu.Lock()
					defer fake.mu.Unlock()
					biggest = max(biggest, proto.Size(req))
					return nil
				})
				c := start(t, newPipeNet(), []Option{try.option}, fake)
				for _, err := range putAll(t, c, try.n, func(int) (string, []byte) { return "q", make([]byte, try.bytes) }) {
					if err != nil {
						t.Fatal(err)
					}
				}
				if sizes := fake.sizes("PutBatch"); len(sizes) > 0 && slices.Max(sizes) > try.jobs {
					t.Errorf("batches of %v jobs", sizes)
				}
				if biggest > 4<<20 && try.bytes < 4<<20 {
					t.Errorf("a message has %d bytes", biggest)
				}
			})
		})
	}
}

// TestAStuckBatchHoldsNobodyUp: what gathered behind a batch that takes long leaves by itself,
// without another call that comes.
func TestAStuckBatchHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := NewFake()
		c := start(t, newPipeNet(), nil, fake)
		stuck := make(chan struct{})
		defer close(stuck)
		fake.failBefore(func(_ context.Context, _ string, req proto.Message) error {
			if batch, ok := req.(*belfryv1.PutBatchRequest); ok && batch.GetJobs()[0].GetQueue() == "stuck" {
				<-stuck
			}
			return nil
		})
		go func() { _, _ = c.Put(t.Context(), "stuck", nil) }()
		synctest.Wait()
		began := time.Now()
		for range 2 { // the second time the alarm is set again
			if _, err := c.Put(t.Context(), "q", nil); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took > 2*(batching.HoldMax+time.Millisecond) {
			t.Errorf("two puts behind a batch that is stuck took %v", took)
		}
	})
}

func TestMaxDelayGathers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := NewFake()
		c := start(t, newPipeNet(), []Option{Coalescing{MaxDelay: 50 * time.Millisecond, InFlight: 1}}, fake)
		for range 4 { // 10 ms apart
			go func() { _, _ = c.Put(t.Context(), "q", nil) }()
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(time.Second)
		if sizes := fake.sizes("PutBatch"); !slices.Equal(sizes, []int{4}) {
			t.Errorf("batches of %v, want one of 4", sizes)
		}
	})
}

func TestPutBatchSplitsAndReportsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := NewFake()
		c := start(t, newPipeNet(), nil, fake)
		if _, err := c.Put(t.Context(), "q", []byte("x"), ID("taken")); err != nil {
			t.Fatal(err)
		}
		puts := make([]Put, 2400)
		for i := range puts {
			puts[i] = Put{Queue: "q", Body: []byte(fmt.Sprint(i)), Options: []PutOption{ID(fmt.Sprintf("id %d", i))}}
		}
		puts[1700].Options = []PutOption{ID("taken")}
		puts[3].Queue = "\xff"
		results, err := c.PutBatch(t.Context(), puts)
		if !errors.Is(err, Reason("INVALID")) ||
			!strings.HasPrefix(err.Error(), "2 of 2400 puts failed, the first: entry 3:") {
			t.Errorf("error %v", err)
		}
		for i, r := range results {
			switch i {
			case 3:
				if !errors.Is(r.Err, Reason("INVALID")) {
					t.Errorf("result %d: %v", i, r.Err)
				}
			case 1700:
				if !errors.Is(r.Err, ErrJobExists) {
					t.Errorf("result %d: %v", i, r.Err)
				}
			default:
				if r.Err != nil || r.ID != fmt.Sprintf("id %d", i) {
					t.Errorf("result %d: %+v", i, r)
				}
			}
		}
		if sizes := fake.sizes("PutBatch"); !slices.Equal(sizes, []int{1, 1000, 1000, 399}) {
			t.Errorf("batches of %v", sizes)
		}
	})
}

func TestAckBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := NewFake()
		c := start(t, newPipeNet(), nil, fake)
		puts := make([]Put, 1200)
		for i := range puts {
			puts[i].Queue = "q"
		}
		if _, err := c.PutBatch(t.Context(), puts); err != nil {
			t.Fatal(err)
		}
		var leases []string
		for len(leases) < 1200 {
			jobs, err := c.Reserve(t.Context(), ReserveOptions{Queues: []string{"q"}, Max: 1000})
			if err != nil {
				t.Fatal(err)
			}
			for _, job := range jobs {
				leases = append(leases, job.Lease)
			}
		}
		leases[1100] = "stale"
		errs, err := c.AckBatch(t.Context(), leases)
		if !errors.Is(err, ErrStaleLease) || len(errs) != 1200 || !errors.Is(errs[1100], ErrStaleLease) {
			t.Errorf("errors %v", err)
		}
		for i, err := range errs {
			if err != nil && i != 1100 {
				t.Errorf("ack %d: %v", i, err)
			}
		}
	})
}

// A batch whose first attempt is refused as too old is sent under a new id: this machine's clock is
// behind.
func TestWrongClock(t *testing.T) {
	for _, mode := range []Coalescing{{}, {Off: true}} {
		t.Run(fmt.Sprint(mode.Off), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := NewFake()
				expired := refusal(connect.CodeFailedPrecondition, "REQUEST_EXPIRED", "UNKNOWN", 0)
				fake.failBefore(func(_ context.Context, method string, req proto.Message) error {
					id := req.(interface{ GetRequestId() string }).GetRequestId()
					if at, ok := requestid.MadeAt(id); !ok || at.Before(time.Now().Add(-5*time.Minute)) {
						return expired
					}
					return nil
				})
				c := start(t, newPipeNet(), []Option{mode}, fake)
				c.clock.Set(-time.Hour) // as if the machine were an hour behind; the answers say it is not
				if _, err := c.Put(t.Context(), "q", nil); err != nil {
					t.Errorf("put by a machine whose clock is behind: %v", err)
				}
				fake.failBefore(func(context.Context, string, proto.Message) error { return expired })
				if _, err := c.Put(t.Context(), "q", nil); !errors.Is(err, Reason("REQUEST_EXPIRED")) ||
					errors.Is(err, ErrUnknownOutcome) {
					t.Errorf("put that is refused again and again: %v", err)
				}
			})
		})
	}
}
