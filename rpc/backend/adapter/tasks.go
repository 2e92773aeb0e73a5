package adapter

import (
	"context"
	"errors"

	"github.com/belfrydb/belfry/cluster/catalog"
	"github.com/belfrydb/belfry/fsm/bulk"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
)

// StartTask implements backend.Catalog.
func (c *catalogAdapter) StartTask(ctx context.Context, t bulk.Task) error {
	err := c.inner.StartTask(ctx, t)
	switch {
	case errors.Is(err, catalog.ErrTasks):
		return &fault.Error{Reason: belfryv1.Reason_REASON_QUOTA, Message: err.Error()}
	case errors.Is(err, catalog.ErrTaskExists):
		return fault.Invalid("requestId", "it began another task before")
	case errors.Is(err, catalog.ErrTaskFormat):
		return &fault.Error{Reason: belfryv1.Reason_REASON_UNIMPLEMENTED, Message: err.Error()}
	}
	return err
}

// StopTask implements backend.Catalog.
func (c *catalogAdapter) StopTask(ctx context.Context, id string) error {
	err := c.inner.StopTask(ctx, id)
	if errors.Is(err, catalog.ErrTaskUnknown) {
		return fault.Invalid("id", "there is no such task any more")
	}
	return err
}

// Tasks implements backend.Catalog.
func (c *catalogAdapter) Tasks() []bulk.Task { return c.inner.Tasks() }
