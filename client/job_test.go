package client

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

func TestJobOffTheWire(t *testing.T) {
	at := func(s int64) time.Time { return time.Unix(s, 0).UTC() }
	wire := &belfryv1.Job{
		Queue: "q", Id: "i", Lease: "l", Fence: 7, Attempt: 2, DueAt: timestamppb.New(at(1)),
		LeaseUntil: timestamppb.New(at(50)),
		Body:       &belfryv1.Job_Data{Data: []byte("body")}, Headers: map[string]string{"k": "v"},
		State: belfryv1.JobState_JOB_STATE_RESERVED, Priority: -3, Ttr: durationpb.New(time.Minute), MaxAttempts: 16,
		RetryDelays: []*durationpb.Duration{durationpb.New(0), durationpb.New(time.Second)},
		ExpiresAt:   timestamppb.New(at(3)),
		LastError:   "e", CreatedAt: timestamppb.New(at(4)), FirstDueAt: timestamppb.New(at(5)), BodyBytes: 4,
		EndedAt: timestamppb.New(at(6)), LeaseSince: timestamppb.New(at(7)), AttemptUnknown: proto.Bool(true),
		Client: "worker-1@10.0.0.1", ReservedAt: timestamppb.New(at(8)), Cause: "c",
		Attempts: []*belfryv1.Attempt{{
			Number: 1, BeganAt: timestamppb.New(at(9)), EndedAt: timestamppb.New(at(10)), Lapsed: true, Client: "w", Error: "x",
		}},
		Witness: &belfryv1.Witness{Time: timestamppb.New(at(40))},
		Key:     "customer-7", Version: 3, Next: &belfryv1.Successor{Version: 4, DueAt: timestamppb.New(at(60))},
	}
	received := at(100)
	want := &Job{
		Queue: "q", ID: "i", Lease: "l", Fence: 7, Attempt: 2, DueAt: at(1), LeaseUntil: at(50), Body: []byte("body"),
		BodyBytes: 4,
		Headers:   map[string]string{"k": "v"}, State: "RESERVED", Priority: -3, TTR: time.Minute, MaxAttempts: 16,
		RetryDelays: []time.Duration{0, time.Second}, ExpiresAt: at(3), LastError: "e", CreatedAt: at(4), FirstDueAt: at(5),
		EndedAt: at(6), LeaseSince: at(7), AttemptUnknown: true, Client: "worker-1@10.0.0.1", ReservedAt: at(8), Cause: "c",
		Attempts: []Attempt{{Number: 1, BeganAt: at(9), EndedAt: at(10), Lapsed: true, Client: "w", Error: "x"}},
		Key:      "customer-7", Version: 3, Next: &Successor{Version: 4, DueAt: at(60)},
		received: received, lease: 10 * time.Second,
	}
	got := jobOf(nil, wire, received)
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(Job{}), cmpopts.IgnoreFields(Job{}, "client")); diff != "" {
		t.Errorf("job (-want +got):\n%s", diff)
	}
	value := reflect.ValueOf(*got)
	for i := range value.NumField() {
		if name := value.Type().Field(i).Name; value.Field(i).IsZero() && name != "client" && name != "age" {
			t.Errorf("field %s is not read off the wire", name)
		}
	}
	wire = &belfryv1.Job{Body: &belfryv1.Job_Text{Text: "body"}}
	got = jobOf(nil, wire, time.Time{})
	if string(got.Body) != "body" || !got.DueAt.IsZero() || !got.ExpiresAt.IsZero() || got.State != "" || got.lease != 0 {
		t.Errorf("job %+v", got)
	}
}

func TestFinishingByJob(t *testing.T) {
	for name, try := range map[string]struct {
		finish func(ctx context.Context, job *Job) error
		want   jobState
	}{
		"ack": {func(ctx context.Context, job *Job) error { return job.Ack(ctx) }, jobState{state: "ACKED", attempt: 1}},
		"nack": {func(ctx context.Context, job *Job) error {
			return job.Nack(ctx, nil)
		}, jobState{state: "DELAYED", attempt: 1}},
		"release": {func(ctx context.Context, job *Job) error {
			return job.Release(ctx, time.Hour)
		}, jobState{state: "DELAYED", in: time.Hour}},
		"extend": {func(ctx context.Context, job *Job) error {
			until, err := job.Extend(ctx, time.Hour)
			if got := time.Until(until).Round(time.Second); got != time.Hour {
				err = errors.Join(err, fmt.Errorf("extended to %v from now", got))
			}
			return err
		}, jobState{state: "RESERVED", attempt: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			inBench(t, func(b *bench) {
				t := b.t
				b.put("a")
				jobs, err := b.client.Reserve(t.Context(), ReserveOptions{Queues: []string{"q"}})
				if err != nil {
					t.Fatal(err)
				}
				if err := try.finish(t.Context(), jobs[0]); err != nil {
					t.Error(err)
				}
				b.want("a", try.want)
			})
		})
	}
}

