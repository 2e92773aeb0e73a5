// Package admin configures and inspects the queues and the nodes of a cluster, and acts on many jobs
// at once. A client of package client makes the calls:
//
//	_, err := c.Admin().UpdateQueue(ctx, "orders", &admin.QueueSettings{Paused: new(true)})
//
// Errors are *client.Error, as those of all other calls, except [ErrKeysLeftOut]. A docstring that
// names a reason means that errors.Is(err, client.Reason("QUEUE_NOT_FOUND")) finds it.
package admin

import (
	"context"
	"iter"
	"math"

	"github.com/belfrydb/belfry/client/internal/calls"
	"github.com/belfrydb/belfry/client/internal/failure"
	"github.com/belfrydb/belfry/client/internal/values"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
)

// A Client makes administrative calls. Get one from Client.Admin of package client. Any number of
// goroutines may use it. On a cluster with tokens a call needs the scope admin for the queue. Cluster
// needs the scope view for all queues.
type Client struct {
	service calls.Service[methods]
}

type methods = belfryv1connect.AdminServiceClient

// New is for package client, which has the connections.
func New(service calls.Service[methods]) Client { return Client{service: service} }

// refusal is the error of a call that is not sent.
func (c Client) refusal(format string, args ...any) error {
	return c.service.Public(failure.Invalidf(format, args...))
}

// CreateQueue creates a queue ahead of its first put. Only this call can give a queue more than one
// partition; 0 stands for 1. The settings may be nil. A setting that is not set has its default.
//
// Errors: Reason("QUEUE_EXISTS").
func (c Client) CreateQueue(ctx context.Context, name string, partitions int,
	settings *QueueSettings) (ConfiguredQueue, error) {
	wire, invalid := settings.wire()
	if invalid != nil {
		return ConfiguredQueue{}, c.service.Public(invalid)
	}
	if partitions < 0 || uint64(partitions) > math.MaxUint32 {
		return ConfiguredQueue{}, c.refusal("partitions: %d; it is at least 1", partitions)
	}
	req := &belfryv1.CreateQueueRequest{
		Queue: name, Partitions: uint32(partitions), Settings: wire, //nolint:gosec // checked
	}
	res, err := calls.Change(ctx, c.service, &req.RequestId, calls.Of(methods.CreateQueue, req))
	if err != nil {
		return ConfiguredQueue{}, err
	}
	return ConfiguredQueue{
		Partitions: int(res.GetPartitions()), Settings: settingsOf(res.GetSettings()), Version: res.GetSettingsVersion(),
		Shards: values.Each(res.GetWitnesses(), (*belfryv1.Witness).GetShard), PendingShards: res.GetPendingShards(),
	}, nil
}

// Queues reads the queues whose names start with prefix, ordered by name. The sequence ends after
// the first error.
func (c Client) Queues(ctx context.Context, prefix string) iter.Seq2[QueueState, error] {
	return func(yield func(QueueState, error) bool) {
		req := &belfryv1.ListQueuesRequest{Prefix: prefix}
		for {
			res, err := calls.Read(ctx, c.service, calls.Of(methods.ListQueues, req))
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
func (c Client) Queue(ctx context.Context, name string) (QueueState, error) {
	req := &belfryv1.GetQueueRequest{Queue: name}
	res, err := calls.Read(ctx, c.service, calls.Of(methods.GetQueue, req))
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
func (c Client) UpdateQueue(ctx context.Context, name string, settings *QueueSettings) (ConfiguredQueue, error) {
	wire, invalid := settings.wire()
	if invalid != nil {
		return ConfiguredQueue{}, c.service.Public(invalid)
	}
	req := &belfryv1.UpdateQueueRequest{Queue: name, Settings: wire}
	res, err := calls.Change(ctx, c.service, &req.RequestId, calls.Of(methods.UpdateQueue, req))
	if err != nil {
		return ConfiguredQueue{}, err
	}
	return ConfiguredQueue{
		Settings: settingsOf(res.GetSettings()), Version: res.GetSettingsVersion(),
		Shards:        values.Each(res.GetWitnesses(), (*belfryv1.Witness).GetShard),
		PendingShards: res.GetPendingShards(),
	}, nil
}

// A State is a job's state, as State of package client: "DELAYED", "READY", "RESERVED" or "DEAD".
type State = values.State

// PurgeQueue removes all jobs in the given states, and returns how many it removed. No states means
// DELAYED, READY and DEAD. RESERVED jobs are removed only if states names RESERVED.
//
// Errors: Reason("QUEUE_NOT_FOUND").
func (c Client) PurgeQueue(ctx context.Context, name string, states ...State) (int, error) {
	req := &belfryv1.PurgeQueueRequest{Queue: name}
	for _, state := range states {
		number, ok := values.StateNumber(state)
		if !ok || state == "" {
			return 0, c.refusal("there is no state %q", state)
		}
		req.States = append(req.States, number)
	}
	res, err := calls.Change(ctx, c.service, &req.RequestId, calls.Of(methods.PurgeQueue, req))
	return int(res.GetPurged()), err
}

// DeleteQueue removes a queue with its jobs, settings and remembered ids, and returns how many jobs
// there were. A later put creates a new queue.
//
// Errors: Reason("QUEUE_NOT_FOUND").
func (c Client) DeleteQueue(ctx context.Context, name string) (int, error) {
	req := &belfryv1.DeleteQueueRequest{Queue: name}
	res, err := calls.Change(ctx, c.service, &req.RequestId, calls.Of(methods.DeleteQueue, req))
	return int(res.GetPurged()), err
}

// Cluster reads the nodes and shards as the answering node sees them.
func (c Client) Cluster(ctx context.Context) (Cluster, error) {
	res, err := calls.Read(ctx, c.service, calls.Of(methods.GetCluster, &belfryv1.GetClusterRequest{}))
	if err != nil {
		return Cluster{}, err
	}
	return clusterOf(res), nil
}
