package client

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/belfrydb/belfry/client/internal/batchcodec"
	"github.com/belfrydb/belfry/client/internal/calls"
	"github.com/belfrydb/belfry/client/internal/coalesce"
	"github.com/belfrydb/belfry/client/internal/consume"
	"github.com/belfrydb/belfry/client/internal/placement"
	"github.com/belfrydb/belfry/client/internal/session"
	"github.com/belfrydb/belfry/client/internal/tracing"
	"github.com/belfrydb/belfry/client/internal/values"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/stream"
)

// Ack ends a job as done. It may share a round trip with other acks; see [Coalescing]. A second ack
// with the same lease is no error, until a minute after the lease's end.
//
// Errors: [ErrStaleLease].
func (c *Client) Ack(ctx context.Context, lease string) error { return c.tracedAck(ctx, lease, nil) }

// tracedAck is Ack of a job that may be known.
func (c *Client) tracedAck(ctx context.Context, lease string, job *Job) error {
	ctx, op := c.tracer.Settle(ctx, tracing.Ack, lease, job.traced())
	err := c.ack(ctx, lease)
	op.End(err)
	return err
}

func (c *Client) ack(ctx context.Context, lease string) error {
	if !utf8.ValidString(lease) {
		return invalidError("the lease is not valid UTF-8")
	}
	if !c.limits.Off {
		acks := c.acks.to(c.endpoints.routes.Leader(placement.OfLease(lease)))
		if _, err := acks.Do(ctx, lease, ackBytes+len(lease)); err != nil {
			return public(err)
		}
		return nil
	}
	_, err := call(ctx, c, calls.Kind{Place: placement.OfLease(lease)},
		onQueue(queueMethods.Ack, &belfryv1.AckRequest{Lease: lease}))
	return err
}

// ackBytes is the size of an ack in a message besides the lease.
const ackBytes = 8

// AckBatch ends jobs as done, in round trips of 1,000. There is one error for each lease, in the
// same order, nil where the ack succeeded. The second result is nil if all acks succeeded; else it
// wraps the first failure and says how many there were.
func (c *Client) AckBatch(ctx context.Context, leases []string) ([]error, error) {
	ctx, op := c.tracer.AckBatch(ctx, leases)
	errs, err := c.ackBatch(ctx, leases)
	op.End(err)
	return errs, err
}

func (c *Client) ackBatch(ctx context.Context, leases []string) ([]error, error) {
	errs := make([]error, len(leases))
	for from := 0; from < len(leases); from += batchJobsMax {
		chunk := leases[from:min(from+batchJobsMax, len(leases))]
		c.acks.to(nil).DoAll(ctx, chunk, func(i int, r coalesce.Reply[struct{}]) {
			if r.Err != nil {
				errs[from+i] = public(r.Err)
			}
		})
	}
	return errs, firstFailure(len(errs), "acks", func(i int) error { return errs[i] })
}

// sendAcks sends a batch of acks once, without a request id. An ack may be repeated without one,
// and the servers' memory for answers is better kept for calls that need it.
func sendAcks(ctx context.Context, ep *endpoint, _ string, leases []string) ([]coalesce.Reply[struct{}], error) {
	size := 0
	for _, lease := range leases {
		size += ackBytes + len(lease)
	}
	request := ep.sessions.Request(size)
	for _, lease := range leases {
		*request = batchcodec.AppendEntry(*request, lease)
	}
	answer, err := session.Do(ctx, ep.sessions, stream.AckBatch, ep.ackBatch, request)
	if err != nil {
		return nil, fmt.Errorf("acking %d jobs: %w", len(leases), err)
	}
	return answer.replies, nil
}

// Nack reports that an attempt failed. The job is tried again after its retry delay, or is dead if
// this was the last attempt. The results are the job's present state, and when it is due again.
//
// The server keeps at most 1 KiB of cause as the job's last error. A cause made by [RetryAfter]
// sets the delay; a cause made by [Dead] makes the job dead at once. A nil cause is a failure
// without a text.
//
// Errors: [ErrStaleLease].
func (c *Client) Nack(ctx context.Context, lease string, cause error) (State, time.Time, error) {
	return c.tracedNack(ctx, lease, cause, nil)
}

