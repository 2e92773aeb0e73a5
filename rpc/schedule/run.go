package schedule

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/belfrydb/belfry/access/tokens"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/schedules"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/shardcall"
	"github.com/belfrydb/belfry/rpc/wire"
)

// DeleteSchedule implements belfryv1connect.ScheduleServiceHandler.
func (s *Service) DeleteSchedule(ctx context.Context,
	req *belfryv1.DeleteScheduleRequest) (*belfryv1.DeleteScheduleResponse, error) {
	c := s.onQueue(ctx, tokens.Admin, req.GetQueue())
	command := &fsm.DeleteSchedule{
		Queue: c.Queue("queue", req.GetQueue()), Name: checkName(c, "name", req.GetName()),
		CancelWaiting: req.GetCancelWaiting(), IfVersion: req.GetIfVersion(),
	}
	requestID := c.RequestID(req.GetRequestId())
	if c.Err != nil {
		return nil, c.Err
	}
	a, err := s.onSchedule(ctx, command.Queue, command.Name, requestID, command)
	if err != nil {
		return nil, err
	}
	return &belfryv1.DeleteScheduleResponse{Cancelled: wire.Count(a.Result.Count), Witness: a.Witness()}, nil
}

// triggerAhead is how far ahead of this node's clock the time of a trigger may be.
const triggerAhead = time.Minute

// TriggerSchedule implements belfryv1connect.ScheduleServiceHandler.
func (s *Service) TriggerSchedule(ctx context.Context,
	req *belfryv1.TriggerScheduleRequest) (*belfryv1.TriggerScheduleResponse, error) {
	c := s.onQueue(ctx, tokens.Put, req.GetQueue())
	queue, name := c.Queue("queue", req.GetQueue()), checkName(c, "name", req.GetName())
	requestID := c.RequestID(req.GetRequestId())
	at := wire.WholeMillis(exactTime(c, "at", req.GetAt()))
	switch {
	case req.GetAt() == nil && requestID != "":
		c.Fail(fault.Invalid("at", "required with a requestId: a repeat must mean the same job"))
	case req.GetAt() == nil:
		at = fsm.Time(c.Now.Truncate(time.Millisecond).UnixNano())
	case at > fsm.Time(c.Now.Add(triggerAhead).UnixNano()):
		c.Fail(fault.Invalid("at", "at most a minute from now"))
	}
	if c.Err != nil {
		return nil, c.Err
	}
	a, err := s.onSchedule(ctx, queue, name, requestID, &fsm.RunSchedule{Queue: queue, Name: name, Times: []fsm.Time{at}})
	if err != nil {
		return nil, err
	}
	return &belfryv1.TriggerScheduleResponse{
		Id: fsm.ScheduleJobID(name, at), Created: a.Result.Count > 0, Witness: a.Witness(),
	}, nil
}

// backfillDefault is how many nominal times a backfill deals with unless it says.
const backfillDefault = 1000

// BackfillSchedule implements belfryv1connect.ScheduleServiceHandler.
func (s *Service) BackfillSchedule(ctx context.Context,
	req *belfryv1.BackfillScheduleRequest) (*belfryv1.BackfillScheduleResponse, error) {
	c := s.onQueue(ctx, tokens.Put, req.GetQueue())
	queue, name := c.Queue("queue", req.GetQueue()), checkName(c, "name", req.GetName())
	requestID := c.RequestID(req.GetRequestId())
	from, to := exactTime(c, "from", req.GetFrom()), exactTime(c, "to", req.GetTo())
	most := c.Count("max", req.GetMax(), backfillDefault, backfillMax)
	switch {
	case req.GetFrom() == nil:
		c.Fail(fault.Invalid("from", "required"))
	case req.GetTo() == nil:
		c.Fail(fault.Invalid("to", "required"))
	case to <= from:
		c.Fail(fault.Invalid("to", "must be after from"))
	case to > fsm.Time(c.Now.UnixNano()):
		c.Fail(fault.Invalid("to", "at most the present: later firings are still to come"))
	}
	if c.Err != nil {
		return nil, c.Err
	}
	held, _, err := s.read(ctx, shardcall.Reader{Router: s.router}, queue, name)
	if err != nil {
		return nil, err
	}
	calendar, err := s.calendars.Of(name, &held.Spec)
	if err != nil {
		return nil, specFault(err)
	}
	all, rest := nominalTimes(calendar, from, to, int(most))
	out := &belfryv1.BackfillScheduleResponse{Rest: wire.ExactTime(rest)}
	if err := s.backfill(ctx, &fsm.RunSchedule{Queue: queue, Name: name, Times: all}, requestID, out); err != nil {
		return nil, err
	}
	return out, nil
}

// nominalTimes returns at most so many nominal times in a span, and the first one that it left out.
func nominalTimes(calendar schedules.Calendar, from, to fsm.Time, most int) (all []fsm.Time, rest fsm.Time) {
	for at := calendar.Next(from - 1); at != 0 && at < to; at = calendar.Next(at) {
		if len(all) == most {
			return all, at
		}
		all = append(all, at)
	}
	return all, 0
}

// backfill puts jobs in steps, and fills in the answer.
func (s *Service) backfill(ctx context.Context, run *fsm.RunSchedule, requestID string,
	out *belfryv1.BackfillScheduleResponse) error {
	for left := run.Times; len(left) > 0; {
		step := *run
		step.Times = left[:min(len(left), fsm.RunMax)]
		a, err := s.onSchedule(ctx, run.Queue, run.Name, stepID(requestID, fmt.Sprint(step.Times)), &step)
		full := err != nil && a.Fault != nil && a.Fault.Reason == belfryv1.Reason_REASON_QUEUE_FULL && out.GetPut() > 0
		switch {
		case err != nil && !full:
			return shardcall.Partly(fault.Of(err), uint64(out.GetPut()))
		case full:
			out.QueueFull, out.Rest = true, wire.ExactTime(step.Times[0])
			return nil
		}
		dealt := len(step.Times)
		if a.Result.More { // the queue is full, as the next step finds, or the jobs were large
			dealt = max(1, slices.Index(step.Times, a.Result.Due))
		}
		out.Put += wire.Count(a.Result.Count)
		out.Existing += wire.Count(uint64(dealt) - a.Result.Count)
		out.Witness = a.Witness()
		left = left[dealt:]
	}
	return nil
}
