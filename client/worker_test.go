package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/belfrydb/belfry/client/internal/consume"
	"github.com/belfrydb/belfry/client/internal/values"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// A bench is a worker at a fake, in a bubble.
type bench struct {
	t      *testing.T
	fake   *Fake
	client *Client
	errs   chan error // what OnError heard

	stop func()
	done chan error
}

// inBench runs a test in a bubble with a fake and a client.
func inBench(t *testing.T, test func(b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{t: t, fake: NewFake(), errs: make(chan error, 1000), done: make(chan error, 1)}
		b.client = start(t, newPipeNet(), nil, b.fake)
		test(b)
	})
}

// put adds jobs to queue q.
func (b *bench) put(bodies ...string) {
	b.t.Helper()
	for _, body := range bodies {
		if _, err := b.client.Put(b.t.Context(), "q", []byte(body), ID(body), TTR(30*time.Second)); err != nil {
			b.t.Fatal(err)
		}
	}
}

// run starts a worker.
func (b *bench) run(w Worker, h Handler) {
	if w.Queues == nil {
		w.Queues = []string{"q"}
	}
	w.OnError = func(_ *Job, err error) { b.errs <- err }
	ctx, cancel := context.WithCancel(b.t.Context())
	b.stop = cancel
	go func() { b.done <- w.Run(ctx, b.client, h) }()
}

// finish stops the worker, and wants it to stop without an error within d.
func (b *bench) finish(d time.Duration) {
	b.t.Helper()
	began := time.Now()
	b.stop()
	if err := <-b.done; err != nil {
		b.t.Errorf("the worker ended with %v", err)
	}
	if took := time.Since(began); took > d {
		b.t.Errorf("the worker took %v to stop, want at most %v", took, d)
	}
}

// jobState is what a test compares of a job.
type jobState struct {
	state   State
	attempt uint32
	in      time.Duration // to its due time, 0 if that is past
	err     string
}

func (b *bench) want(id string, want jobState) {
	b.t.Helper()
	b.fake.mu.Lock()
	defer b.fake.mu.Unlock()
	for _, job := range b.fake.jobs {
		if job.id != id {
			continue
		}
		got := jobState{values.StateOf(job.state), job.attempt, max(0, time.Until(job.due)).Round(time.Second), job.lastError}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(jobState{})); diff != "" {
			b.t.Errorf("job %s (-want +got):\n%s", id, diff)
		}
		return
	}
	b.t.Errorf("there is no job %s", id)
}

func TestResultsDecide(t *testing.T) {
	for name, try := range map[string]struct {
		result error
		want   jobState
	}{
		"nil":         {nil, jobState{state: "ACKED", attempt: 1}},
		"error":       {errors.New("smtp 421"), jobState{state: "DELAYED", attempt: 1, err: "smtp 421"}},
		"retry after": {RetryAfter(time.Hour, errors.New("smtp 421")), jobState{"DELAYED", 1, time.Hour, "smtp 421"}},
		"wrapped": {fmt.Errorf("mail: %w", RetryAfter(time.Hour, errors.New("421"))),
			jobState{"DELAYED", 1, time.Hour, "mail: 421"}},
		"retry, no error": {RetryAfter(time.Hour, nil), jobState{"DELAYED", 1, time.Hour, "to be tried again"}},
		"dead":            {Dead(errors.New("no such order")), jobState{"DEAD", 1, 0, "no such order"}},
		"snooze":          {Snooze(time.Hour), jobState{"DELAYED", 0, time.Hour, ""}},
		"long error":      {errors.New(strings.Repeat("é", 1000)), jobState{"DELAYED", 1, 0, strings.Repeat("é", 512)}},
	} {
		t.Run(name, func(t *testing.T) {
			inBench(t, func(b *bench) {
				b.put("a")
				var calls atomic.Int32
				b.run(Worker{}, func(ctx context.Context, _ *Job) error {
					if calls.Add(1) > 1 {
						<-ctx.Done() // a second attempt is not what this test is about
						return ctx.Err()
					}
					b.stop()
					return try.result
				})
				synctest.Wait()
				b.finish(time.Minute)
				b.want("a", try.want)
			})
		})
	}
}

func TestPanicIsAFailedAttempt(t *testing.T) {
	inBench(t, func(b *bench) {
		b.put("a", "b")
		b.run(Worker{Concurrency: 1}, func(_ context.Context, job *Job) error {
			if job.ID == "a" && job.Attempt == 1 {
				panic("broken")
			}
			return nil
		})
		synctest.Wait()
		b.finish(time.Second)
		b.want("b", jobState{state: "ACKED", attempt: 1})
		b.fake.mu.Lock()
		defer b.fake.mu.Unlock()
		if got := b.fake.jobs[0].lastError; !strings.HasPrefix(got, "the handler panicked: broken\n") ||
			!strings.Contains(got, "worker_test.go") {
			t.Errorf("the job keeps %q of the panic", got)
		}
	})
}