// tracedNack is Nack of a job that may be known.
func (c *Client) tracedNack(ctx context.Context, lease string, cause error, job *Job) (State, time.Time, error) {
	if result := consume.ResultOf(cause); result.Kind == consume.ResultSnooze {
		return c.tracedRelease(ctx, lease, result.Delay, job)
	}
	ctx, op := c.tracer.Settle(ctx, tracing.Nack, lease, job.traced())
	state, due, err := c.nack(ctx, lease, cause)
	op.End(err)
	return state, due, err
}

func (c *Client) nack(ctx context.Context, lease string, cause error) (State, time.Time, error) {
	req := &belfryv1.NackRequest{Lease: lease, RequestId: c.clock.NewID()}
	result := consume.ResultOf(cause)
	if cause != nil {
		req.Error = shortened(cause.Error())
	}
	switch result.Kind {
	case consume.ResultRetryAfter:
		req.Delay = durationpb.New(result.Delay)
	case consume.ResultDead:
		req.Dead = true
	case consume.ResultDone, consume.ResultRetry, consume.ResultSnooze:
	}
	res, err := call(ctx, c, calls.Kind{ID: &req.RequestId, Place: placement.OfLease(lease)},
		onQueue(queueMethods.Nack, req))
	if err != nil {
		return "", time.Time{}, err
	}
	return values.StateOf(res.GetState()), values.TimeOf(res.GetDueAt()), nil
}

// Release returns a job to its queue, due after delay (0 to 100 years), without counting an
// attempt. The results are the job's present state, and when it is due again.
//
// Errors: [ErrStaleLease].
func (c *Client) Release(ctx context.Context, lease string, delay time.Duration) (State, time.Time, error) {
	return c.tracedRelease(ctx, lease, delay, nil)
}

// tracedRelease is Release of a job that may be known.
func (c *Client) tracedRelease(ctx context.Context, lease string, delay time.Duration,
	job *Job) (State, time.Time, error) {
	ctx, op := c.tracer.Settle(ctx, tracing.Release, lease, job.traced())
	state, due, err := c.release(ctx, lease, delay)
	op.End(err)
	return state, due, err
}

// release is Release without a span, for releases that the program did not ask for.
func (c *Client) release(ctx context.Context, lease string, delay time.Duration) (State, time.Time, error) {
	req := &belfryv1.ReleaseRequest{Lease: lease, RequestId: c.clock.NewID()}
	if delay != 0 {
		req.Delay = durationpb.New(delay)
	}
	res, err := call(ctx, c, calls.Kind{ID: &req.RequestId, Place: placement.OfLease(lease)},
		onQueue(queueMethods.Release, req))
	if err != nil {
		return "", time.Time{}, err
	}
	return values.StateOf(res.GetState()), values.TimeOf(res.GetDueAt()), nil
}

// Extend moves the end of a lease to ttr from now: 1 ms to 24 h, or 0 for the length that it was
// granted or last extended with. It never moves the end to an earlier time. The result is the end
// of the lease on the server's clock.
//
// Errors: [ErrStaleLease].
func (c *Client) Extend(ctx context.Context, lease string, ttr time.Duration) (time.Time, error) {
	req := &belfryv1.ExtendRequest{Lease: lease, RequestId: c.clock.NewID()}
	if ttr != 0 {
		req.Ttr = durationpb.New(ttr)
	}
	res, err := call(ctx, c, calls.Kind{ID: &req.RequestId, Place: placement.OfLease(lease)},
		onQueue(queueMethods.Extend, req))
	if err != nil {
		return time.Time{}, err
	}
	return values.TimeOf(res.GetLeaseUntil()), nil
}

// errorBytesMax is how much of an error's text the server keeps.
const errorBytesMax = 1 << 10

// shortened cuts a text to what the server keeps, and makes it valid UTF-8.
func shortened(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), errorBytesMax)], "")
}

