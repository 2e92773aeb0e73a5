package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/belfrydb/belfry/client/internal/failure"
)

// ids gives the request ids of the calls of one method, in order of arrival.
func (f *Fake) ids(method string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var ids []string
	for _, call := range f.calls {
		if call.method == method {
			ids = append(ids, call.requestID)
		}
	}
	return ids
}

// times makes a fault that strikes the first n calls of a method.
func times(n int, method string, fault error) func(context.Context, string, proto.Message) error {
	var mu sync.Mutex
	return func(_ context.Context, called string, _ proto.Message) error {
		mu.Lock()
		defer mu.Unlock()
		if called != method || n == 0 {
			return nil
		}
		n--
		return fault
	}
}

// mutations are the calls that change something, each made so that it succeeds on a fresh fake with
// a reserved job a and a dead job d.
var mutations = []struct {
	name, method string
	call         func(ctx context.Context, c *Client, lease string) error
}{
	{"put", "PutBatch", func(ctx context.Context, c *Client, _ string) error {
		_, err := c.Put(ctx, "q", nil)
		return err
	}},
	{"put batch", "PutBatch", func(ctx context.Context, c *Client, _ string) error {
		_, err := c.PutBatch(ctx, []Put{{Queue: "q"}, {Queue: "q"}})
		return err
	}},
	{"reserve one", "Reserve", func(ctx context.Context, c *Client, _ string) error {
		_, err := c.Reserve(ctx, ReserveOptions{Queues: []string{"q"}})
		return err
	}},
	{"reserve many", "Reserve", func(ctx context.Context, c *Client, _ string) error {
		_, err := c.Reserve(ctx, ReserveOptions{Queues: []string{"q"}, Max: 2})
		return err
	}},
	{"nack", "Nack", func(ctx context.Context, c *Client, lease string) error {
		_, _, err := c.Nack(ctx, lease, nil)
		return err
	}},
	{"release", "Release", func(ctx context.Context, c *Client, lease string) error {
		_, _, err := c.Release(ctx, lease, 0)
		return err
	}},
	{"extend", "Extend", func(ctx context.Context, c *Client, lease string) error {
		_, err := c.Extend(ctx, lease, 0)
		return err
	}},
	{"cancel", "Cancel", func(ctx context.Context, c *Client, _ string) error {
		_, err := c.Cancel(ctx, "q", "d")
		return err
	}},
	{"force cancel", "Cancel", func(ctx context.Context, c *Client, _ string) error {
		_, err := c.ForceCancel(ctx, "q", "a")
		return err
	}},
	{"reschedule", "Reschedule", func(ctx context.Context, c *Client, _ string) error {
		_, err := c.Reschedule(ctx, "q", "d", In(time.Hour))
		return err
	}},
	{"redrive", "Redrive", func(ctx context.Context, c *Client, _ string) error {
		_, err := c.Redrive(ctx, "q", "d")
		return err
	}},
}

// prepared gives a client at a fake with a reserved job a and a dead job d, and a's lease.
func prepared(t *testing.T, fakes ...*Fake) (*Client, string) {
	t.Helper()
	c := start(t, newPipeNet(), nil, fakes...)
	var lease string
	for _, id := range []string{"a", "d"} {
		if _, err := c.Put(t.Context(), "q", nil, ID(id), TTR(time.Hour)); err != nil {
			t.Fatal(err)
		}
		jobs, err := c.Reserve(t.Context(), ReserveOptions{Queues: []string{"q"}, Max: 2})
		if err != nil || len(jobs) != 1 {
			t.Fatal(jobs, err)
		}
		if id == "a" {
			lease = jobs[0].Lease
		} else if err := jobs[0].Nack(t.Context(), Dead(nil)); err != nil {
			t.Fatal(err)
		}
	}
	return c, lease
}

func TestMutationsAreRepeatedWithTheirRequestID(t *testing.T) {
	for _, m := range mutations {
		for fault, err := range map[string]error{
			"unknown outcome": refusal(connect.CodeUnavailable, "UNKNOWN_OUTCOME", "unknown", 0),
			"server's end":    connect.NewError(connect.CodeDeadlineExceeded, errors.New("too slow")),
		} {
			t.Run(m.name+"/"+fault, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					fake := NewFake()
					c, lease := prepared(t, fake)
					done := len(fake.ids(m.method))
					fake.failAfter(times(3, m.method, err))
					if err := m.call(t.Context(), c, lease); err != nil {
						t.Errorf("the call failed: %v", err)
					}
					ids := fake.ids(m.method)[done:]
					if len(ids) != 4 || len(slices.Compact(ids)) != 1 || ids[0] == "" {
						t.Errorf("request ids %v, want the same one four times", ids)
					}
				})
			})
		}
	}
}

