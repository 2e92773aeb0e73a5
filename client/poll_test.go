package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/belfrydb/belfry/client/internal/batching"
	"github.com/belfrydb/belfry/client/internal/coalesce"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// reserved is the answer to one Reserve call.
type reserved struct {
	caller int
	job    *Job
	err    error
	after  time.Duration
}

// reserveAll makes n callers reserve one job each, one after the other, and gives the channel of
// their answers.
func reserveAll(ctx context.Context, c *Client, n int, o ReserveOptions) <-chan reserved {
	answers := make(chan reserved, n)
	for i := range n {
		go func() {
			began := time.Now()
			jobs, err := c.Reserve(ctx, o)
			r := reserved{caller: i, err: err, after: time.Since(began)}
			if len(jobs) > 0 {
				r.job = jobs[0]
			}
			answers <- r
		}()
		synctest.Wait()
	}
	return answers
}

var orders = ReserveOptions{Queues: []string{"orders"}, Wait: 20 * time.Second}

func TestCallersShareParkedPolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := NewFake()
		c := start(t, newPipeNet(), nil, fake)
		answers := reserveAll(t.Context(), c, 100, orders)
		if sizes := fake.sizes("Reserve"); len(sizes) != 2 {
			t.Errorf("100 waiting callers made polls for %v jobs, want 2 polls", sizes)
		}
		puts := make([]Put, 100)
		for i := range puts {
			puts[i] = Put{Queue: "orders", Body: []byte(fmt.Sprint(i))}
		}
		if _, err := c.PutBatch(t.Context(), puts); err != nil {
			t.Fatal(err)
		}
		got := make(map[string]bool)
		for range 100 {
			r := <-answers
			if r.err != nil || r.job == nil {
				t.Fatalf("caller %d got %v, %v", r.caller, r.job, r.err)
			}
			got[r.job.ID] = true
		}
		if len(got) != 100 {
			t.Errorf("100 callers got %d different jobs", len(got))
		}
		if sizes := fake.sizes("Reserve"); len(sizes) > 5 {
			t.Errorf("handing out 100 jobs took polls for %v", sizes)
		}
	})
}

func TestJobsGoToTheOldestCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := NewFake()
		c := start(t, newPipeNet(), []Option{Coalescing{InFlight: 1}}, fake)
		answers := reserveAll(t.Context(), c, 5, orders)
		for i := range 5 {
			put, err := c.Put(t.Context(), "orders", nil)
			if err != nil {
				t.Fatal(err)
			}
			if r := <-answers; r.caller != i || r.job == nil || r.job.ID != put.ID {
				t.Errorf("job %s went to caller %d as %+v", put.ID, r.caller, r.job)
			}
			synctest.Wait()
		}
	})
}

func TestWaitEndsOnTime(t *testing.T) {
	for _, wait := range []time.Duration{0, 300 * time.Millisecond, time.Second, 20 * time.Second} {
		t.Run(fmt.Sprint(wait), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := NewFake()
				c := start(t, newPipeNet(), nil, fake)
				o := ReserveOptions{Queues: []string{"orders"}, Wait: wait}
				var wg sync.WaitGroup
				for i := range 50 {
					wg.Go(func() {
						time.Sleep(time.Duration(i) * 7 * time.Millisecond)
						began := time.Now()
						jobs, err := c.Reserve(t.Context(), o)
						if after := time.Since(began); err != nil || len(jobs) > 0 || after < wait-coalesce.DeadlineSlack ||
							after > wait+5*time.Millisecond {
							t.Errorf("caller %d: %v, %v after %v", i, jobs, err, after)
						}
					})
				}
				wg.Wait()
			})
		})
	}
}

// An answer that was on its way before a caller came says nothing to it: a job may have been put in
// between.
func TestEmptyAnswerIsNotForNewcomers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := NewFake()
		c := start(t, newPipeNet(), []Option{Coalescing{InFlight: 1}}, fake)
		fake.failAfter(func(_ context.Context, method string, _ proto.Message) error {
			if method == "Reserve" {
				time.Sleep(100 * time.Millisecond) // the answer is under way
			}
			return nil
		})
		now := ReserveOptions{Queues: []string{"orders"}}
		first := reserveAll(t.Context(), c, 1, now)
		if _, err := c.Put(t.Context(), "orders", nil); err != nil {
			t.Fatal(err)
		}
		second := reserveAll(t.Context(), c, 1, now)
		if r := <-first; r.job != nil || r.err != nil {
			t.Errorf("the caller before the put got %v, %v", r.job, r.err)
		}
		if r := <-second; r.job == nil {
			t.Errorf("the caller after the put got nothing, %v", r.err)
		}
	})
}

func TestPollWithoutCallersEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := NewFake()
		c := start(t, newPipeNet(), nil, fake)
		ctx, cancel := context.WithCancel(t.Context())
		answers := reserveAll(ctx, c, 1, orders)
		cancel()
		if r := <-answers; !errors.Is(r.err, context.Canceled) || errors.Is(r.err, ErrUnknownOutcome) {
			t.Errorf("the caller got %v", r.err)
		}
		time.Sleep(2 * coalesce.IdleAfter)
		fake.mu.Lock()
		parked := fake.parked
		fake.mu.Unlock()
		if parked != 0 {
			t.Errorf("%d polls wait at the server for nobody", parked)
		}
		// A newcomer in time takes the place of the one that left.
		ctx, cancel = context.WithCancel(t.Context())
		answers = reserveAll(ctx, c, 1, orders)
		before := len(fake.sizes("Reserve"))
		cancel()
		<-answers
		answers = reserveAll(t.Context(), c, 1, orders)
		time.Sleep(2 * coalesce.IdleAfter)
		if _, err := c.Put(t.Context(), "orders", nil); err != nil {
			t.Fatal(err)
		}
		if r := <-answers; r.job == nil {
			t.Errorf("the newcomer got %v", r.err)
		}
		if after := len(fake.sizes("Reserve")); after != before {
			t.Errorf("the newcomer took %d polls of its own", after-before)
		}
	})
}

func TestSurplusJobsAreGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := NewFake()
		c := start(t, newPipeNet(), nil, fake)
		fake.failAfter(func(_ context.Context, method string, _ proto.Message) error {
			if method == "Reserve" {
				time.Sleep(30 * time.Millisecond) // the answer crosses the caller's departure
			}
			return nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		answers := reserveAll(ctx, c, 1, orders)
		put, err := c.Put(t.Context(), "orders", nil)
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		if r := <-answers; r.job != nil {
			t.Fatal("the job came before the caller left")
		}
		time.Sleep(time.Second)
		job, err := c.Get(t.Context(), "orders", put.ID)
		if err != nil || job.State != "DELAYED" || job.Attempt != 0 {
			t.Errorf("a job that nobody waits for any more is %s with %d attempts, %v", job.State, job.Attempt, err)
		}
	})
}

func TestPollErrorReachesItsCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := NewFake()
		fake.failBefore(times(100, "Reserve", refusal(connect.CodeInvalidArgument, "INVALID", "not_applied", 0)))
		c := start(t, newPipeNet(), nil, fake)
		answers := reserveAll(t.Context(), c, 3, orders)
		for range 3 {
			if r := <-answers; !errors.Is(r.err, Reason("INVALID")) {
				t.Errorf("caller %d got %v", r.caller, r.err)
			}
		}
	})
}

// While no server answers, callers wait on beyond their wait, as any other call does, until their
// context ends. When one is back, the poll that is then under way has its full length.
func TestWaitingThroughAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, fake := newPipeNet(), NewFake()
		c := start(t, n, nil, nil)
		short, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		gone := reserveAll(short, c, 1, orders)
		answers := reserveAll(t.Context(), c, 1, orders)
		if r := <-gone; !errors.Is(r.err, context.DeadlineExceeded) || r.after != 30*time.Second {
			t.Errorf("after %v: %v", r.after, r.err)
		}
		time.Sleep(30 * time.Second)
		n.serve(t, "n1:7400", fake.Handler())
		if r := <-answers; r.err != nil || r.after < time.Minute || r.after > 83*time.Second {
			t.Errorf("after %v: %v, %v", r.after, r.job, r.err)
		}
	})
}

// The lease of a job that a lost answer brought began earlier than its receipt; the job must not
// claim more.
func TestRepeatedReserveIsDatedSafely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := NewFake()
		c := start(t, newPipeNet(), nil, fake)
		if _, err := c.Put(t.Context(), "orders", nil); err != nil {
			t.Fatal(err)
		}
		fake.failAfter(times(2, "Reserve", refusal(connect.CodeUnavailable, "UNKNOWN_OUTCOME", "unknown", time.Second)))
		began := time.Now()
		r := <-reserveAll(t.Context(), c, 1, orders)
		if r.err != nil || r.after < 2*time.Second || r.job.age < r.job.received.Sub(began)-time.Millisecond ||
			r.job.lease != 30*time.Second {
			t.Errorf("after %v: received %v after the start, age %v, lease %v, %v", r.after, r.job.received.Sub(began),
				r.job.age, r.job.lease, r.err)
		}
	})
}