// Cancel removes a job that is delayed, ready or dead, and returns the state it had. The option is
// [OfKey].
//
// Errors: [ErrJobNotFound], [ErrJobReserved].
func (c *Client) Cancel(ctx context.Context, queue, id string, options ...JobOption) (State, error) {
	return c.cancelJob(ctx, &belfryv1.CancelRequest{Queue: queue, Id: id, Key: keyIn(options)})
}

// ForceCancel removes a job even if it is reserved, and returns the state it had. Its holder's
// lease is stale from then on. The option is [OfKey].
//
// Errors: [ErrJobNotFound].
func (c *Client) ForceCancel(ctx context.Context, queue, id string, options ...JobOption) (State, error) {
	return c.cancelJob(ctx, &belfryv1.CancelRequest{Queue: queue, Id: id, Force: true, Key: keyIn(options)})
}

func (c *Client) cancelJob(ctx context.Context, req *belfryv1.CancelRequest) (State, error) {
	req.RequestId = c.clock.NewID()
	place := placement.Place{Queue: req.GetQueue(), ID: req.GetId(), Key: req.GetKey()}
	res, err := call(ctx, c, calls.Kind{ID: &req.RequestId, Place: place},
		onQueue(queueMethods.Cancel, req))
	if err != nil {
		return "", err
	}
	return values.StateOf(res.GetState()), nil
}

// Reschedule gives a delayed or ready job another due time, set by [In] or [At], and returns it. The
// option is [OfKey].
//
// Errors: [ErrJobNotFound], [ErrJobReserved].
func (c *Client) Reschedule(ctx context.Context, queue, id string, when PutOption,
	options ...JobOption) (time.Time, error) {
	var put belfryv1.PutRequest
	when.apply(&put)
	req := &belfryv1.RescheduleRequest{Queue: queue, Id: id, RequestId: c.clock.NewID(), Key: keyIn(options)}
	switch when := put.GetWhen().(type) {
	case *belfryv1.PutRequest_Delay:
		req.When = &belfryv1.RescheduleRequest_Delay{Delay: when.Delay}
	case *belfryv1.PutRequest_DueAt:
		req.When = &belfryv1.RescheduleRequest_DueAt{DueAt: when.DueAt}
	default:
		return time.Time{}, invalidError("Reschedule takes In or At")
	}
	place := placement.Place{Queue: req.GetQueue(), ID: req.GetId(), Key: req.GetKey()}
	res, err := call(ctx, c, calls.Kind{ID: &req.RequestId, Place: place},
		onQueue(queueMethods.Reschedule, req))
	if err != nil {
		return time.Time{}, err
	}
	return values.TimeOf(res.GetDueAt()), nil
}

// Redrive makes the dead jobs with these ids ready again, at most 1,000, and returns how many there
// were. Their attempts start anew; their history stays.
//
// Errors: [ErrJobNotFound] if ids holds a single id and no dead job has it.
func (c *Client) Redrive(ctx context.Context, queue string, ids ...string) (int, error) {
	if len(ids) == 0 {
		return 0, nil
	}
	return c.redrive(ctx, &belfryv1.RedriveRequest{Queue: queue, Ids: ids})
}

// RedriveOldest makes dead jobs ready again, those with the earliest due times first, and returns
// how many there were. limit is the most to move: 1 to 100,000.
func (c *Client) RedriveOldest(ctx context.Context, queue string, limit int) (int, error) {
	if limit < 1 || limit > 100_000 {
		return 0, invalidError("the limit of a redrive is %d, must be 1 to 100000", limit)
	}
	return c.redrive(ctx, &belfryv1.RedriveRequest{Queue: queue, Max: uint32(limit)})
}

func (c *Client) redrive(ctx context.Context, req *belfryv1.RedriveRequest) (int, error) {
	req.RequestId = c.clock.NewID()
	res, err := call(ctx, c, calls.Kind{ID: &req.RequestId}, onQueue(queueMethods.Redrive, req))
	if err != nil {
		return 0, err
	}
	return int(res.GetMoved()), nil
}
