package adapter

import (
	"context"
	"errors"

	"github.com/belfrydb/belfry/cluster"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/rpc/backend"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
)

// catalog adapts a cluster.Catalog.
type catalog struct{ inner *cluster.Catalog }

// NewCatalog returns the catalog of a cluster as the API needs it.
func NewCatalog(c *cluster.Catalog) backend.Catalog { return &catalog{c} }

// CreateQueue implements rpc.Catalog.
func (c *catalog) CreateQueue(ctx context.Context, name string, partitions uint32, settings fsm.Settings) (backend.QueueConfig, error) {
	config, err := c.inner.CreateQueue(ctx, name, partitions, settings)
	if errors.Is(err, cluster.ErrQueueExists) {
		return backend.QueueConfig{}, &fault.Error{Reason: belfryv1.Reason_REASON_QUEUE_EXISTS, Message: err.Error()}
	}
	return queueConfig(config), err
}

// UpdateQueue implements rpc.Catalog.
func (c *catalog) UpdateQueue(ctx context.Context, name string, change func(fsm.Settings) fsm.Settings) (backend.QueueConfig, error) {
	config, err := c.inner.UpdateQueue(ctx, name, change)
	return queueConfig(config), err
}

// DeleteQueue implements rpc.Catalog.
func (c *catalog) DeleteQueue(ctx context.Context, name string) error {
	return c.inner.DeleteQueue(ctx, name)
}

// Reconcile implements rpc.Catalog.
func (c *catalog) Reconcile(ctx context.Context, name string) (backend.Reconciled, error) {
	done, err := c.inner.Reconcile(ctx, name)
	switch {
	case errors.Is(err, cluster.ErrQueueGone):
		return backend.Reconciled{}, &fault.Error{Reason: belfryv1.Reason_REASON_QUEUE_CHANGED, Field: "queue", Message: "queue: " + err.Error()}
	case errors.Is(err, cluster.ErrQueueExists):
		return backend.Reconciled{}, &fault.Error{Reason: belfryv1.Reason_REASON_QUEUE_EXISTS, Message: err.Error()}
	}
	return backend.Reconciled(done), err
}

// ForRequest implements rpc.Catalog.
func (c *catalog) ForRequest(id, content string) backend.Catalog {
	return &catalog{c.inner.ForRequest(id, content)}
}

// Queue implements rpc.Catalog.
func (c *catalog) Queue(name string) (backend.QueueConfig, bool) {
	config, ok := c.inner.Queue(name)
	return queueConfig(config), ok
}

// Altered implements rpc.Catalog.
func (c *catalog) Altered() <-chan struct{} { return c.inner.Altered() }

// Refresh implements rpc.Catalog.
func (c *catalog) Refresh(ctx context.Context) error { return c.inner.Refresh(ctx) }

func queueConfig(c cluster.QueueConfig) backend.QueueConfig {
	return backend.QueueConfig{Name: c.Name, Partitions: c.Partitions, Version: c.Version, Settings: c.Settings}
}
