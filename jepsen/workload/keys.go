package workload

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/belfrydb/belfry/jepsen/history"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
)

// The queues of the workload keys, by what their settings have.
const (
	keysLimit   = "keys/limit"
	keysOrdered = "keys/ordered"
	keysRate    = "keys/rate"
	keysFair    = "keys/fair"
	keysBounce  = "keys/bounce"
)

// keySettings are the settings of the queues of the workload keys.
func keySettings() map[string]*belfryv1.QueueSettings {
	return map[string]*belfryv1.QueueSettings{
		keysLimit:   {KeyConcurrency: proto.Uint32(2)},
		keysOrdered: {KeyOrdered: proto.Bool(true), MaxAttempts: proto.Uint32(0)},
		keysRate:    {KeyRate: &belfryv1.KeyRate{Count: 4, Per: durationpb.New(time.Second), Burst: 2}},
		keysFair:    {KeyFair: proto.Bool(true), KeyConcurrency: proto.Uint32(1)},
		keysBounce:  {KeyConcurrency: proto.Uint32(1)},
	}
}

// keys has producers and consumers of a few keys, whose limits, order and rates they press against, and
// puts that replace each other.
func keys() Workload {
	queues := []string{keysLimit, keysOrdered, keysRate, keysFair, keysBounce}
	busy := queues[:4]
	return Workload{
		Name: "keys", What: "jobs of a few keys with limits, order, rates and turns; puts that replace a job or follow it",
		Queues: queues,
		Prepare: func(ctx context.Context, c *Client) error {
			if err := c.ensureQueue(ctx, keysOrdered, 3); err != nil {
				return err
			}
			for _, queue := range queues {
				if err := c.ensureSettings(ctx, queue, keySettings()[queue]); err != nil {
					return err
				}
			}
			return nil
		},
		Roles: []Role{
			{"producer", 3, func(ctx context.Context, c *Client) {
				r := c.newKeyed(busy[c.Rand.IntN(len(busy))])
				c.put(ctx, r)
			}},
			{"consumer", 4, func(ctx context.Context, c *Client) {
				first := c.Rand.IntN(len(queues))
				for _, j := range c.take(ctx, 4, append(queues[first:len(queues):len(queues)], queues[:first]...)...) {
					c.finishKeyed(ctx, j)
				}
			}},
			{"bouncer", 2, func(ctx context.Context, c *Client) { c.bounce(ctx) }},
			{"operator", 1, func(ctx context.Context, c *Client) {
				c.operateKeys(ctx, busy[c.Rand.IntN(len(busy))])
				pause(ctx, c.between(0, 500*time.Millisecond))
			}},
		},
	}
}

// ensureSettings gives a queue settings, through whatever happens meanwhile. A new cluster may speak a
// format for a moment that has no keys.
func (c *Client) ensureSettings(ctx context.Context, queue string, s *belfryv1.QueueSettings) error {
	r := &belfryv1.UpdateQueueRequest{Queue: queue, Settings: s, RequestId: c.requestID()}
	var last *history.Op
	for range 40 {
		c.createQueue(ctx, &belfryv1.CreateQueueRequest{Queue: queue, Partitions: 1, RequestId: c.requestID()})
		if _, last = c.updateQueue(ctx, r); last.OK() {
			return nil
		}
		if !pause(ctx, 500*time.Millisecond) {
			return context.Cause(ctx)
		}
	}
	return fmt.Errorf("the queue %s does not take its settings: %s", queue, last.Message)
}

// keyName returns one of a few keys.
func (c *Client) keyName() string { return fmt.Sprintf("k%d", c.Rand.IntN(6)) }

// newKeyed returns a put of a job, most often with a key.
func (c *Client) newKeyed(queue string) *belfryv1.PutRequest {
	r := c.newPut(queue)
	r.Ttr = durationpb.New(c.between(time.Second, 4*time.Second))
	r.RetryDelays = []*durationpb.Duration{durationpb.New(c.between(0, 600*time.Millisecond))}
	if !c.oneIn(8) {
		r.Key = c.keyName()
	}
	if queue == keysOrdered || c.oneIn(2) { // a job that waits for long holds its key up
		r.When = &belfryv1.PutRequest_Delay{Delay: durationpb.New(c.between(0, 400*time.Millisecond))}
	}
	return r
}

// finishKeyed works on a job of a key for a moment, and then most often acks it.
func (c *Client) finishKeyed(ctx context.Context, j *belfryv1.Job) {
	if !pause(ctx, c.between(0, 60*time.Millisecond)) {
		return
	}
	switch c.Rand.IntN(12) {
	case 0:
		c.nack(ctx, &belfryv1.NackRequest{Lease: j.GetLease(), Error: "soon",
			Delay: durationpb.New(c.between(0, 500*time.Millisecond)), RequestId: c.requestID()})
	case 1:
		c.release(ctx, j.GetLease(), c.between(0, 300*time.Millisecond))
	case 2:
		c.extend(ctx, j.GetLease(), c.between(500*time.Millisecond, 2*time.Second))
		c.ack(ctx, j.GetLease())
	case 3: // the lease lapses
	default:
		c.ack(ctx, j.GetLease())
	}
}