func TestChanges(t *testing.T) {
	inBench(t, func(b *bench) {
		t := b.t
		ctx, c := t.Context(), b.client
		b.put("held", "waiting")
		jobs, err := c.Reserve(ctx, ReserveOptions{Queues: []string{"q"}})
		if err != nil || jobs[0].ID != "held" {
			t.Fatal(jobs, err)
		}
		if _, err := c.Cancel(ctx, "q", "held"); !errors.Is(err, ErrJobReserved) {
			t.Errorf("cancel of a held job: %v", err)
		}
		due, err := c.Reschedule(ctx, "q", "waiting", In(time.Hour))
		if err != nil || time.Until(due).Round(time.Second) != time.Hour {
			t.Errorf("reschedule: %v, %v", due, err)
		}
		if _, err := c.Reschedule(ctx, "q", "waiting", ID("x")); !errors.Is(err, Reason("INVALID")) {
			t.Errorf("reschedule without a time: %v", err)
		}
		if state, err := c.Cancel(ctx, "q", "waiting"); err != nil || state != "DELAYED" {
			t.Errorf("cancel: %s, %v", state, err)
		}
		if state, due, err := c.Nack(ctx, jobs[0].Lease, Dead(nil)); err != nil || state != "DEAD" || !due.IsZero() {
			t.Errorf("nack: %s, %v, %v", state, due, err)
		}
		if n, err := c.RedriveOldest(ctx, "q", 10); err != nil || n != 1 {
			t.Errorf("redrive: %d, %v", n, err)
		}
		if n, err := c.Redrive(ctx, "q"); err != nil || n != 0 {
			t.Errorf("redrive of nothing: %d, %v", n, err)
		}
		if _, err := c.RedriveOldest(ctx, "q", 0); !errors.Is(err, Reason("INVALID")) {
			t.Errorf("redrive of at most none: %v", err)
		}
		if state, err := c.ForceCancel(ctx, "q", "held"); err != nil || state != "DELAYED" {
			t.Errorf("force cancel: %s, %v", state, err)
		}
	})
}

// TestListAsksForWhatItSelects: each option of a list is in its request.
func TestListAsksForWhatItSelects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := NewFake()
		requests := seen(fake)
		c := start(t, newPipeNet(), nil, fake)
		o := ListOptions{State: "DEAD", Text: "t", IDPrefix: "i", Cause: "c", Key: "k"}
		for _, err := range c.List(t.Context(), "q", o) {
			t.Error(err)
		}
		want := []proto.Message{&belfryv1.ListRequest{
			Queue: "q", State: belfryv1.JobState_JOB_STATE_DEAD, Text: "t", IdPrefix: "i", Cause: "c", Key: "k",
		}}
		if diff := cmp.Diff(want, *requests, protocmp.Transform()); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
	})
}

func TestListReadsPageByPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := NewFake()
		c := start(t, newPipeNet(), nil, fake)
		for i := range 25 {
			if _, err := c.Put(t.Context(), "q", []byte("x"), In(time.Duration(25-i)*time.Minute)); err != nil {
				t.Fatal(err)
			}
		}
		var last time.Time
		n := 0
		for job, err := range c.List(t.Context(), "q", ListOptions{PageSize: 10}) {
			if err != nil {
				t.Fatal(err)
			}
			if job.DueAt.Before(last) || job.Body != nil || job.BodyBytes != 1 || job.Lease != "" {
				t.Errorf("job %+v after one due at %v", job, last)
			}
			last = job.DueAt
			n++
		}
		if n != 25 || len(fake.sizes("List")) != 3 {
			t.Errorf("%d jobs in %d pages", n, len(fake.sizes("List")))
		}
		for _, err := range c.List(t.Context(), "q", ListOptions{PageSize: 10}) {
			if err != nil {
				t.Error(err)
			}
			break
		}
		if pages := len(fake.sizes("List")); pages != 4 {
			t.Errorf("a loop that was left read on: %d pages", pages-3)
		}
		fake.failBefore(times(1, "List", refusal(connect.CodeInternal, "INTERNAL", "unknown", 0)))
		for name, o := range map[string]ListOptions{"refused": {}, "state": {State: "DAED"}, "size": {PageSize: 1001}} {
			var errs []error
			for _, err := range c.List(t.Context(), "q", o) {
				errs = append(errs, err)
			}
			if len(errs) != 1 || errs[0] == nil || errors.Is(errs[0], ErrUnknownOutcome) {
				t.Errorf("%s: errors %v", name, errs)
			}
		}
	})
}
