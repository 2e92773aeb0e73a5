// Package schedule puts, reads, pauses, runs and deletes schedules. A schedule puts a job into its queue
// at each of its nominal times. A client of package client makes the calls:
//
//	_, err := c.Schedules().Put(ctx, "reports", "nightly", schedule.Definition{
//		Spec: schedule.Spec{Cron: "30 2 * * *", TimeZone: "Europe/Berlin"},
//		Job:  schedule.Job{Body: []byte("all shops")},
//	})
//
// Errors are *client.Error, as those of all other calls. A docstring that names a reason means that
// errors.Is finds it: client.ErrScheduleNotFound, client.ErrVersionChanged, or
// client.Reason("QUEUE_NOT_FOUND"). Every call ends with client.Reason("UNIMPLEMENTED") until all nodes
// run a version that knows schedules.
package schedule

import (
	"context"
	"iter"
	"slices"

	"github.com/belfrydb/belfry/client/internal/calls"
	"github.com/belfrydb/belfry/client/internal/failure"
	"github.com/belfrydb/belfry/client/internal/values"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
)

// A Client makes the calls. Get one from Client.Schedules of package client. Any number of goroutines
// may use it. On a cluster with tokens, Put, Delete, Pause and Resume need the scope admin for the
// queue, Trigger and Backfill put, Get consume, and List view. Preview needs any token, or admin for its
// queue.
type Client struct {
	service calls.Service[methods]
}

type methods = belfryv1connect.ScheduleServiceClient

// New is for package client, which has the connections.
func New(service calls.Service[methods]) Client { return Client{service: service} }

// A PutOption changes what Put does.
type PutOption interface {
	applyPut(r *belfryv1.PutScheduleRequest)
}

// A DeleteOption changes what Delete does.
type DeleteOption interface {
	applyDelete(r *belfryv1.DeleteScheduleRequest)
}

// IfVersion lets Put or Delete succeed only if the schedule has this version. 0 stands for any. A
// schedule that was deleted and made again has other versions than the one before it; Schedule.Version
// has the exceptions.
type IfVersion uint64

func (v IfVersion) applyPut(r *belfryv1.PutScheduleRequest)       { r.IfVersion = uint64(v) }
func (v IfVersion) applyDelete(r *belfryv1.DeleteScheduleRequest) { r.IfVersion = uint64(v) }

// CancelWaiting makes Delete also cancel the last jobs of the schedule, at most 8, that are delayed or
// ready.
func CancelWaiting() DeleteOption { return cancelWaiting{} }

type cancelWaiting struct{}

func (cancelWaiting) applyDelete(r *belfryv1.DeleteScheduleRequest) { r.CancelWaiting = true }

// A PutResult says what became of a put.
type PutResult struct {
	// Created: it was not there. Replaced: it was there with another content. If neither is set, it had
	// the content already, and nothing changed.
	Created, Replaced bool
	// Version is its version, which grows with each other content.
	Version uint64
	// Preview shows when it fires. It has at most 10 times, and no Rule.
	Preview
}

// Put creates a schedule, or gives it another content: the whole definition replaces the one before. A
// queue that is not there comes into being, as with a put of a job. The name is unique in the queue: at
// most 128 bytes, segments of [A-Za-z0-9._:-] with a slash between them, none of them "." or "..". A
// repeat with the same definition changes nothing.
//
// To change a part of a schedule, change the definition that [Client.Get] returns, and put it with
// [IfVersion]. What [Client.List] returns has no body, no headers and no key.
//
// Errors: ErrVersionChanged, with the schedule's version in the error; it is 0 if the schedule is not
// there. ErrQueueFull if the schedule has more bytes than its queue has room for. Reason("INVALID") names
// the field. Reason("QUOTA") if the shard holds as many schedules as it may.
func (c Client) Put(ctx context.Context, queue, name string, d Definition, options ...PutOption) (PutResult, error) {
	req := &belfryv1.PutScheduleRequest{Queue: queue, Name: name, Policy: d.Policy.wire()}
	var invalid *failure.Error
	if req.Spec, invalid = d.Spec.wire(); invalid != nil {
		return PutResult{}, c.service.Public(invalid)
	}
	if req.Job, invalid = d.Job.wire(); invalid != nil {
		return PutResult{}, c.service.Public(invalid)
	}
	for _, o := range options {
		o.applyPut(req)
	}
	// A repeat may come to another node, which does not know the time zone and refuses what the first
	// attempt has done.
	res, err := change(ctx, c, &req.RequestId, calls.Of(methods.PutSchedule, req), failure.Invalid)
	if err != nil {
		return PutResult{}, err
	}
	return PutResult{
		Created: res.GetCreated(), Replaced: res.GetReplaced(), Version: res.GetVersion(),
		Preview: Preview{
			Times: values.Each(res.GetTimes(), timeOf), Warnings: res.GetWarnings(), ZoneData: res.GetZoneData(),
		},
	}, nil
}

// try makes a call that changes something. The outcome of an error is unknown if that of an earlier
// attempt is and the error's reason is one of open: it does not say what became of that attempt.
func try[Res any](ctx context.Context, c Client, id *string, method calls.Method[methods, Res],
	open ...failure.Reason) (*Res, *failure.Error) {
	unknown := false
	*id = c.service.NewID()
	res, err := calls.Try(ctx, c.service, calls.Kind{ID: id, Failed: func(e *failure.Error) {
		unknown = unknown || e.Outcome == failure.Unknown
	}}, method)
	if err != nil && unknown && slices.Contains(open, err.Reason) {
		err.Outcome = failure.Unknown
	}
	return res, err
}

