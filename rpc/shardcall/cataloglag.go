package shardcall

import (
	"context"

	"github.com/belfrydb/belfry/fsm"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
)

// Refresh waits until the catalog has caught up.
func (r Router) Refresh(ctx context.Context) error {
	if err := r.Catalog.Refresh(ctx); err != nil {
		return fault.Of(err)
	}
	return nil
}

// Learn makes sure that this node knows the partitions of a queue before it looks for a job in
// them. The home shard knows their number, since every queue has a part there. If the home shard
// cannot be asked, no job can be reported missing. If the catalog does not come to agree with it,
// learn returns QUEUE_CHANGED.
func (r Reader) Learn(ctx context.Context, queue string) error {
	shard := r.Shard(queue, 0)
	home, _, err := r.Read(ctx, shard, &fsm.QueueQuery{Queue: queue})
	if err != nil {
		return fault.OfShard(shard, err)
	}
	if len(home.Queues) == 0 || home.Queues[0].Partitions == r.Partitions(queue) {
		return nil
	}
	if err := r.Refresh(ctx); err != nil || home.Queues[0].Partitions != r.Partitions(queue) {
		return fault.New(belfryv1.Reason_REASON_QUEUE_CHANGED)
	}
	return nil
}

// FindAgain makes a call that names a job or a schedule. It repeats the call if that found nothing because this
// node looked in the wrong partition.
func FindAgain[R any](ctx context.Context, r Reader, queue string, call func() (R, error)) (R, error) {
	routed := r.Partitions(queue)
	out, err := call()
	if err == nil {
		return out, nil
	}
	switch fault.Of(err).Reason {
	case belfryv1.Reason_REASON_JOB_NOT_FOUND, belfryv1.Reason_REASON_QUEUE_NOT_FOUND,
		belfryv1.Reason_REASON_SCHEDULE_NOT_FOUND:
	default:
		return out, err
	}
	if changed := r.Learn(ctx, queue); changed != nil {
		var none R
		return none, changed
	}
	if r.Partitions(queue) == routed {
		return out, err
	}
	return call()
}