func TestReserveOptionsAreChecked(t *testing.T) {
	c := start(t, newPipeNet(), nil, nil)
	for name, o := range map[string]ReserveOptions{
		"no queue": {},
		"max":      {Queues: []string{"q"}, Max: 1001},
		"negative": {Queues: []string{"q"}, Max: -1},
		"wait":     {Queues: []string{"q"}, Wait: -1},
		"utf-8":    {Queues: []string{"\xff"}},
	} {
		if _, err := c.Reserve(t.Context(), o); !errors.Is(err, Reason("INVALID")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestReserveSendsItsOptions(t *testing.T) {
	for _, most := range []int{1, 5} {
		synctest.Test(t, func(t *testing.T) {
			fake := NewFake()
			got := make(chan *belfryv1.ReserveRequest, 1)
			fake.failBefore(func(_ context.Context, _ string, req proto.Message) error {
				got <- proto.Clone(req).(*belfryv1.ReserveRequest)
				return nil
			})
			c := start(t, newPipeNet(), nil, fake)
			o := ReserveOptions{Queues: []string{"a", "b"}, Max: most, Wait: 3 * time.Second, TTR: time.Minute}
			if _, err := c.Reserve(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			req := <-got
			wait := req.GetWait().AsDuration()
			if !slices.Equal(req.GetQueues(), o.Queues) || int(req.GetMaxJobs()) != most || wait != o.Wait ||
				req.GetTtr().AsDuration() != o.TTR {
				t.Errorf("request %v", req)
			}
		})
	}
}

// A Reserve that is cancelled after the server granted it jobs gives them back, with no attempt
// counted.
func TestCancelledReserveGivesBackWhatItGot(t *testing.T) {
	for name, reserve := range map[string]func(ctx context.Context, c *Client) error{
		"one": func(ctx context.Context, c *Client) error {
			_, err := c.Reserve(ctx, ReserveOptions{Queues: []string{"q"}, Wait: 20 * time.Second})
			return err
		},
		"many": func(ctx context.Context, c *Client) error {
			_, err := c.Reserve(ctx, ReserveOptions{Queues: []string{"q"}, Wait: 20 * time.Second, Max: 5})
			return err
		},
		"worker": func(ctx context.Context, c *Client) error {
			if err := (Worker{Queues: []string{"q"}}).Run(ctx, c, func(context.Context, *Job) error { return nil }); err != nil {
				return err
			}
			return ctx.Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBench(t, func(b *bench) {
				b.put("a", "b")
				lost := times(1, "Reserve", errors.New("cut off"))
				b.fake.failAfter(func(ctx context.Context, method string, req proto.Message) error {
					err := lost(ctx, method, req)
					if err != nil {
						<-ctx.Done() // the answer never arrives
					}
					return err
				})
				ctx, cancel := context.WithCancel(b.t.Context())
				time.AfterFunc(3*time.Second, cancel)
				if err := reserve(ctx, b.client); !errors.Is(err, context.Canceled) {
					b.t.Errorf("ended with %v", err)
				}
				time.Sleep(time.Second)
				b.want("a", jobState{state: "DELAYED"})
				b.want("b", jobState{state: "DELAYED"})
				if ids := b.fake.ids("Reserve"); len(ids) != 2 || ids[0] != ids[1] {
					b.t.Errorf("request ids %v, want the same one twice", ids)
				}
			})
		})
	}
}

// TestAStuckPollHoldsNobodyUp: while a poll takes long, a call that asks for a job without waiting
// is served by another poll, without a further call that comes.
func TestAStuckPollHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := NewFake()
		c := start(t, newPipeNet(), nil, fake)
		stuck := make(chan struct{})
		defer close(stuck)
		var polls atomic.Int32
		fake.failBefore(func(_ context.Context, _ string, req proto.Message) error {
			if _, ok := req.(*belfryv1.ReserveRequest); ok && polls.Add(1) == 1 {
				<-stuck
			}
			return nil
		})
		o := ReserveOptions{Queues: []string{"orders"}}
		go func() { _, _ = c.Reserve(t.Context(), o) }()
		synctest.Wait()
		began := time.Now()
		if _, err := c.Reserve(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > batching.HoldMax+time.Millisecond {
			t.Errorf("a call behind a poll that is stuck took %v", took)
		}
	})
}