// change is try with an error that is public.
func change[Res any](ctx context.Context, c Client, id *string, method calls.Method[methods, Res],
	open ...failure.Reason) (*Res, error) {
	res, err := try(ctx, c, id, method, open...)
	if err != nil {
		return nil, c.service.Public(err)
	}
	return res, nil
}

// Get reads a schedule, with its counts and its last firings.
//
// Errors: ErrScheduleNotFound, Reason("QUEUE_NOT_FOUND").
func (c Client) Get(ctx context.Context, queue, name string) (Schedule, error) {
	req := &belfryv1.GetScheduleRequest{Queue: queue, Name: name}
	res, err := calls.Read(ctx, c.service, calls.Of(methods.GetSchedule, req))
	if err != nil {
		return Schedule{}, err
	}
	return scheduleOf(res.GetSchedule()), nil
}

// listedAtOnce is how many schedules a page of a list has.
const listedAtOnce = 1000

// List reads the schedules of a queue whose names begin with prefix, ordered by name. Their jobs are
// without body, headers and key, so do not put what it returns: [Client.Get] reads all of a schedule. The
// sequence ends after the first error. A queue that is not there has no schedules.
func (c Client) List(ctx context.Context, queue, prefix string) iter.Seq2[Schedule, error] {
	return func(yield func(Schedule, error) bool) {
		req := &belfryv1.ListSchedulesRequest{Queue: queue, Prefix: prefix, PageSize: listedAtOnce}
		for {
			res, err := calls.Read(ctx, c.service, calls.Of(methods.ListSchedules, req))
			if err != nil {
				yield(Schedule{}, err)
				return
			}
			for _, s := range res.GetSchedules() {
				if !yield(scheduleOf(s), nil) {
					return
				}
			}
			if req.PageToken = res.GetNextPageToken(); req.GetPageToken() == "" {
				return
			}
		}
	}
}

// Delete removes a schedule, and returns how many of its jobs were cancelled, which takes
// [CancelWaiting]. All other jobs that it has put stay.
//
// Errors: ErrScheduleNotFound, Reason("QUEUE_NOT_FOUND"). ErrVersionChanged, with the schedule's version
// in the error.
func (c Client) Delete(ctx context.Context, queue, name string, options ...DeleteOption) (cancelled int, err error) {
	req := &belfryv1.DeleteScheduleRequest{Queue: queue, Name: name}
	for _, o := range options {
		o.applyDelete(req)
	}
	res, err := change(ctx, c, &req.RequestId, calls.Of(methods.DeleteSchedule, req))
	return int(res.GetCancelled()), err
}

// A Selection names schedules of a queue in one of three ways.
type Selection struct {
	// Names are names. Those that no schedule has are returned as missing.
	Names []string
	// Prefix selects all schedules whose names begin with it.
	Prefix string
	// All selects all schedules of the queue.
	All bool
}

// namesAtOnce is how many names one request has.
const namesAtOnce = 1000

// A PauseResult says what a pause or a resume did.
type PauseResult struct {
	// Changed is how many schedules it paused or resumed.
	Changed int
	// Missing are the names of the selection that no schedule has, in its order.
	Missing []string
}

// switched is an answer to a part of a selection.
type switched interface {
	GetChanged() uint32
	GetMissing() []string
}

// each calls f for each part of the selection that one request can have, and adds up what it did. If some
// schedules changed, the outcome of an error is unknown.
func (c Client) each(s Selection, f func(Selection) (switched, *failure.Error)) (all PauseResult, _ error) {
	for {
		part := s
		part.Names = s.Names[:min(len(s.Names), namesAtOnce)]
		s.Names = s.Names[len(part.Names):]
		done, err := f(part)
		if err != nil {
			if all.Changed > 0 {
				err.Outcome = failure.Unknown
			}
			return all, c.service.Public(err)
		}
		all.Changed += int(done.GetChanged())
		if all.Missing = append(all.Missing, done.GetMissing()...); len(s.Names) == 0 {
			return all, nil
		}
	}
}

// Pause keeps schedules from firing until [Client.Resume]. Those that are paused already stay as they are.
// The note says why, for people: at most 256 bytes. One round trip pauses up to 1,000 names; after an error
// the result says what the answered round trips did. A repeat is safe.
//
// A name that no schedule has is no error: look at Missing of the result.
//
// Errors: Reason("QUEUE_NOT_FOUND"). Reason("INVALID") if the selection has none or several of its ways.
func (c Client) Pause(ctx context.Context, queue string, which Selection, note string) (PauseResult, error) {
	return c.each(which, func(s Selection) (switched, *failure.Error) {
		req := &belfryv1.PauseSchedulesRequest{Queue: queue, Names: s.Names, Prefix: s.Prefix, All: s.All, Note: note}
		return try(ctx, c, &req.RequestId, calls.Of(methods.PauseSchedules, req))
	})
}

// Resume ends the pause of schedules. What was due meanwhile is caught up with as their policies say.
// Otherwise it is as [Client.Pause].
//
// Errors: those of Pause.
func (c Client) Resume(ctx context.Context, queue string, which Selection, note string) (PauseResult, error) {
	return c.each(which, func(s Selection) (switched, *failure.Error) {
		req := &belfryv1.ResumeSchedulesRequest{Queue: queue, Names: s.Names, Prefix: s.Prefix, All: s.All, Note: note}
		return try(ctx, c, &req.RequestId, calls.Of(methods.ResumeSchedules, req))
	})
}