// bounce puts a job in the place of another with its id, or cancels it, or looks at it. The ids change
// every few seconds.
func (c *Client) bounce(ctx context.Context) {
	id := fmt.Sprintf("b%d-%d", time.Now().Unix()/8, c.Rand.IntN(4))
	switch c.Rand.IntN(12) {
	case 0:
		c.cancel(ctx, &belfryv1.CancelRequest{Queue: keysBounce, Id: id, Force: c.oneIn(2), RequestId: c.requestID()})
		return
	case 1:
		c.get(ctx, &belfryv1.GetRequest{Queue: keysBounce, Id: id})
		return
	case 2:
		c.reschedule(ctx, &belfryv1.RescheduleRequest{Queue: keysBounce, Id: id, RequestId: c.requestID(),
			When: &belfryv1.RescheduleRequest_Delay{Delay: durationpb.New(c.between(0, time.Second))}})
		return
	}
	r := &belfryv1.PutRequest{
		Queue: keysBounce, Id: id, Key: "bounce", Body: &belfryv1.PutRequest_Data{Data: c.body(60)},
		When:       &belfryv1.PutRequest_Delay{Delay: durationpb.New(c.between(0, 800*time.Millisecond))},
		Ttr:        durationpb.New(c.between(time.Second, 3*time.Second)),
		OnExisting: belfryv1.OnExisting(1 + c.Rand.IntN(4)), MaxAttempts: proto.Uint32(uint32(1 + c.Rand.IntN(3))),
		RequestId: c.maybeRequestID(),
	}
	if r.GetOnExisting() >= belfryv1.OnExisting_ON_EXISTING_REPLACE && c.oneIn(2) {
		r.MaxWait = durationpb.New(c.between(200*time.Millisecond, 1500*time.Millisecond))
	}
	if c.oneIn(6) {
		r.IfVersion = 1 + c.Rand.Uint64N(4)
	}
	c.put(ctx, r)
}

// operateKeys does one thing that an operator does to a key.
func (c *Client) operateKeys(ctx context.Context, queue string) {
	switch key := c.keyName(); c.Rand.IntN(8) {
	case 0:
		c.pauseKey(ctx, queue, key)
		pause(ctx, c.between(0, time.Second))
		c.resumeKey(ctx, queue, key)
	case 1:
		c.purgeKey(ctx, &belfryv1.PurgeKeyRequest{Queue: queue, Key: key, Max: c.Rand.Uint32N(10), RequestId: c.requestID()})
	case 2:
		if queue == keysLimit {
			s := &belfryv1.QueueSettings{KeyConcurrency: proto.Uint32(1 + c.Rand.Uint32N(3))}
			c.updateQueue(ctx, &belfryv1.UpdateQueueRequest{Queue: queue, Settings: s, RequestId: c.requestID()})
		}
	default:
		c.listKeys(ctx, &belfryv1.ListKeysRequest{Queue: queue, PageSize: int32(1 + c.Rand.IntN(10))})
	}
}

// resumeKeys ends the pauses of the keys of a queue.
func (c *Client) resumeKeys(ctx context.Context, queue string) {
	if _, ok := keySettings()[queue]; !ok {
		return
	}
	for i := range 6 {
		key := fmt.Sprintf("k%d", i)
		for range 10 {
			if c.resumeKey(ctx, queue, key).OK() || !pause(ctx, 200*time.Millisecond) {
				break
			}
		}
	}
}

func (c *Client) pauseKey(ctx context.Context, queue, key string) {
	call(ctx, c, c.admin(), belfryv1connect.AdminServiceClient.PauseKey, &belfryv1.PauseKeyRequest{Queue: queue, Key: key,
		RequestId: c.requestID()})
}

func (c *Client) resumeKey(ctx context.Context, queue, key string) *history.Op {
	_, o := call(ctx, c, c.admin(), belfryv1connect.AdminServiceClient.ResumeKey, &belfryv1.ResumeKeyRequest{Queue: queue,
		Key: key, RequestId: c.requestID()})
	return o
}

func (c *Client) purgeKey(ctx context.Context, r *belfryv1.PurgeKeyRequest) {
	call(ctx, c, c.admin(), belfryv1connect.AdminServiceClient.PurgeKey, r)
}

func (c *Client) listKeys(ctx context.Context, r *belfryv1.ListKeysRequest) {
	call(ctx, c, c.admin(), belfryv1connect.AdminServiceClient.ListKeys, r)
}
