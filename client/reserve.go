package client

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/belfrydb/belfry/client/internal/calls"
	"github.com/belfrydb/belfry/client/internal/coalesce"
	"github.com/belfrydb/belfry/client/internal/failure"
	"github.com/belfrydb/belfry/client/internal/lease"
	"github.com/belfrydb/belfry/client/internal/placement"
	"github.com/belfrydb/belfry/client/internal/session"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/utf8field"
	"github.com/belfrydb/belfry/stream"
)

// ReserveOptions are the parameters of [Client.Reserve].
type ReserveOptions struct {
	// Queues are 1 to 64 queues, tried in this order.
	Queues []string
	// Max is how many jobs to reserve at most: 1 to 1,000, default 1.
	Max int
	// Wait is how long to wait for a first job: 0 to 60 s, default 0.
	Wait time.Duration
	// TTR is the length of the leases: 1 ms to 24 h. Default: each job's own.
	TTR time.Duration
}

// Reserve takes due jobs under leases. If there are none, it waits for the first one, up to o.Wait.
// An empty result is no error. Calls for one job share round trips; see [Coalescing]. If ctx ends
// while a job is on its way, the client releases the job, and the attempt does not count.
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
	case slices.ContainsFunc(o.Queues, func(queue string) bool { return !utf8.ValidString(queue) }):
		return nil, invalidError("%s: not valid UTF-8", utf8field.Find(&belfryv1.ReserveRequest{Queues: o.Queues}))
	}
	if o.Max == 1 && !c.limits.Off {
		job, err := c.polls.Reserve(ctx, coalesce.Poll(o))
		switch {
		case err != nil:
			return nil, public(err)
		case job == nil:
			return nil, nil
		}
		return []*Job{job}, nil
	}
	if err := c.closed(); err != nil {
		return nil, err
	}
	jobs, err := c.reserveMany(ctx, o, nil)
	if err != nil {
		c.collectLater(o, err) //nolint:contextcheck // the call's context has ended, and what was granted must go back
		return nil, public(err)
	}
	return jobs, nil
}

// place returns the place that a Reserve concerns. A Reserve on several queues goes to any server.
func (o ReserveOptions) place() placement.Place {
	if len(o.Queues) != 1 {
		return placement.Place{}
	}
	return placement.Place{Queue: o.Queues[0]}
}

// request makes the message of a Reserve.
func (o ReserveOptions) request(id string) *belfryv1.ReserveRequest {
	req := &belfryv1.ReserveRequest{
		Queues: o.Queues, MaxJobs: uint32(o.Max), Wait: durationpb.New(o.Wait), RequestId: id,
	}
	if o.TTR != 0 {
		req.Ttr = durationpb.New(o.TTR)
	}
	return req
}

// releaseTimeout bounds the attempts to release a job that has no caller left.
const releaseTimeout = 10 * time.Second

// poll reserves jobs for the callers that share a poll.
func (c *Client) poll(ctx context.Context, o coalesce.Poll, failed func(*failure.Error)) ([]*Job, *failure.Error) {
	jobs, err := c.reserveMany(ctx, ReserveOptions(o), failed)
	if err != nil {
		c.collectLater(ReserveOptions(o), err) //nolint:contextcheck // it goes on after the poll
	}
	return jobs, err
}

// giveBack releases a job that has no caller left. If that fails, its lease expires.
func (c *Client) giveBack(job *Job) {
	ctx, cancel := context.WithTimeout(c.lifetime(), releaseTimeout)
	defer cancel()
	_, _, _ = c.release(ctx, job.Lease, 0)
}

// collectLater runs collect in the background, unless the client is closed.
func (c *Client) collectLater(o ReserveOptions, err *failure.Error) {
	if err.Outcome == failure.Unknown {
		c.start(func() {
			ctx, cancel := context.WithTimeout(c.lifetime(), releaseTimeout)
			defer cancel()
			c.collect(ctx, o, err)
		})
	}
}

// collect releases the jobs that a Reserve which ended with err may have got all the same; no
// caller waits for them any more. A repeat under its request id returns the grants that are live.
// If there are none, it may return other jobs, and collect releases those too. Where that fails,
// the leases expire in the end.
func (c *Client) collect(ctx context.Context, o ReserveOptions, err *failure.Error) {
	if err.Outcome != failure.Unknown {
		return
	}
	o.Wait = 0
	req := o.request(err.RequestID)
	res, _, failure := callCounted(ctx, c, calls.Kind{Place: o.place()},
		func(ctx context.Context, ep *endpoint) (*reserveAnswer, error) {
			return sendReserve(ctx, ep, req)
		})
	if failure != nil {
		return
	}
	for some := range slices.Chunk(res.jobs, lease.ExtendsMax) {
		var all sync.WaitGroup
		for _, job := range some {
			all.Go(func() { _, _, _ = c.release(ctx, job.Lease, 0) })
		}
		all.Wait()
	}
}

// sendReserve sends a Reserve once.
func sendReserve(ctx context.Context, ep *endpoint, req *belfryv1.ReserveRequest) (*reserveAnswer, error) {
	request := ep.sessions.Request(0)
	var err error
	if *request, err = (proto.MarshalOptions{}).MarshalAppend(*request, req); err != nil {
		return nil, fmt.Errorf("encoding a reserve: %w", err)
	}
	return session.Do(ctx, ep.sessions, stream.Reserve, ep.reserve, request)
}

// reserveMany makes one Reserve call of its own. If failed is not nil, it is called after each
// attempt that another one will follow.
func (c *Client) reserveMany(ctx context.Context, o ReserveOptions,
	failed func(*failure.Error)) ([]*Job, *failure.Error) {
	req := o.request(c.clock.NewID())
	started := time.Now()
	kind := calls.Kind{ID: &req.RequestId, Wait: o.Wait, Failed: failed, Place: o.place()}
	res, failures, err := callCounted(ctx, c, kind,
		func(ctx context.Context, ep *endpoint) (*reserveAnswer, error) { return sendReserve(ctx, ep, req) })
	if err != nil {
		err.RequestID = req.RequestId
		return nil, err
	}
	// The leases began when the server answered. If it did not wait, or if it repeats the answer of
	// an earlier attempt, that may be as early as the start of the call. Otherwise it is just now,
	// unless the answer was held up or this process was suspended. The wall clocks reveal that.
	received, least := time.Now(), time.Duration(0)
	if failures > 0 || o.Wait == 0 {
		least = received.Sub(started)
	}
	ahead := c.clock.Ahead()
	for _, job := range res.jobs {
		job.client, job.received, job.age = c, received, max(least, job.ageBy(received, ahead))
	}
	return res.jobs, nil
}
