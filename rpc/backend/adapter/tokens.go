package adapter

import (
	"context"
	"errors"
	"time"

	"github.com/belfrydb/belfry/access/tokens"
	"github.com/belfrydb/belfry/cluster/catalog"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
)

// AddToken implements backend.Catalog.
func (c *catalogAdapter) AddToken(ctx context.Context, t tokens.Record) error {
	err := c.inner.AddToken(ctx, t)
	if errors.Is(err, catalog.ErrTokens) {
		return &fault.Error{Reason: belfryv1.Reason_REASON_QUOTA, Message: err.Error()}
	}
	return err
}

// EndToken implements backend.Catalog.
func (c *catalogAdapter) EndToken(ctx context.Context, id string, at time.Time) (found bool, err error) {
	err = c.inner.EndToken(ctx, id, at)
	if errors.Is(err, catalog.ErrTokenUnknown) {
		return false, nil
	}
	return err == nil, err
}

// Tokens implements backend.Catalog.
func (c *catalogAdapter) Tokens() []*tokens.Record { return c.inner.Tokens() }
