package client

import (
	"context"
	"strings"
	"time"
	"unicode/utf8"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// ReserveOptions say what [Client.Reserve] asks for.
type ReserveOptions struct {
	// Queues are 1 to 64 queues, tried in this order.
	Queues []string
	// Max is how many jobs to hand out at most: 1 to 1,000, default 1.
	Max int
	// Wait is how long to wait for a first job: 0 to 60 s, default 0.
	Wait time.Duration
	// TTR is the length of the leases: 1 ms to 24 h. Default: each job's own.
	TTR time.Duration
}

// Reserve hands out due jobs under leases, waiting for the first one if there are none. An empty answer is no error. Calls
// for one job share round trips; see [Coalescing]. If ctx ends while a job is on its way, the job is given back without
// counting an attempt.
func (c *Client) Reserve(ctx context.Context, o ReserveOptions) ([]*Job, error) {
	if o.Max == 0 {
		o.Max = 1
	}
	switch {
	case len(o.Queues) == 0:
		return nil, invalidError("ReserveOptions.Queues is empty")
	case o.Max < 0 || o.Max > batchJobsMax:
		return nil, invalidError("ReserveOptions.Max is %d, must be 1 to %d", o.Max, batchJobsMax)
	case o.Wait < 0 || o.TTR < 0:
		return nil, invalidError("ReserveOptions.Wait and TTR must not be negative")
	case !utf8.ValidString(strings.Join(o.Queues, "")):
		return nil, invalidError("the names of queues must be valid UTF-8")
	}
	if o.Max == 1 && !c.limits.Off {
		job, err := c.reserveOne(ctx, o)
		if job == nil {
			return nil, err
		}
		return []*Job{job}, nil
	}
	if err := c.closed(); err != nil {
		return nil, err
	}
	jobs, err := c.reserveMany(ctx, o, nil)
	if err != nil {
		return nil, err
	}
	return jobs, nil
}

// reserveMany makes one Reserve call of its own. failed, if not nil, hears of each attempt that will be followed by another.
func (c *Client) reserveMany(ctx context.Context, o ReserveOptions, failed func(*Error)) ([]*Job, *Error) {
	req := &belfryv1.ReserveRequest{
		Queues: o.Queues, MaxJobs: uint32(o.Max), Wait: durationpb.New(o.Wait), RequestId: c.clock.newID(),
	}
	if o.TTR != 0 {
		req.Ttr = durationpb.New(o.TTR)
	}
	started := time.Now()
	res, failures, err := callCounted(ctx, c, callKind{id: &req.RequestId, wait: o.Wait, failed: failed},
		func(ctx context.Context, ep *endpoint) (*connect.Response[reserveAnswer], error) {
			return ep.reserve.CallUnary(ctx, connect.NewRequest(req))
		})
	if err != nil {
		err.RequestID = req.RequestId
		return nil, err
	}
	// The leases began when the server answered, which is just now; if it answered an attempt whose answer was lost, they
	// may have begun as early as the first attempt.
	received := time.Now()
	if failures > 0 {
		received = started
	}
	for _, job := range res.Msg.jobs {
		job.client, job.received = c, received
	}
	return res.Msg.jobs, nil
}
