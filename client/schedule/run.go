package schedule

import (
	"context"
	"math"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/client/internal/calls"
	"github.com/belfrydb/belfry/client/internal/failure"
	"github.com/belfrydb/belfry/client/internal/values"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// A TriggerResult says what a trigger put.
type TriggerResult struct {
	// ID is the id of the job: "cron:<name>@<nominal time>".
	ID string
	// Created is false if a job of that id was there, or ended within the dedup window.
	Created bool
}

// Trigger puts one job of a schedule at once, whatever its policy says, and also if it is paused. at is
// the nominal time of the job, to the millisecond, at most a minute from now; zero means the present.
// Two calls with the same time put one job. So a program that may repeat the call chooses the time.
//
// Errors: ErrScheduleNotFound, Reason("QUEUE_NOT_FOUND"), ErrQueueFull, Reason("QUOTA").
func (c Client) Trigger(ctx context.Context, queue, name string, at time.Time) (TriggerResult, error) {
	req := &belfryv1.TriggerScheduleRequest{Queue: queue, Name: name, At: values.Timestamp(at)}
	res, err := change(ctx, c, &req.RequestId,
		func(ctx context.Context, to methods) (*belfryv1.TriggerScheduleResponse, error) {
			if req.GetAt() == nil { // the first attempt, when the client knows the servers' clock
				req.At = timestamppb.New(c.service.Now().Truncate(time.Millisecond))
			}
			return to.TriggerSchedule(ctx, req)
		})
	if err != nil {
		return TriggerResult{}, err
	}
	return TriggerResult{ID: res.GetId(), Created: res.GetCreated()}, nil
}

// A Span is what a backfill covers.
type Span struct {
	// From is where it begins: the first nominal time is at it or later. To is where it ends: the last
	// nominal time is before it. To is at most the present. Both are required.
	From, To time.Time
	// Max is how many nominal times there may be at most: 1 to 10,000. 0 means 1,000.
	Max int
}

// A BackfillResult says what a backfill put.
type BackfillResult struct {
	// Put is how many jobs were put. Existing is how many were there, or ended within the dedup window.
	Put, Existing int
	// Rest is the first nominal time of the span that was not dealt with, because of Max or because the
	// queue is full. Go on from it. Zero if there is none.
	Rest time.Time
	// QueueFull: the queue is full, so the jobs from Rest on were not put.
	QueueFull bool
}

// Backfill puts the jobs of the nominal times in a span of the past, whatever the policy of the schedule
// says, and also if it is paused. They are due at once. A job that is there, or ended within the dedup
// window, is not put again, so a repeat is safe.
//
// Errors: ErrScheduleNotFound, Reason("QUEUE_NOT_FOUND"), ErrQueueFull, Reason("QUOTA").
// Reason("INVALID") for a span that is empty or ends in the future.
func (c Client) Backfill(ctx context.Context, queue, name string, span Span) (BackfillResult, error) {
	req := &belfryv1.BackfillScheduleRequest{
		Queue: queue, Name: name, From: values.Timestamp(span.From), To: values.Timestamp(span.To),
	}
	var invalid *failure.Error
	if req.Max, invalid = wireCount("Max", span.Max); invalid != nil {
		return BackfillResult{}, c.service.Public(invalid)
	}
	// The server reads the schedule first. Somebody may have deleted it after an earlier attempt.
	res, err := change(ctx, c, &req.RequestId, calls.Of(methods.BackfillSchedule, req), failure.ScheduleNotFound)
	if err != nil {
		return BackfillResult{}, err
	}
	return BackfillResult{
		Put: int(res.GetPut()), Existing: int(res.GetExisting()), Rest: values.TimeOf(res.GetRest()),
		QueueFull: res.GetQueueFull(),
	}, nil
}

// A PreviewRequest says what Preview shows.
type PreviewRequest struct {
	// Spec is the rule.
	Spec Spec
	// Name is the name of the schedule, which decides the jitter.
	Name string
	// After: only firings after it are shown. Zero means the present.
	After time.Time
	// Count is how many firings are shown: 1 to 100. 0 means 10.
	Count int
	// Queue, if it is set, has Name, Policy and Job checked as Put checks them for this queue. On a cluster
	// with tokens that needs the scope admin for it.
	Queue  string
	Policy Policy
	Job    Job
}

// A Preview shows when a schedule fires.
type Preview struct {
	// Times are the next firings, in order. None if it does not fire any more.
	Times []Time
	// Rule is the rule in its canonical form: numbers instead of names.
	Rule string
	// Warnings say what the rule may mean that was not intended, a sentence each.
	Warnings []string
	// ZoneData is the version of the time-zone data that the times were found with.
	ZoneData string
}

// A Time is a firing that is to come.
type Time struct {
	// Nominal is its nominal time. DueAt is when its job is due: the nominal time and its jitter.
	Nominal, DueAt time.Time
	// Local is the nominal time as a clock in the time zone shows it, with its offset and abbreviation.
	Local string
}

func timeOf(t *belfryv1.ScheduleTime) Time {
	return Time{Nominal: values.TimeOf(t.GetNominal()), DueAt: values.TimeOf(t.GetDueAt()), Local: t.GetLocal()}
}

// Preview says when a schedule would fire. It changes nothing, and needs no schedule.
//
// Errors: Reason("INVALID") or Reason("TOO_LARGE") names the field.
func (c Client) Preview(ctx context.Context, p PreviewRequest) (Preview, error) {
	spec, invalid := p.Spec.wire()
	if invalid != nil {
		return Preview{}, c.service.Public(invalid)
	}
	req := &belfryv1.PreviewScheduleRequest{Spec: spec, Name: p.Name, After: values.Timestamp(p.After)}
	if req.Count, invalid = wireCount("Count", p.Count); invalid != nil {
		return Preview{}, c.service.Public(invalid)
	}
	if req.Queue = p.Queue; p.Queue != "" {
		req.Policy = p.Policy.wire()
		if req.Job, invalid = p.Job.wire(); invalid != nil {
			return Preview{}, c.service.Public(invalid)
		}
	}
	res, err := calls.Read(ctx, c.service, calls.Of(methods.PreviewSchedule, req))
	if err != nil {
		return Preview{}, err
	}
	return Preview{
		Times: values.Each(res.GetTimes(), timeOf), Rule: res.GetRule(), Warnings: res.GetWarnings(),
		ZoneData: res.GetZoneData(),
	}, nil
}

// wireCount returns a number that has 32 bits in a message.
func wireCount(name string, n int) (uint32, *failure.Error) {
	if n < 0 || uint64(n) > math.MaxUint32 {
		return 0, failure.Invalidf("%s: %d; it is 0 to %d", name, n, uint32(math.MaxUint32))
	}
	return uint32(n), nil
}
