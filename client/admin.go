package client

import (
	"context"
	"iter"
	"math"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// Admin configures and inspects queues and the cluster.
type Admin struct{ client *Client }

// Admin returns the administrative calls.
func (c *Client) Admin() Admin { return Admin{client: c} }

// CreateQueue creates a queue ahead of its first put. Only this call can give a queue more than one
// partition; 0 stands for 1. The settings may be nil. A setting that is not set has its default.
//
// Errors: Reason("QUEUE_EXISTS").
func (a Admin) CreateQueue(ctx context.Context, name string, partitions int,
	settings *QueueSettings) (ConfiguredQueue, error) {
	wire, err := settings.wire()
	if err != nil {
		return ConfiguredQueue{}, err
	}
	if partitions < 0 || uint64(partitions) > math.MaxUint32 {
		return ConfiguredQueue{}, invalidError("partitions: %d; it is at least 1", partitions)
	}
	req := &belfryv1.CreateQueueRequest{
		Queue: name, Partitions: uint32(partitions), Settings: wire, RequestId: a.client.clock.NewID(),
		//nolint:gosec // checked
	}
	res, err := call(ctx, a.client, callKind{id: &req.RequestId}, onAdmin(adminMethods.CreateQueue, req))
	if err != nil {
		return ConfiguredQueue{}, err
	}
	return ConfiguredQueue{
		Partitions: int(res.GetPartitions()), Settings: settingsOf(res.GetSettings()), Version: res.GetSettingsVersion(),
		Shards: each(res.GetWitnesses(), (*belfryv1.Witness).GetShard), PendingShards: res.GetPendingShards(),
	}, nil
}

// Queues reads the queues whose names start with prefix, ordered by name. The sequence ends after
// the first error.
func (a Admin) Queues(ctx context.Context, prefix string) iter.Seq2[QueueState, error] {
	return func(yield func(QueueState, error) bool) {
		req := &belfryv1.ListQueuesRequest{Prefix: prefix}
		for {
			res, err := call(ctx, a.client, callKind{reads: true}, onAdmin(adminMethods.ListQueues, req))
			if err != nil {
				yield(QueueState{}, err)
				return
			}
			for _, queue := range res.GetQueues() {
				if !yield(queueStateOf(queue), nil) {
					return
				}
			}
			if req.PageToken = res.GetNextPageToken(); req.GetPageToken() == "" {
				return
			}
		}
	}
}

// Queue reads one queue: its settings, counts, age of the oldest ready job, lateness, rates, and
// when its jobs fall due.
//
// Errors: Reason("QUEUE_NOT_FOUND").
func (a Admin) Queue(ctx context.Context, name string) (QueueState, error) {
	req := &belfryv1.GetQueueRequest{Queue: name}
	res, err := call(ctx, a.client, callKind{reads: true}, onAdmin(adminMethods.GetQueue, req))
	if err != nil {
		return QueueState{}, err
	}
	return queueStateOf(res.GetQueue()), nil
}

// UpdateQueue changes the settings that are set, and no others. It also pauses and resumes a queue.
// It is atomic in each shard, but not across shards; the result names shards that have yet to apply
// it.
//
// Errors: Reason("QUEUE_NOT_FOUND").
func (a Admin) UpdateQueue(ctx context.Context, name string, settings *QueueSettings) (ConfiguredQueue, error) {
	wire, err := settings.wire()
	if err != nil {
		return ConfiguredQueue{}, err
	}
	req := &belfryv1.UpdateQueueRequest{Queue: name, Settings: wire, RequestId: a.client.clock.NewID()}
	res, err := call(ctx, a.client, callKind{id: &req.RequestId}, onAdmin(adminMethods.UpdateQueue, req))
	if err != nil {
		return ConfiguredQueue{}, err
	}
	return ConfiguredQueue{
		Settings: settingsOf(res.GetSettings()), Version: res.GetSettingsVersion(),
		Shards:        each(res.GetWitnesses(), (*belfryv1.Witness).GetShard),
		PendingShards: res.GetPendingShards(),
	}, nil
}

// PurgeQueue removes all jobs in the given states, and returns how many it removed. No states means
// DELAYED, READY and DEAD. RESERVED jobs are removed only if states names RESERVED.
//
// Errors: Reason("QUEUE_NOT_FOUND").
func (a Admin) PurgeQueue(ctx context.Context, name string, states ...State) (int, error) {
	req := &belfryv1.PurgeQueueRequest{Queue: name, RequestId: a.client.clock.NewID()}
	for _, state := range states {
		number, ok := state.wire()
		if !ok || state == "" {
			return 0, invalidError("there is no state %q", state)
		}
		req.States = append(req.States, number)
	}
	res, err := call(ctx, a.client, callKind{id: &req.RequestId}, onAdmin(adminMethods.PurgeQueue, req))
	return int(res.GetPurged()), err
}

// DeleteQueue removes a queue with its jobs, settings and remembered ids, and returns how many jobs
// there were. A later put creates a new queue.
//
// Errors: Reason("QUEUE_NOT_FOUND").
func (a Admin) DeleteQueue(ctx context.Context, name string) (int, error) {
	req := &belfryv1.DeleteQueueRequest{Queue: name, RequestId: a.client.clock.NewID()}
	res, err := call(ctx, a.client, callKind{id: &req.RequestId}, onAdmin(adminMethods.DeleteQueue, req))
	return int(res.GetPurged()), err
}

// Cluster reads the nodes and shards as the answering node sees them.
func (a Admin) Cluster(ctx context.Context) (Cluster, error) {
	res, err := call(ctx, a.client, callKind{reads: true},
		onAdmin(adminMethods.GetCluster, &belfryv1.GetClusterRequest{}))
	if err != nil {
		return Cluster{}, err
	}
	return clusterOf(res), nil
}
