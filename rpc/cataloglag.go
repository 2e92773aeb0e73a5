package rpc

import (
	"context"

	"github.com/belfrydb/belfry/fsm"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/check"
	"github.com/belfrydb/belfry/rpc/fault"
)

// refresh waits until the catalog has caught up.
func (r router) refresh(ctx context.Context) error {
	if err := r.catalog.Refresh(ctx); err != nil {
		return fault.Of(err)
	}
	return nil
}

// learn makes sure that this node knows the partitions of a queue before it looks for a job in
// them. The home shard knows their number, since every queue has a part there. If the home shard
// cannot be asked, no job can be reported missing. If the catalog does not come to agree with it,
// learn returns QUEUE_CHANGED.
func (r reader) learn(ctx context.Context, queue string) error {
	shard := r.shard(queue, 0)
	home, _, err := r.read(ctx, shard, &fsm.QueueQuery{Queue: queue})
	if err != nil {
		return fault.OfShard(shard, err)
	}
	if len(home.Queues) == 0 || home.Queues[0].Partitions == r.partitions(queue) {
		return nil
	}
	if err := r.refresh(ctx); err != nil || home.Queues[0].Partitions != r.partitions(queue) {
		return fault.New(belfryv1.Reason_REASON_QUEUE_CHANGED)
	}
	return nil
}

// findAgain makes a call that names a job. It repeats the call if that found nothing because this
// node looked in the wrong partition.
func findAgain[R any](ctx context.Context, r reader, queue string, call func() (R, error)) (R, error) {
	routed := r.partitions(queue)
	out, err := call()
	if err == nil {
		return out, nil
	}
	switch fault.Of(err).Reason {
	case belfryv1.Reason_REASON_JOB_NOT_FOUND, belfryv1.Reason_REASON_QUEUE_NOT_FOUND:
	default:
		return out, err
	}
	if changed := r.learn(ctx, queue); changed != nil {
		var none R
		return none, changed
	}
	if r.partitions(queue) == routed {
		return out, err
	}
	return call()
}

// Get implements QueueService.
func (s *queueService) Get(ctx context.Context, req *belfryv1.GetRequest) (*belfryv1.GetResponse, error) {
	return findAgain(ctx, reader{s.router, req.GetStale()}, req.GetQueue(), func() (*belfryv1.GetResponse, error) { return s.get(ctx, req) })
}

// onJob proposes a command to the shard of a job.
func (s *queueService) onJob(ctx context.Context, c *check.Request, queue, id, requestID string, command fsm.Command) (answer, error) {
	if c.Err != nil {
		return answer{}, c.Err
	}
	return findAgain(ctx, reader{s.router, false}, queue, func() (answer, error) { return s.onJobIn(ctx, queue, id, requestID, command) })
}
