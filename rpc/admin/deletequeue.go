package admin

import (
	"context"
	"errors"

	"github.com/belfrydb/belfry/access/tokens"
	"github.com/belfrydb/belfry/fsm"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/wire"
)

// DeleteQueue implements AdminService. It first removes and counts the jobs, without the catalog: a
// queue without a record has only jobs. The catalog then marks the record, removes the jobs that
// were put meanwhile, and deletes the record. The mark stops further puts, so the deletion
// terminates.
func (s *Service) DeleteQueue(ctx context.Context,
	req *belfryv1.DeleteQueueRequest) (*belfryv1.DeleteQueueResponse, error) {
	c := s.rules.Request(ctx, tokens.Admin)
	queue, requestID := c.Queue("queue", req.GetQueue()), c.RequestID(req.GetRequestId())
	if c.Err != nil {
		return nil, c.Err
	}
	if err := s.router.Refresh(ctx); err != nil { // the record, if there is one, decides what to delete
		return nil, err
	}
	config, recorded := s.router.Catalog.Queue(queue)
	done, err := s.router.InShards(ctx, s.router.Shards(queue), requestID, 1<<62, func(uint32) fsm.Command {
		return &fsm.DeleteQueue{Queue: queue}
	})
	var f *fault.Error
	if recorded && errors.As(err, &f) && f.Reason == belfryv1.Reason_REASON_QUEUE_NOT_FOUND {
		err = nil
	}
	if err != nil {
		return nil, err
	}
	newer := false
	if recorded && done.Replayed && !config.Deleting() {
		if newer, err = s.existsUnrecorded(ctx, queue); err != nil {
			return nil, err
		}
	}
	if recorded && !newer {
		if err := s.router.Catalog.DeleteQueue(ctx, queue); err != nil {
			return nil, fault.Of(err)
		}
	}
	return &belfryv1.DeleteQueueResponse{Purged: wire.Count(done.Count), Witnesses: done.Witnesses}, nil
}

// existsUnrecorded reports whether the home shard holds a queue. A repeated deletion whose answer
// came from memory must not delete such a queue: it was created after the first deletion, which
// empties the home shard before it removes the record.
func (s *Service) existsUnrecorded(ctx context.Context, queue string) (exists bool, err error) {
	home := s.router.Shard(queue, 0)
	r, _, err := s.router.Node.Query(ctx, home, &fsm.QueueQuery{Queue: queue})
	if err != nil {
		return false, fault.OfShard(home, err)
	}
	return len(r.Queues) > 0, nil
}
