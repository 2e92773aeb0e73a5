package client

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// TriggerSchedule implements the service; the fake keeps no schedules, it only shows what arrived.
func (f *Fake) TriggerSchedule(ctx context.Context,
	req *belfryv1.TriggerScheduleRequest) (*belfryv1.TriggerScheduleResponse, error) {
	return handle(ctx, f, "TriggerSchedule", req.GetRequestId(), 1, req,
		func() (*belfryv1.TriggerScheduleResponse, error) {
			return &belfryv1.TriggerScheduleResponse{Id: req.GetAt().AsTime().Format(time.RFC3339Nano), Created: true}, nil
		})
}

// TestSchedulesRepeat: a call about schedules whose answer is lost is sent again under the same request
// id, as any other. Its time is that of the servers, and its error is an Error with the id. The servers
// remember ids, so a repeat that finds no schedule settles the outcome.
func TestSchedulesRepeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := NewFake()
		lost := 0
		fake.failAfter(func(context.Context, string, proto.Message) error {
			if lost++; lost < 3 {
				return refusal(connect.CodeUnavailable, "UNKNOWN_OUTCOME", "UNKNOWN", 0)
			}
			return nil
		})
		c := start(t, newPipeNet(), nil, fake)
		c.clock.Set(time.Hour)
		first := time.Now().Add(c.clock.Ahead())
		put, err := c.Schedules().Trigger(t.Context(), "q", "n", time.Time{})
		if want := first.UTC().Truncate(time.Millisecond).Format(time.RFC3339Nano); err != nil || put.ID != want {
			t.Errorf("trigger of %s: %+v, %v", want, put, err)
		}
		ids := fake.ids("TriggerSchedule")
		if len(ids) != 3 || ids[0] == "" || ids[1] != ids[0] || ids[2] != ids[0] {
			t.Errorf("ids of requests: %q", ids)
		}
		attempts := 0 // the answer to the first is lost
		fake.failBefore(func(context.Context, string, proto.Message) error {
			if attempts++; attempts == 1 {
				return refusal(connect.CodeUnavailable, "UNKNOWN_OUTCOME", "UNKNOWN", 0)
			}
			return refusal(connect.CodeNotFound, "SCHEDULE_NOT_FOUND", "NOT_APPLIED", 0)
		})
		_, err = c.Schedules().Trigger(t.Context(), "q", "n", time.Time{})
		e, ok := errors.AsType[*Error](err)
		if !ok || !errors.Is(err, ErrScheduleNotFound) || e.RequestID == "" || e.Outcome != OutcomeNotApplied {
			t.Errorf("%+v", err)
		}
	})
}