func TestFinalErrorsAreNotRepeated(t *testing.T) {
	for _, m := range mutations {
		t.Run(m.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := NewFake()
				c, lease := prepared(t, fake)
				done := len(fake.ids(m.method))
				fake.failBefore(times(10, m.method, refusal(connect.CodeInvalidArgument, "INVALID", "not_applied", 0)))
				err := m.call(t.Context(), c, lease)
				var typed *Error
				if !errors.As(err, &typed) || !errors.Is(err, Reason("INVALID")) || errors.Is(err, ErrUnknownOutcome) {
					t.Fatalf("error %v", err)
				}
				if typed.Shard == nil || *typed.Shard != 3 || typed.Leader != "n2:7400" || typed.RequestID == "" ||
					typed.Outcome != OutcomeNotApplied || typed.Code != connect.CodeInvalidArgument {
					t.Errorf("error %+v", typed)
				}
				if n := len(fake.ids(m.method)) - done; n != 1 {
					t.Errorf("the call was sent %d times", n)
				}
			})
		})
	}
}

func TestContextEndsRetries(t *testing.T) {
	for _, m := range mutations {
		for name, try := range map[string]struct {
			fault   error
			unknown bool
		}{
			"unknown": {refusal(connect.CodeUnavailable, "UNKNOWN_OUTCOME", "unknown", 0), true},
			"refused": {refusal(connect.CodeUnavailable, "NO_LEADER", "not_applied", 0), false},
		} {
			t.Run(m.name+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					fake := NewFake()
					c, lease := prepared(t, fake)
					fake.failBefore(times(1000, m.method, try.fault))
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					began := time.Now()
					err := m.call(ctx, c, lease)
					if time.Since(began) != time.Minute {
						t.Errorf("ended after %v", time.Since(began))
					}
					if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrUnknownOutcome) != try.unknown &&
						m.name != "reserve one" {
						t.Errorf("unknown %v, error %v", errors.Is(err, ErrUnknownOutcome), err)
					}
					if n := len(fake.ids(m.method)); n < 30 || n > 110 {
						t.Errorf("%d attempts in a minute", n)
					}
				})
			})
		}
	}
}

func TestCancelledCallEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := NewFake()
		fake.failBefore(func(ctx context.Context, _ string, _ proto.Message) error {
			<-ctx.Done()
			return ctx.Err()
		})
		c := start(t, newPipeNet(), nil, fake)
		cause := errors.New("the user left")
		for _, m := range mutations {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(cause) })
			began := time.Now()
			err := m.call(ctx, c, "lease")
			if time.Since(began) != time.Second || !errors.Is(err, context.Canceled) || !errors.Is(err, cause) {
				t.Errorf("%s: after %v: %v", m.name, time.Since(began), err)
			}
			if unknown := errors.Is(err, ErrUnknownOutcome); unknown == (m.name == "reserve one") {
				t.Errorf("%s: unknown is %v", m.name, unknown)
			}
			if err := m.call(ctx, c, "lease"); !errors.Is(err, cause) || errors.Is(err, ErrUnknownOutcome) {
				t.Errorf("%s with a context that ended before: %v", m.name, err)
			}
			time.Sleep(time.Minute)
		}
	})
}

// An error that comes from the moment, such as a full queue, says nothing about an earlier attempt
// that may still be on its way; an error from the shard does.
func TestUnknownStaysUnknown(t *testing.T) {
	for reason, unknown := range map[string]bool{
		"QUEUE_FULL": true, "DISK_FULL": true, "FORBIDDEN": true, "JOB_EXISTS": false, "INVALID": false,
	} {
		t.Run(reason, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := NewFake()
				c := start(t, newPipeNet(), []Option{Coalescing{Off: true}}, fake)
				lost := times(1, "Put", refusal(connect.CodeUnavailable, "UNKNOWN_OUTCOME", "unknown", 0))
				fake.failBefore(func(ctx context.Context, method string, req proto.Message) error {
					if err := lost(ctx, method, req); err != nil {
						return err
					}
					return refusal(connect.CodeResourceExhausted, reason, "not_applied", 0)
				})
				_, err := c.Put(t.Context(), "q", nil)
				if !errors.Is(err, Reason(reason)) || errors.Is(err, ErrUnknownOutcome) != unknown {
					t.Errorf("unknown %v, error %v", errors.Is(err, ErrUnknownOutcome), err)
				}
			})
		})
	}
}

func TestRetryWaitsAsLongAsTheServerSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := NewFake()
		fake.failBefore(times(3, "Get", refusal(connect.CodeResourceExhausted, "OVERLOADED", "not_applied", 7*time.Second)))
		c := start(t, newPipeNet(), nil, fake)
		began := time.Now()
		_, err := c.Get(t.Context(), "q", "x")
		if !errors.Is(err, ErrJobNotFound) {
			t.Error(err)
		}
		if took := time.Since(began); took < 21*time.Second || took > 25*time.Second {
			t.Errorf("three refusals that asked for 7 s each took %v", took)
		}
	})
}

func TestEndpointsAreTriedInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down, draining, up := NewFake(), NewFake(), NewFake()
		n := newPipeNet()
		draining.failBefore(func(context.Context, string, proto.Message) error {
			return refusal(connect.CodeUnavailable, "SHUTTING_DOWN", "not_applied", 0)
		})
		c := start(t, n, nil, nil, draining, up)
		for range 10 {
			if _, err := c.Put(t.Context(), "q", nil); err != nil {
				t.Fatal(err)
			}
		}
		if a, b, d := len(down.ids("PutBatch")), len(draining.ids("PutBatch")), len(up.ids("PutBatch")); a != 0 || b != 1 ||
			d != 10 {
			t.Errorf("calls by server: %d, %d, %d; want 0, 1, 10: calls stick to the server that works", a, b, d)
		}
	})
}

func TestServerRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, fake := newPipeNet(), NewFake()
		c := start(t, n, nil, nil)
		stop := n.serve(t, "n1:7400", fake.Handler())
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				for j := range 20 {
					time.Sleep(100 * time.Millisecond)
					if _, err := c.Put(t.Context(), "q", []byte(fmt.Sprint(i, j))); err != nil {
						t.Error(err)
					}
				}
			})
		}
		for range 10 {
			time.Sleep(150 * time.Millisecond)
			stop()
			time.Sleep(50 * time.Millisecond)
			stop = n.serve(t, "n1:7400", fake.Handler())
		}
		wg.Wait()
		seen := make(map[string]int)
		for _, job := range fake.jobs {
			seen[string(job.put.GetData())]++
		}
		if len(seen) != 1000 || len(fake.jobs) != 1000 {
			t.Errorf("1,000 puts through ten restarts made %d jobs of %d contents", len(fake.jobs), len(seen))
		}
	})
}

func TestErrorText(t *testing.T) {
	e := &Error{
		Reason: ErrQueueFull, Code: connect.CodeResourceExhausted, Message: "queue q holds 10 jobs", Outcome: OutcomeUnknown,
	}
	if got, want := e.Error(), "QUEUE_FULL: queue q holds 10 jobs (outcome unknown)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	e = public(failure.Of(errors.New("reset")))
	if got, want := e.Error(), "unknown (outcome unknown): reset"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestPublicFormHasTheCausesOfAttempts: a caller finds the reasons of earlier attempts, and no type
// of an internal package.
func TestPublicFormHasTheCausesOfAttempts(t *testing.T) {
	attempt := &failure.Error{Reason: failure.NoLeader, Outcome: failure.NotApplied, Leader: "n2:7400"}
	e := public(&failure.Error{Outcome: failure.Unknown, Causes: []error{context.Canceled, attempt}})
	if !errors.Is(e, Reason("NO_LEADER")) || !errors.Is(e, context.Canceled) || !errors.Is(e, ErrUnknownOutcome) {
		t.Errorf("%v lacks a cause", e)
	}
	if _, ok := errors.AsType[*failure.Error](e); ok {
		t.Errorf("%v shows an internal error", e)
	}
	if cause, ok := errors.AsType[*Error](e.Unwrap()); !ok || cause.Leader != "n2:7400" {
		t.Errorf("the cause is %v", cause)
	}
}

// TestOnlyServersAnswer: an [Error] that comes from elsewhere says nothing of the call. It may be the
// cause of the call's context, as in a handler that lost its lease, or come from the caller's own
// transport.
func TestOnlyServersAnswer(t *testing.T) {
	lost := &Error{Reason: ErrStaleLease, Code: connect.CodeFailedPrecondition, Outcome: OutcomeNotApplied}
	e := public(failure.Of(fmt.Errorf("putting a job: %w", lost)))
	if e.Reason != "" || e.Outcome != OutcomeUnknown || !errors.Is(e, ErrStaleLease) {
		t.Errorf("got %q, %s, %v", e.Reason, e.Outcome, e)
	}
}

// TestNamesAgree: the reasons and outcomes that callers see are those that the judgement knows.
func TestNamesAgree(t *testing.T) {
	for public, judged := range map[Reason]failure.Reason{
		ErrStaleLease: failure.StaleLease, ErrJobExists: failure.JobExists, ErrJobNotFound: failure.JobNotFound,
		ErrJobReserved: failure.JobReserved, ErrVersionChanged: failure.VersionChanged, ErrTooFewVoters: failure.TooFewVoters,
		ErrUnknownOutcome: failure.UnknownOutcome, ErrScheduleNotFound: failure.ScheduleNotFound,
	} {
		if string(public) != string(judged) {
			t.Errorf("%s is judged as %s", public, judged)
		}
	}
	for public, judged := range map[Outcome]failure.Outcome{
		OutcomeApplied: failure.Applied, OutcomeNotApplied: failure.NotApplied, OutcomeUnknown: failure.Unknown,
	} {
		if string(public) != string(judged) {
			t.Errorf("%s is judged as %s", public, judged)
		}
	}
}
