package adapter

import (
	"context"
	"errors"

	"github.com/belfrydb/belfry/cluster/catalog"
	"github.com/belfrydb/belfry/rpc/backend"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
)

// Queues implements backend.Catalog.
func (c *catalogAdapter) Queues() (configs []backend.QueueConfig) {
	for _, q := range c.inner.Queues() {
		config := queueConfig(q)
		if q.State == catalog.Deleting {
			config.Version = 0
		}
		configs = append(configs, config)
	}
	return configs
}

// RestoreQueue implements backend.Catalog.
func (c *catalogAdapter) RestoreQueue(ctx context.Context, q backend.QueueConfig) error {
	err := c.inner.RestoreQueue(ctx, catalog.QueueConfig{Name: q.Name, Partitions: q.Partitions, Settings: q.Settings})
	if errors.Is(err, catalog.ErrQueueExists) {
		return &fault.Error{Reason: belfryv1.Reason_REASON_QUEUE_EXISTS, Message: err.Error()}
	}
	return err
}
