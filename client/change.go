package client

import (
	"context"
	"time"

	"github.com/belfrydb/belfry/client/internal/placement"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// Cancel removes a job that is delayed, ready or dead, and returns the state it had.
//
// Errors: [ErrJobNotFound], [ErrJobReserved].
func (c *Client) Cancel(ctx context.Context, queue, id string) (State, error) {
	return c.cancelJob(ctx, &belfryv1.CancelRequest{Queue: queue, Id: id})
}

// ForceCancel removes a job even if it is reserved, and returns the state it had. Its holder's
// lease is stale from then on.
//
// Errors: [ErrJobNotFound].
func (c *Client) ForceCancel(ctx context.Context, queue, id string) (State, error) {
	return c.cancelJob(ctx, &belfryv1.CancelRequest{Queue: queue, Id: id, Force: true})
}

func (c *Client) cancelJob(ctx context.Context, req *belfryv1.CancelRequest) (State, error) {
	req.RequestId = c.clock.NewID()
	res, err := call(ctx, c, callKind{
		id: &req.RequestId, place: placement.Place{Queue: req.GetQueue(), ID: req.GetId()},
	}, func(ctx context.Context, ep *endpoint) (*belfryv1.CancelResponse, error) {
		return ep.queue.Cancel(ctx, req)
	})
	if err != nil {
		return "", err
	}
	return stateOf(res.GetState()), nil
}

// Reschedule gives a delayed or ready job another due time, set by [In] or [At], and returns it.
//
// Errors: [ErrJobNotFound], [ErrJobReserved].
func (c *Client) Reschedule(ctx context.Context, queue, id string, when PutOption) (time.Time, error) {
	var put belfryv1.PutRequest
	when.apply(&put)
	req := &belfryv1.RescheduleRequest{Queue: queue, Id: id, RequestId: c.clock.NewID()}
	switch when := put.GetWhen().(type) {
	case *belfryv1.PutRequest_Delay:
		req.When = &belfryv1.RescheduleRequest_Delay{Delay: when.Delay}
	case *belfryv1.PutRequest_DueAt:
		req.When = &belfryv1.RescheduleRequest_DueAt{DueAt: when.DueAt}
	default:
		return time.Time{}, invalidError("Reschedule takes In or At")
	}
	res, err := call(ctx, c, callKind{
		id: &req.RequestId, place: placement.Place{Queue: req.GetQueue(), ID: req.GetId()},
	}, func(ctx context.Context, ep *endpoint) (*belfryv1.RescheduleResponse, error) {
		return ep.queue.Reschedule(ctx, req)
	})
	if err != nil {
		return time.Time{}, err
	}
	return timeOf(res.GetDueAt()), nil
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
	res, err := call(ctx, c, callKind{id: &req.RequestId},
		func(ctx context.Context, ep *endpoint) (*belfryv1.RedriveResponse, error) {
			return ep.queue.Redrive(ctx, req)
		})
	if err != nil {
		return 0, err
	}
	return int(res.GetMoved()), nil
}
