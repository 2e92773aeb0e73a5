package client

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
)

func TestLeaseIsExtendedWhileTheHandlerRuns(t *testing.T) {
	inBench(t, func(b *bench) {
		b.put("a")
		b.run(Worker{}, func(ctx context.Context, job *Job) error {
			select {
			case <-time.After(10 * time.Minute):
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
		time.Sleep(11 * time.Minute)
		b.finish(time.Second)
		b.want("a", jobState{state: "ACKED", attempt: 1})
		if n := len(b.fake.sizes("Extend")); n < 50 || n > 70 {
			t.Errorf("a lease of 30 s was extended %d times in 10 minutes, want about 60", n)
		}
	})
}

// An answer that was held up on its way brings leases that are nearly or quite over. Their ends
// tell.
func TestHeldUpAnswerBringsOldLeases(t *testing.T) {
	for name, try := range map[string]struct {
		heldUp  time.Duration
		attempt int // that is handled
	}{
		"little is left":  {25 * time.Second, 1},
		"nothing is left": {32 * time.Second, 2},
	} {
		t.Run(name, func(t *testing.T) {
			inBench(t, func(b *bench) {
				var bodies []string
				for i := range 10 {
					bodies = append(bodies, fmt.Sprint(i))
				}
				slow := times(1, "Reserve", errors.New("held up"))
				b.fake.failAfter(func(ctx context.Context, method string, req proto.Message) error {
					if slow(ctx, method, req) != nil {
						time.Sleep(try.heldUp)
					}
					return nil
				})
				b.fake.failBefore(func(_ context.Context, method string, _ proto.Message) error {
					if method == "Extend" {
						time.Sleep(2 * time.Second) // ten of them, one after another, would come too late
					}
					return nil
				})
				b.put(bodies...)
				var handled atomic.Int32
				b.run(Worker{}, func(_ context.Context, job *Job) error {
					handled.Add(1)
					b.fake.mu.Lock()
					defer b.fake.mu.Unlock()
					if held, err := b.fake.held(job.Lease); err != nil || time.Until(held.until) < 20*time.Second ||
						job.Attempt != try.attempt {
						b.t.Errorf("a handler began on %s, attempt %d: %v", job.Lease, job.Attempt, err)
					}
					return nil
				})
				time.Sleep(time.Minute)
				b.finish(time.Second)
				if n := handled.Load(); n != 10 {
					b.t.Errorf("%d jobs were handled, want 10", n)
				}
			})
		})
	}
}

// What a lease's age is thought to be is a reason to ask the server, which knows: a fresh lease is
// handled once, without an error.
func TestAFreshLeaseThatLooksOldIsHandled(t *testing.T) {
	for name, plant := range map[string]func(b *bench){
		"the poll was repeated for longer than a lease": func(b *bench) {
			began := time.Now()
			b.fake.failBefore(func(_ context.Context, method string, _ proto.Message) error {
				if method == "Reserve" && time.Since(began) < time.Minute {
					return refusal(connect.CodeUnavailable, "NO_LEADER", "not_applied", 0)
				}
				return nil
			})
		},
		"a wall clock was set": func(b *bench) {
			b.fake.failBefore(func(_ context.Context, method string, _ proto.Message) error {
				if method == "Reserve" {
					b.client.clock.Set(time.Hour)
				}
				return nil
			})
			b.client.clock.Set(time.Hour)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBench(t, func(b *bench) {
				b.put("a", "b", "c")
				plant(b)
				w := Worker{Queues: []string{"q"}, Concurrency: 1, Prefetch: 2, OnError: func(job *Job, err error) {
					if job != nil {
						b.t.Errorf("job %s: %v", job.ID, err)
					}
				}}
				ctx, cancel := context.WithTimeout(b.t.Context(), 3*time.Minute)
				defer cancel()
				var handled []string
				if err := w.Run(ctx, b.client, func(ctx context.Context, job *Job) error {
					handled = append(handled, fmt.Sprint(job.ID, job.Attempt))
					return ctx.Err()
				}); err != nil {
					b.t.Error(err)
				}
				if diff := cmp.Diff([]string{"a1", "b1", "c1"}, handled); diff != "" {
					b.t.Errorf("jobs and attempts (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// No handler begins on a lease that cannot be extended in time: its job waited here while another
// was handled.
func TestNoHandlerBeginsOnAShortLease(t *testing.T) {
	inBench(t, func(b *bench) {
		b.put("a", "b")
		b.fake.failBefore(func(_ context.Context, method string, _ proto.Message) error {
			if method == "Extend" {
				return refusal(connect.CodeResourceExhausted, "RATE_LIMITED", "not_applied", 0)
			}
			return nil
		})
		var began []string
		b.run(Worker{Concurrency: 1, Prefetch: 1}, func(_ context.Context, job *Job) error {
			began = append(began, fmt.Sprint(job.ID, len(b.fake.sizes("Release"))))
			if job.ID == "a" {
				time.Sleep(22 * time.Second) // of 30; b came with it
			}
			return nil
		})
		time.Sleep(25 * time.Second)
		b.finish(time.Second)
		if diff := cmp.Diff([]string{"a0", "b1"}, began); diff != "" {
			b.t.Errorf("handlers and releases before them, want b to go back and come anew (-want +got):\n%s", diff)
		}
		b.want("b", jobState{state: "ACKED", attempt: 1})
	})
}

// An extension that is on its way while the job is acked fails, and this is not reported.
func TestExtensionThatMeetsTheAck(t *testing.T) {
	inBench(t, func(b *bench) {
		b.put("a")
		b.fake.failBefore(func(_ context.Context, method string, _ proto.Message) error {
			if method == "Extend" {
				time.Sleep(time.Second)
			}
			return nil
		})
		b.fake.failAfter(func(_ context.Context, method string, _ proto.Message) error {
			if method == "AckBatch" {
				time.Sleep(2 * time.Second) // its answer comes after that of the extension
			}
			return nil
		})
		b.run(Worker{}, func(context.Context, *Job) error {
			time.Sleep(10500 * time.Millisecond) // the extension left after 10 s
			return nil
		})
		time.Sleep(15 * time.Second)
		b.finish(time.Second)
		b.want("a", jobState{state: "ACKED", attempt: 1})
		if n := len(b.fake.sizes("Extend")); n != 1 || len(b.errs) > 0 {
			t.Errorf("%d extensions, %d errors", n, len(b.errs))
		}
	})
}

func TestLostLeaseEndsTheHandler(t *testing.T) {
	for name, try := range map[string]struct {
		worker  Worker
		plant   func(b *bench)
		atLeast time.Duration
		atMost  time.Duration
	}{
		"the server refuses to extend": {
			Worker{},
			func(b *bench) {
				if _, err := b.client.ForceCancel(b.t.Context(), "q", "a"); err != nil {
					b.t.Error(err)
				}
			},
			0, 11 * time.Second,
		},
		"no server answers": {
			Worker{},
			func(b *bench) {
				b.fake.failBefore(func(context.Context, string, proto.Message) error {
					return refusal(connect.CodeUnavailable, "NO_LEADER", "not_applied", 0)
				})
			},
			26 * time.Second, 29 * time.Second,
		},
		"held for too long": {Worker{MaxLease: 5 * time.Minute}, func(*bench) {}, 5 * time.Minute,
			5*time.Minute + 30*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inBench(t, func(b *bench) {
				b.put("a")
				lost := make(chan error, 10)
				b.run(try.worker, func(ctx context.Context, job *Job) error {
					try.plant(b)
					began := time.Now()
					<-ctx.Done()
					if after := time.Since(began); after < try.atLeast || after > try.atMost {
						t.Errorf("the handler ended after %v", after)
					}
					lost <- context.Cause(ctx)
					b.stop()
					b.fake.failBefore(nil)
					return ctx.Err()
				})
				if cause := <-lost; !errors.Is(cause, ErrStaleLease) {
					t.Errorf("the handler's context ended with %v", cause)
				}
				b.finish(time.Minute)
			})
		})
	}
}
