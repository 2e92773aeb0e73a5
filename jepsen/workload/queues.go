package workload

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// partitions spreads queues over shards.
func partitions() Workload {
	queues := []string{"partitions/wide", "partitions/pair", "partitions/single"}
	return Workload{
		Name: "partitions", What: "queues of three, two and one partition, with and without ids; polls over all of them",
		Queues: queues,
		Prepare: func(ctx context.Context, c *Client) error {
			for i, queue := range queues[:2] {
				if err := c.ensureQueue(ctx, queue, uint32(3-i)); err != nil {
					return err
				}
			}
			return nil
		},
		Roles: []Role{
			{"producer", 2, func(ctx context.Context, c *Client) {
				r := c.newPut(queues[c.Rand.IntN(len(queues))])
				c.put(ctx, r)
				if r.GetId() != "" && c.oneIn(3) { // it meets itself, in whichever partition it is
					c.switchNode()
					c.put(ctx, r)
				}
			}},
			{"consumer", 3, func(ctx context.Context, c *Client) {
				first := c.Rand.IntN(len(queues))
				work(10, append(queues[first:len(queues):len(queues)], queues[:first]...)...)(ctx, c)
			}},
		},
	}
}

// ensureQueue makes a queue, through whatever happens meanwhile.
func (c *Client) ensureQueue(ctx context.Context, queue string, n uint32) error {
	r := &belfryv1.CreateQueueRequest{Queue: queue, Partitions: n, RequestId: c.requestID()}
	for range 20 {
		_, o := c.createQueue(ctx, r)
		if o.OK() || o.Reason == belfryv1.Reason_REASON_QUEUE_EXISTS {
			return nil
		}
		if !pause(ctx, 500*time.Millisecond) {
			return context.Cause(ctx)
		}
	}
	return fmt.Errorf("the queue %s cannot be made", queue)
}

// admin has operators at work while jobs come and go.
func admin() Workload {
	queues := []string{"admin/steady", "admin/doomed", "admin/limited"}
	return Workload{
		Name: "admin", What: "queues that are paused, configured, purged, deleted and made again under their producers " +
			"and consumers", Queues: queues,
		Prepare: func(ctx context.Context, c *Client) error {
			limits := &belfryv1.QueueSettings{MaxJobs: proto.Uint32(40), PutsPerSecond: proto.Uint32(20),
				MaxInFlight: proto.Uint32(5)}
			for range 20 {
				c.put(ctx, c.newPut(queues[2]))
				if _, o := c.updateQueue(ctx, &belfryv1.UpdateQueueRequest{Queue: queues[2], Settings: limits,
					RequestId: c.requestID()}); o.OK() {
					return nil
				}
				if !pause(ctx, 500*time.Millisecond) {
					return context.Cause(ctx)
				}
			}
			return errors.New("limits cannot be set")
		},
		Roles: []Role{
			{"producer", 2, func(ctx context.Context, c *Client) { c.put(ctx, c.newPut(queues[c.Rand.IntN(len(queues))])) }},
			{"consumer", 2, work(10, queues...)},
			{"operator", 1, func(ctx context.Context, c *Client) {
				c.operate(ctx, queues)
				pause(ctx, c.between(0, time.Second))
			}},
		},
	}
}

// operate does one thing that an operator does.
func (c *Client) operate(ctx context.Context, queues []string) {
	queue := queues[c.Rand.IntN(2)]
	switch c.Rand.IntN(8) {
	case 0:
		until := timestamppb.New(time.Now().Add(c.between(0, 2*time.Second)))
		c.updateQueue(ctx, &belfryv1.UpdateQueueRequest{Queue: queue, Settings: &belfryv1.QueueSettings{PausedUntil: until},
			RequestId: c.requestID()})
	case 1:
		settings := &belfryv1.QueueSettings{Paused: proto.Bool(true)}
		c.updateQueue(ctx, &belfryv1.UpdateQueueRequest{Queue: queue, Settings: settings, RequestId: c.requestID()})
		pause(ctx, c.between(0, time.Second))
		settings = &belfryv1.QueueSettings{Paused: proto.Bool(false)}
		c.updateQueue(ctx, &belfryv1.UpdateQueueRequest{Queue: queue, Settings: settings, RequestId: c.requestID()})
	case 2:
		settings := &belfryv1.QueueSettings{Ttr: durationpb.New(c.between(time.Second, 5*time.Second)),
			MaxAttempts: proto.Uint32(uint32(c.Rand.IntN(5)))}
		c.updateQueue(ctx, &belfryv1.UpdateQueueRequest{Queue: queue, Settings: settings, RequestId: c.requestID()})
	case 3:
		r := &belfryv1.PurgeQueueRequest{Queue: queues[1], Max: c.Rand.Uint32N(20), RequestId: c.requestID()}
		if c.oneIn(2) {
			r.States = []belfryv1.JobState{belfryv1.JobState_JOB_STATE_DELAYED, belfryv1.JobState_JOB_STATE_RESERVED}
		}
		c.purgeQueue(ctx, r)
	case 4:
		if c.oneIn(4) {
			c.deleteQueue(ctx, &belfryv1.DeleteQueueRequest{Queue: queues[1], RequestId: c.requestID()})
		}
	case 5:
		c.createQueue(ctx, &belfryv1.CreateQueueRequest{Queue: queues[1], Partitions: 1 + c.Rand.Uint32N(2),
			RequestId: c.requestID()})
	default:
		c.getQueue(ctx, queues[c.Rand.IntN(len(queues))])
	}
}

// reads looks while others change what it looks at.
func reads() Workload {
	const queue = "reads"
	return Workload{
		Name: "reads", What: "Get, List and GetQueue of jobs that others move", Queues: []string{queue},
		Roles: []Role{
			{"producer", 1, func(ctx context.Context, c *Client) { c.put(ctx, c.newPut(queue)) }},
			{"consumer", 1, work(4, queue)},
			{"reader", 2, func(ctx context.Context, c *Client) {
				switch c.Rand.IntN(4) {
				case 0:
					c.getQueue(ctx, queue)
				case 1:
					states := []belfryv1.JobState{belfryv1.JobState_JOB_STATE_DELAYED, belfryv1.JobState_JOB_STATE_READY,
						belfryv1.JobState_JOB_STATE_RESERVED}
					c.list(ctx, &belfryv1.ListRequest{Queue: queue, State: states[c.Rand.IntN(len(states))],
						PageSize: int32(1 + c.Rand.IntN(20)), Stale: c.oneIn(4)})
				default:
					found, _ := c.list(ctx, &belfryv1.ListRequest{Queue: queue, State: belfryv1.JobState_JOB_STATE_DELAYED,
						PageSize: 3})
					for _, j := range found.GetJobs() {
						c.get(ctx, &belfryv1.GetRequest{Queue: queue, Id: j.GetId(), Stale: c.oneIn(4)})
					}
				}
			}},
		},
	}
}
