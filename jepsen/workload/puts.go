package workload

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

const (
	// bodyMost is the length of the random part of a body.
	bodyMost = 200
	// waitMost is how long a client waits for a job at most: short beside the faults, so that polls
	// end, move and begin during them.
	waitMost = 4 * time.Second
)

// newPut returns a put with a random delay, and often with an id, a priority, headers and options.
func (c *Client) newPut(queue string) *belfryv1.PutRequest {
	r := &belfryv1.PutRequest{Queue: queue, Body: &belfryv1.PutRequest_Data{Data: c.body(bodyMost)},
		Ttr: durationpb.New(c.between(2*time.Second, 8*time.Second))}
	switch c.Rand.IntN(5) {
	case 0: // neither: such a put cannot be repeated
	case 1, 2:
		r.RequestId = c.requestID()
	default:
		r.Id = c.Name + "-" + c.random()
	}
	switch c.Rand.IntN(10) {
	case 0: // due at once
	case 1:
		r.When = &belfryv1.PutRequest_DueAt{DueAt: timestamppb.New(time.Now().Add(c.between(-time.Second, 4*time.Second)))}
	case 2:
		r.When = &belfryv1.PutRequest_Delay{Delay: durationpb.New(c.between(5*time.Second, 15*time.Second))}
	default:
		r.When = &belfryv1.PutRequest_Delay{Delay: durationpb.New(c.between(0, 3*time.Second))}
	}
	if c.oneIn(4) {
		r.Priority = proto.Int64(int64(c.Rand.IntN(5) - 2))
	}
	if c.oneIn(8) {
		r.Headers = map[string]string{"trace": c.random(), "kind": "test"}
	}
	return r
}

// take reserves jobs of queues, most often waiting for a while.
func (c *Client) take(ctx context.Context, most uint32, queues ...string) []*belfryv1.Job {
	r := &belfryv1.ReserveRequest{Queues: queues, MaxJobs: 1 + c.Rand.Uint32N(most), RequestId: c.maybeRequestID()}
	if !c.oneIn(4) {
		r.Wait = durationpb.New(c.between(0, waitMost))
	}
	answer, _ := c.reserve(ctx, r)
	return answer.GetJobs()
}

// work takes jobs, and acks each after a moment, a few one by one or all at once.
func work(most uint32, queues ...string) func(context.Context, *Client) {
	return func(ctx context.Context, c *Client) {
		jobs := c.take(ctx, most, queues...)
		if len(jobs) == 0 || !pause(ctx, c.between(0, 20*time.Millisecond)) {
			return
		}
		if len(jobs) > 4 || len(jobs) > 1 && c.oneIn(2) {
			var leases []string
			for _, j := range jobs {
				leases = append(leases, j.GetLease())
			}
			c.ackBatch(ctx, &belfryv1.AckBatchRequest{Leases: leases, RequestId: c.maybeRequestID()})
			return
		}
		for _, j := range jobs {
			c.ack(ctx, j.GetLease())
		}
	}
}

// puts is the life that most jobs have.
func puts() Workload {
	queues := []string{"puts/a", "puts/b"}
	return Workload{
		Name: "puts", What: "jobs with random delays, ids and options; taken and acked", Queues: queues,
		Roles: []Role{
			{"producer", 4, func(ctx context.Context, c *Client) { c.put(ctx, c.newPut(queues[c.Rand.IntN(2)])) }},
			{"consumer", 3, work(8, queues...)},
		},
	}
}

// herd has hundreds of jobs fall due in the same instant.
func herd() Workload {
	const queue = "herd"
	return Workload{
		Name: "herd", What: "hundreds of jobs due in the same millisecond, and consumers who all wait for it",
		Queues: []string{queue},
		Roles: []Role{
			{"producer", 1, func(ctx context.Context, c *Client) {
				due := timestamppb.New(time.Now().Add(3 * time.Second).Truncate(time.Second))
				for range 3 {
					batch := &belfryv1.PutBatchRequest{RequestId: c.requestID()}
					for range 50 {
						batch.Jobs = append(batch.Jobs, &belfryv1.PutRequest{
							Queue: queue, When: &belfryv1.PutRequest_DueAt{DueAt: due}, Body: &belfryv1.PutRequest_Data{Data: c.body(40)},
							Ttr:      durationpb.New(5 * time.Second),
							Priority: proto.Int64(int64(c.Rand.IntN(3) - 1)),
						})
					}
					c.putBatch(ctx, batch)
				}
				pause(ctx, time.Second)
			}},
			{"consumer", 3, work(50, queue)},
		},
	}
}

// batches puts many jobs at once, some of them twice and some in conflict.
func batches() Workload {
	const queue = "batches"
	return Workload{
		Name: "batches", What: "batches with repeats and conflicts inside; batches of acks with stale leases among them",
		Queues: []string{queue},
		Roles: []Role{
			{"producer", 2, func(ctx context.Context, c *Client) {
				batch := &belfryv1.PutBatchRequest{RequestId: c.requestID()}
				for range 1 + c.Rand.IntN(30) {
					batch.Jobs = append(batch.Jobs, c.newBatched(queue, batch.GetJobs()))
				}
				c.putBatch(ctx, batch)
				pause(ctx, c.between(0, 300*time.Millisecond))
			}},
			{"consumer", 3, func(ctx context.Context, c *Client) { c.ackMixed(ctx, queue) }},
		},
	}
}

// keptMost is how many leases of earlier rounds a consumer of batches keeps.
const keptMost = 8

// ackMixed takes jobs and acks them in one batch, with leases of earlier rounds among them: some
// were acked already, some are late, and may have lapsed.
func (c *Client) ackMixed(ctx context.Context, queue string) {
	jobs := c.take(ctx, 40, queue)
	if len(jobs) == 0 || !pause(ctx, c.between(0, 20*time.Millisecond)) {
		return
	}
	late := max(len(c.kept)-keptMost, 0)
	leases := slices.Clone(c.kept[:late])
	c.kept = slices.Clone(c.kept[late:])
	for _, j := range jobs {
		keep := c.oneIn(4)
		if keep {
			c.kept = append(c.kept, j.GetLease())
		}
		if !keep || c.oneIn(2) {
			leases = append(leases, j.GetLease())
		}
	}
	if len(leases) > 0 {
		c.ackBatch(ctx, &belfryv1.AckBatchRequest{Leases: leases, RequestId: c.maybeRequestID()})
	}
}

// newBatched returns the next put of a batch.
func (c *Client) newBatched(queue string, before []*belfryv1.PutRequest) *belfryv1.PutRequest {
	r := c.newPut(queue)
	r.RequestId = ""
	if r.Id == "" && c.oneIn(2) {
		r.Id = fmt.Sprintf("%s-%s", c.Name, c.random())
	}
	if len(before) == 0 {
		return r
	}
	earlier := before[c.Rand.IntN(len(before))]
	switch {
	case earlier.GetId() == "":
	case c.oneIn(12): // the same job again
		return proto.CloneOf(earlier)
	case c.oneIn(12): // another job under its id
		r.Id = earlier.GetId()
	}
	return r
}