func TestStopLetsHandlersFinish(t *testing.T) {
	inBench(t, func(b *bench) {
		b.put("running", "prefetched 1", "prefetched 2", "waiting")
		b.run(Worker{Concurrency: 1, Prefetch: 2}, func(context.Context, *Job) error {
			time.Sleep(20 * time.Second)
			return nil
		})
		time.Sleep(time.Second)
		b.want("prefetched 2", jobState{state: "RESERVED", attempt: 1})
		b.want("waiting", jobState{state: "DELAYED"})
		b.stop()
		time.Sleep(time.Second)
		for _, id := range []string{"prefetched 1", "prefetched 2"} {
			b.want(id, jobState{state: "DELAYED"}) // at once, and without an attempt
		}
		b.finish(19 * time.Second)
		b.want("running", jobState{state: "ACKED", attempt: 1})
	})
}

func TestStopGivesBackWhatDoesNotFinish(t *testing.T) {
	inBench(t, func(b *bench) {
		b.put("a", "b")
		b.run(Worker{ShutdownTimeout: 5 * time.Second}, func(ctx context.Context, job *Job) error {
			<-ctx.Done()
			if job.ID == "b" {
				return Dead(ctx.Err()) // a handler that decides is heard
			}
			return ctx.Err()
		})
		time.Sleep(time.Second)
		b.finish(5500 * time.Millisecond)
		b.want("a", jobState{state: "DELAYED"})
		b.want("b", jobState{"DEAD", 1, 0, "context canceled"})
	})
}

func TestStopReportsHandlersThatHang(t *testing.T) {
	inBench(t, func(b *bench) {
		b.put("a")
		release := make(chan struct{})
		b.run(Worker{ShutdownTimeout: 5 * time.Second}, func(context.Context, *Job) error {
			<-release
			return nil
		})
		time.Sleep(time.Second)
		b.stop()
		err := <-b.done
		if !errors.Is(err, consume.ErrNotStopped) || !strings.HasPrefix(err.Error(), "1 handlers") {
			t.Errorf("the worker ended with %v", err)
		}
		b.want("a", jobState{state: "DELAYED"})
		close(release)
		synctest.Wait()
		if len(b.errs) > 0 {
			t.Errorf("after its end the worker reported %v", <-b.errs)
		}
	})
}

func TestWorkerHoldsNoMoreThanItMay(t *testing.T) {
	inBench(t, func(b *bench) {
		var bodies []string
		for i := range 100 {
			bodies = append(bodies, fmt.Sprintf("job %d", i))
		}
		b.put(bodies...)
		var running, most, handled atomic.Int32
		b.run(Worker{Concurrency: 4, Prefetch: 3}, func(context.Context, *Job) error {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			time.Sleep(time.Second)
			b.fake.mu.Lock()
			defer b.fake.mu.Unlock()
			reserved := 0
			for _, job := range b.fake.jobs {
				if job.state == belfryv1.JobState_JOB_STATE_RESERVED {
					reserved++
				}
			}
			if reserved > 7 {
				t.Errorf("the worker holds %d jobs, may hold 7", reserved)
			}
			handled.Add(1)
			return nil
		})
		time.Sleep(time.Minute)
		b.finish(time.Second)
		if most.Load() != 4 || handled.Load() != 100 {
			t.Errorf("at most %d handlers ran at a time and %d jobs were handled, want 4 and 100", most.Load(), handled.Load())
		}
	})
}

func TestMiddlewareOrder(t *testing.T) {
	inBench(t, func(b *bench) {
		b.put("a")
		var mu sync.Mutex
		var order []string
		wrap := func(name string) func(Handler) Handler {
			return func(next Handler) Handler {
				return func(ctx context.Context, job *Job) error {
					mu.Lock()
					order = append(order, name)
					mu.Unlock()
					return next(ctx, job)
				}
			}
		}
		b.run(Worker{Middleware: []func(Handler) Handler{wrap("outer"), wrap("inner")}}, func(context.Context, *Job) error {
			return nil
		})
		synctest.Wait()
		b.finish(time.Second)
		if diff := cmp.Diff([]string{"outer", "inner"}, order); diff != "" {
			t.Errorf("order (-want +got):\n%s", diff)
		}
	})
}

func TestWorkerStopsWhenRefusedForGood(t *testing.T) {
	inBench(t, func(b *bench) {
		b.fake.failBefore(func(context.Context, string, proto.Message) error {
			return refusal(connect.CodePermissionDenied, "FORBIDDEN", "not_applied", 0)
		})
		b.run(Worker{}, func(context.Context, *Job) error { return nil })
		if err := <-b.done; !errors.Is(err, Reason("FORBIDDEN")) {
			t.Errorf("the worker ended with %v", err)
		}
		b.stop()
	})
}

func TestWorkerConfiguration(t *testing.T) {
	c := start(t, newPipeNet(), nil, nil)
	err := Worker{Concurrency: -1, Prefetch: 1001, TTR: -1}.Run(t.Context(), c, nil)
	for _, want := range []string{"Queues", "Concurrency", "Prefetch", "TTR"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not name %s", err, want)
		}
	}
}
