package workload

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// stall has holders that use their leases too late.
func stall() Workload {
	const queue = "stall"
	return Workload{
		Name: "stall", What: "holders who stall beyond their TTR and then ack, nack, release or extend with a stale fence",
		Queues: []string{queue},
		Roles: []Role{
			{"producer", 1, func(ctx context.Context, c *Client) {
				r := c.newPut(queue)
				r.Ttr = durationpb.New(c.between(200*time.Millisecond, 800*time.Millisecond))
				r.When = &belfryv1.PutRequest_Delay{Delay: durationpb.New(c.between(0, time.Second))}
				// Leases that lapse count attempts: a nack would have the job wait for an hour.
				r.MaxAttempts, r.RetryDelays = proto.Uint32(0), []*durationpb.Duration{{}}
				c.put(ctx, r)
				pause(ctx, c.between(0, 2*time.Second)) // holders take their time
			}},
			{"holder", 7, func(ctx context.Context, c *Client) {
				for _, j := range c.take(ctx, 2, queue) {
					c.hold(ctx, j)
				}
			}},
		},
	}
}

// hold keeps a job for up to twice its lease, and then says what became of it, sometimes twice; one
// in six it gives back at once.
func (c *Client) hold(ctx context.Context, j *belfryv1.Job) {
	if c.oneIn(6) {
		c.release(ctx, j.GetLease(), c.between(0, 200*time.Millisecond))
		return
	}
	ttr := j.GetTtr().AsDuration()
	if c.oneIn(2) { // by less than what is left, more often than not: that must not shorten the lease
		pause(ctx, c.between(0, ttr/2))
		c.extend(ctx, j.GetLease(), c.between(20*time.Millisecond, ttr))
	}
	pause(ctx, c.between(ttr/2, 2*ttr))
	for range 1 + c.Rand.IntN(2) {
		switch c.Rand.IntN(6) {
		case 0:
			c.nack(ctx, &belfryv1.NackRequest{Lease: j.GetLease(), Error: "late", RequestId: c.requestID()})
		case 1:
			c.release(ctx, j.GetLease(), c.between(0, 500*time.Millisecond))
		default:
			c.ack(ctx, j.GetLease())
		}
	}
}

// retries has jobs fail, die and rise again.
func retries() Workload {
	const queue = "retries"
	return Workload{
		Name: "retries", What: "nacks with and without a delay, schedules of retries, dead letters and back",
		Queues: []string{queue},
		Roles: []Role{
			{"producer", 1, func(ctx context.Context, c *Client) {
				r := c.newPut(queue)
				r.MaxAttempts = proto.Uint32(uint32(1 + c.Rand.IntN(4)))
				for range c.Rand.IntN(4) {
					r.RetryDelays = append(r.RetryDelays, durationpb.New(c.between(0, 600*time.Millisecond)))
				}
				c.put(ctx, r)
			}},
			{"consumer", 3, func(ctx context.Context, c *Client) {
				for _, j := range c.take(ctx, 6, queue) {
					c.fail(ctx, j)
				}
			}},
			{"undertaker", 1, func(ctx context.Context, c *Client) {
				r := &belfryv1.RedriveRequest{Queue: queue, Max: 1 + c.Rand.Uint32N(10), RequestId: c.requestID()}
				if c.oneIn(2) {
					state := belfryv1.JobState_JOB_STATE_DEAD
					if c.oneIn(3) { // which must change nothing
						state = belfryv1.JobState_JOB_STATE_DELAYED
					}
					found, _ := c.list(ctx, &belfryv1.ListRequest{Queue: queue, State: state, PageSize: 5})
					for _, j := range found.GetJobs() {
						r.Ids = append(r.Ids, j.GetId())
					}
					if r.Max = 0; len(r.GetIds()) == 0 {
						return
					}
				}
				c.redrive(ctx, r)
				pause(ctx, c.between(0, time.Second))
			}},
		},
	}
}

// fail nacks most jobs.
func (c *Client) fail(ctx context.Context, j *belfryv1.Job) {
	switch c.Rand.IntN(5) {
	case 0:
		c.ack(ctx, j.GetLease())
	case 1:
		c.nack(ctx, &belfryv1.NackRequest{Lease: j.GetLease(), Error: "for good", Dead: true, RequestId: c.requestID()})
	case 2:
		c.nack(ctx, &belfryv1.NackRequest{Lease: j.GetLease(), Error: "soon",
			Delay: durationpb.New(c.between(0, time.Second)), RequestId: c.requestID()})
	default:
		c.nack(ctx, &belfryv1.NackRequest{Lease: j.GetLease(), Error: "by schedule", RequestId: c.maybeRequestID()})
	}
}

// deaths has workers that stop without a word.
func deaths() Workload {
	const queue = "deaths"
	return Workload{
		Name: "deaths", What: "workers who die with their jobs, and polls that are cut off", Queues: []string{queue},
		Roles: []Role{
			{"producer", 1, func(ctx context.Context, c *Client) {
				r := c.newPut(queue)
				r.Ttr, r.MaxAttempts = durationpb.New(c.between(300*time.Millisecond, 2*time.Second)), proto.Uint32(0)
				c.put(ctx, r)
			}},
			{"mortal", 2, func(ctx context.Context, c *Client) {
				life, end := context.WithTimeout(ctx, c.between(50*time.Millisecond, 2*time.Second))
				defer end()
				for _, j := range c.take(life, 3, queue) {
					if c.oneIn(2) {
						c.ack(life, j.GetLease())
					}
				}
			}},
			{"consumer", 2, work(10, queue)},
		},
	}
}
