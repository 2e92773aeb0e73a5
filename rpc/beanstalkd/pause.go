package beanstalkd

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/rpc/beanstalkd/protocol"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
)

// pause keeps the jobs of a tube from being reserved for a while; 0 ends that. A tube without a job that
// a connection refers to gets its queue.
func (c *conn) pause(ctx context.Context, tube string, wait time.Duration) *fault.Error {
	queue := protocol.QueueOf(tube)
	_, referredTo := c.door.tubes.of(tube)
	if !referredTo {
		sum, f := c.figuresOf(ctx, queue)
		if f != nil {
			return f
		}
		if sum.jobs == 0 {
			c.answer(protocol.NotFound)
			return nil
		}
	}
	settings := &belfryv1.QueueSettings{Paused: proto.Bool(wait > 0)}
	if wait > 0 {
		settings.PausedUntil = timestamppb.New(time.Now().Add(min(wait, c.door.cfg.DelayMax)))
	}
	f := faultOf(c.door.cfg.UpdateQueue(ctx, &belfryv1.UpdateQueueRequest{Queue: queue, Settings: settings}))
	if f != nil && f.Reason == belfryv1.Reason_REASON_QUEUE_NOT_FOUND {
		f = faultOf(c.door.cfg.CreateQueue(ctx, &belfryv1.CreateQueueRequest{Queue: queue, Settings: settings}))
	}
	if f != nil {
		return f
	}
	if c.answer(protocol.Paused); referredTo {
		c.door.tubes.paused(tube)
	}
	return nil
}
