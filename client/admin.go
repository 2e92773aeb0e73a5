package client

import (
	"context"
	"iter"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// Admin configures and inspects queues and the cluster. It speaks in the messages of the API, whose comments say what each
// field means.
type Admin struct{ client *Client }

// Admin gives the administrative calls.
func (c *Client) Admin() Admin { return Admin{client: c} }

// CreateQueue makes a queue ahead of its first put. Only here can it get more than one partition. The settings may be nil;
// what is not set has its default.
//
// Errors: Reason("QUEUE_EXISTS").
func (a Admin) CreateQueue(
	ctx context.Context, name string, partitions uint32, settings *belfryv1.QueueSettings,
) (*belfryv1.CreateQueueResponse, error) {
	req := &belfryv1.CreateQueueRequest{
		Queue: name, Partitions: partitions, Settings: settings, RequestId: a.client.clock.newID(),
	}
	return call(ctx, a.client, callKind{id: &req.RequestId},
		func(ctx context.Context, ep *endpoint) (*belfryv1.CreateQueueResponse, error) {
			return ep.admin.CreateQueue(ctx, req)
		})
}

// Queues reads the queues whose names start with prefix, in order of their names. The sequence ends after the first error.
func (a Admin) Queues(ctx context.Context, prefix string) iter.Seq2[*belfryv1.Queue, error] {
	return func(yield func(*belfryv1.Queue, error) bool) {
		req := &belfryv1.ListQueuesRequest{Prefix: prefix}
		for {
			res, err := call(ctx, a.client, callKind{reads: true},
				func(ctx context.Context, ep *endpoint) (*belfryv1.ListQueuesResponse, error) {
					return ep.admin.ListQueues(ctx, req)
				})
			if err != nil {
				yield(nil, err)
				return
			}
			for _, queue := range res.GetQueues() {
				if !yield(queue, nil) {
					return
				}
			}
			if req.PageToken = res.GetNextPageToken(); req.GetPageToken() == "" {
				return
			}
		}
	}
}

// Queue reads one queue: settings, counts, age of the oldest ready job, lateness, rates, when its jobs fall due.
//
// Errors: Reason("QUEUE_NOT_FOUND").
func (a Admin) Queue(ctx context.Context, name string) (*belfryv1.Queue, error) {
	req := &belfryv1.GetQueueRequest{Queue: name}
	res, err := call(ctx, a.client, callKind{reads: true},
		func(ctx context.Context, ep *endpoint) (*belfryv1.GetQueueResponse, error) {
			return ep.admin.GetQueue(ctx, req)
		})
	return res.GetQueue(), err
}

// UpdateQueue changes the settings that are set, and no others; also pause and resume. It is atomic in each shard, not
// across them; the answer names shards that have yet to apply it.
//
// Errors: Reason("QUEUE_NOT_FOUND").
func (a Admin) UpdateQueue(
	ctx context.Context, name string, settings *belfryv1.QueueSettings,
) (*belfryv1.UpdateQueueResponse, error) {
	req := &belfryv1.UpdateQueueRequest{Queue: name, Settings: settings, RequestId: a.client.clock.newID()}
	return call(ctx, a.client, callKind{id: &req.RequestId},
		func(ctx context.Context, ep *endpoint) (*belfryv1.UpdateQueueResponse, error) {
			return ep.admin.UpdateQueue(ctx, req)
		})
}

// PurgeQueue removes all jobs that are in the given states, and says how many there were. No states means DELAYED, READY
// and DEAD; RESERVED jobs are removed only if it is named.
//
// Errors: Reason("QUEUE_NOT_FOUND").
func (a Admin) PurgeQueue(ctx context.Context, name string, states ...State) (int, error) {
	req := &belfryv1.PurgeQueueRequest{Queue: name, RequestId: a.client.clock.newID()}
	for _, state := range states {
		number, ok := state.wire()
		if !ok || state == "" {
			return 0, invalidError("there is no state %q", state)
		}
		req.States = append(req.States, number)
	}
	res, err := call(ctx, a.client, callKind{id: &req.RequestId},
		func(ctx context.Context, ep *endpoint) (*belfryv1.PurgeQueueResponse, error) {
			return ep.admin.PurgeQueue(ctx, req)
		})
	return int(res.GetPurged()), err
}

// DeleteQueue removes a queue with its jobs, settings and remembered ids, and says how many jobs there were. A later put
// makes a new queue.
//
// Errors: Reason("QUEUE_NOT_FOUND").
func (a Admin) DeleteQueue(ctx context.Context, name string) (int, error) {
	req := &belfryv1.DeleteQueueRequest{Queue: name, RequestId: a.client.clock.newID()}
	res, err := call(ctx, a.client, callKind{id: &req.RequestId},
		func(ctx context.Context, ep *endpoint) (*belfryv1.DeleteQueueResponse, error) {
			return ep.admin.DeleteQueue(ctx, req)
		})
	return int(res.GetPurged()), err
}

// Cluster reads the nodes and shards as the answering node sees them.
func (a Admin) Cluster(ctx context.Context) (*belfryv1.GetClusterResponse, error) {
	return call(ctx, a.client, callKind{reads: true},
		func(ctx context.Context, ep *endpoint) (*belfryv1.GetClusterResponse, error) {
			return ep.admin.GetCluster(ctx, &belfryv1.GetClusterRequest{})
		})
}
