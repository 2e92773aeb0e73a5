package workload

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/belfrydb/belfry/jepsen/history"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// races has many clients want different things of a few jobs.
func races() Workload {
	const queue = "races"
	// id is one of a few that are fought over; they change every few seconds, or the dedup window
	// would end the fight.
	id := func(c *Client) string { return fmt.Sprintf("r%d-%d", time.Now().Unix()/4, c.Rand.IntN(12)) }
	return Workload{
		Name: "races", What: "put, put again, cancel, reschedule, reserve and ack of the same few ids at once",
		Queues: []string{queue},
		Roles: []Role{
			{"fighter", 5, func(ctx context.Context, c *Client) {
				switch c.Rand.IntN(7) {
				case 0, 1, 2:
					// One of three contents, so that a put may repeat an earlier one or contradict it.
					variant := c.Rand.IntN(3)
					c.put(ctx, &belfryv1.PutRequest{
						Queue: queue, Id: id(c), Again: c.oneIn(4),
						Body: &belfryv1.PutRequest_Text{Text: fmt.Sprint("variant ", variant)},
						When: &belfryv1.PutRequest_Delay{Delay: durationpb.New(time.Duration(variant) * 400 * time.Millisecond)},
						Ttr:  durationpb.New(time.Second), MaxAttempts: proto.Uint32(0),
					})
				case 3:
					c.cancel(ctx, &belfryv1.CancelRequest{Queue: queue, Id: id(c), Force: c.oneIn(3), RequestId: c.requestID()})
				case 4:
					c.reschedule(ctx, &belfryv1.RescheduleRequest{
						Queue: queue, Id: id(c), When: &belfryv1.RescheduleRequest_Delay{
							Delay: durationpb.New(c.between(0, time.Second))}, RequestId: c.requestID(),
					})
				case 5:
					c.get(ctx, &belfryv1.GetRequest{Queue: queue, Id: id(c)})
				case 6:
					for _, j := range c.take(ctx, 4, queue) {
						if c.oneIn(4) { // leases are so short that cancels by others seldom meet one
							c.cancel(ctx, &belfryv1.CancelRequest{
								Queue: queue, Id: j.GetId(), Force: c.oneIn(3), RequestId: c.requestID()})
						}
						c.ack(ctx, j.GetLease())
					}
				}
			}},
		},
	}
}

// repeats makes each call until its outcome is known, and then once more.
func repeats() Workload {
	const queue = "repeats"
	return Workload{
		Name: "repeats", What: "every call repeated with its request id or its job's id, at other nodes, also when it was " +
			"answered", Queues: []string{queue},
		Roles: []Role{
			{"producer", 1, func(ctx context.Context, c *Client) { // a job takes consumers six calls
				r := c.newPut(queue)
				r.When = &belfryv1.PutRequest_Delay{Delay: durationpb.New(c.between(0, time.Second))}
				if r.Id == "" && r.RequestId == "" {
					r.RequestId = c.requestID() // or each repeat would be another job
				}
				c.insist(ctx, func() *history.Op {
					_, o := c.put(ctx, r)
					return o
				})
			}},
			{"consumer", 4, func(ctx context.Context, c *Client) {
				r := &belfryv1.ReserveRequest{Queues: []string{queue}, MaxJobs: 1 + c.Rand.Uint32N(4),
					Wait: durationpb.New(c.between(0, time.Second)), RequestId: c.requestID()}
				var jobs []*belfryv1.Job
				c.insist(ctx, func() *history.Op {
					answer, o := c.reserve(ctx, r)
					jobs = append(jobs, answer.GetJobs()...)
					return o
				})
				for _, j := range jobs {
					n := &belfryv1.NackRequest{Lease: j.GetLease(), Error: "again", RequestId: c.requestID()}
					a := &belfryv1.AckRequest{Lease: j.GetLease(), RequestId: c.requestID()}
					c.insist(ctx, func() *history.Op {
						if j.GetAttempt() < 2 {
							_, o := c.nack(ctx, n)
							return o
						}
						return c.ackAs(ctx, a)
					})
				}
			}},
		},
	}
}

// insist repeats a call until its outcome is known, and then, one time in two, once more at another
// node.
func (c *Client) insist(ctx context.Context, call func() *history.Op) {
	for tries := 0; tries < 8; tries++ {
		o := call()
		known := o.Outcome == belfryv1.Outcome_OUTCOME_APPLIED || o.Outcome == belfryv1.Outcome_OUTCOME_NOT_APPLIED &&
			!transient(o.Reason) && o.Reason != 0
		if known {
			break
		}
		if !pause(ctx, c.between(0, 500*time.Millisecond)) {
			return
		}
	}
	if c.oneIn(2) {
		c.switchNode()
		call()
	}
}
