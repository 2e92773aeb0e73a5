package adapter

import (
	"context"
	"errors"

	"github.com/belfrydb/belfry/cluster/catalog"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/rpc/backend"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
)

// catalogAdapter adapts a catalog.Catalog.
type catalogAdapter struct{ inner *catalog.Catalog }

// NewCatalog returns the catalog of a cluster as the API needs it.
func NewCatalog(c *catalog.Catalog) backend.Catalog { return &catalogAdapter{c} }

// CreateQueue implements backend.Catalog.
func (c *catalogAdapter) CreateQueue(ctx context.Context, name string, partitions uint32,
	settings fsm.Settings) (backend.QueueConfig, error) {
	config, err := c.inner.CreateQueue(ctx, name, partitions, settings)
	if errors.Is(err, catalog.ErrQueueExists) {
		return backend.QueueConfig{}, &fault.Error{Reason: belfryv1.Reason_REASON_QUEUE_EXISTS, Message: err.Error()}
	}
	return queueConfig(config), err
}

// UpdateQueue implements backend.Catalog.
func (c *catalogAdapter) UpdateQueue(ctx context.Context, name string,
	change func(fsm.Settings) (fsm.Settings, error)) (backend.QueueConfig, error) {
	config, err := c.inner.UpdateQueue(ctx, name, change)
	return queueConfig(config), err
}

// DeleteQueue implements backend.Catalog.
func (c *catalogAdapter) DeleteQueue(ctx context.Context, name string) error {
	return c.inner.DeleteQueue(ctx, name)
}

// Reconcile implements backend.Catalog.
func (c *catalogAdapter) Reconcile(ctx context.Context, name string) (backend.Reconciled, error) {
	done, err := c.inner.Reconcile(ctx, name)
	switch {
	case errors.Is(err, catalog.ErrQueueGone):
		return backend.Reconciled{}, &fault.Error{Reason: belfryv1.Reason_REASON_QUEUE_CHANGED, Field: "queue",
			Message: "queue: " + err.Error()}
	case errors.Is(err, catalog.ErrQueueExists):
		return backend.Reconciled{}, &fault.Error{Reason: belfryv1.Reason_REASON_QUEUE_EXISTS, Message: err.Error()}
	}
	return backend.Reconciled(done), err
}

// ForRequest implements backend.Catalog.
func (c *catalogAdapter) ForRequest(id, content string) backend.Catalog {
	return &catalogAdapter{c.inner.ForRequest(id, content)}
}

// Queue implements backend.Catalog.
func (c *catalogAdapter) Queue(name string) (backend.QueueConfig, bool) {
	config, ok := c.inner.Queue(name)
	return queueConfig(config), ok
}

// Altered implements backend.Catalog.
func (c *catalogAdapter) Altered() <-chan struct{} { return c.inner.Altered() }

// Refresh implements backend.Catalog.
func (c *catalogAdapter) Refresh(ctx context.Context) error { return c.inner.Refresh(ctx) }

func queueConfig(c catalog.QueueConfig) backend.QueueConfig {
	return backend.QueueConfig{Name: c.Name, Partitions: c.Partitions, Version: c.Version, Settings: c.Settings}
}
