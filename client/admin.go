package client

import (
	"context"
	"time"

	"github.com/belfrydb/belfry/client/admin"
	"github.com/belfrydb/belfry/client/internal/calls"
	"github.com/belfrydb/belfry/client/internal/failure"
	"github.com/belfrydb/belfry/client/schedule"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
)

// Admin returns the calls that configure and inspect queues and the cluster, and act on many jobs.
// They are repeated, and fail with an [*Error], as the calls of c.
func (c *Client) Admin() admin.Client {
	return admin.New(serviceOf(c, func(ep *endpoint) belfryv1connect.AdminServiceClient { return ep.admin }))
}

// Schedules returns the calls that put, read, pause, run and delete schedules. They are repeated, and
// fail with an [*Error], as the calls of c.
func (c *Client) Schedules() schedule.Client {
	return schedule.New(serviceOf(c, func(ep *endpoint) belfryv1connect.ScheduleServiceClient { return ep.schedules }))
}

// serviceOf returns what makes the calls of a service for another package. methods picks the
// service's methods at a server.
func serviceOf[S any](c *Client, methods func(*endpoint) S) calls.Service[S] {
	return calls.Service[S]{
		NewID:  c.clock.NewID,
		Now:    func() time.Time { return time.Now().Add(c.clock.Ahead()) },
		Public: func(err *failure.Error) error { return public(err) },
		Do: func(ctx context.Context, kind calls.Kind, attempt func(context.Context, S) error) *failure.Error {
			_, err := tryCall(ctx, c, kind, func(ctx context.Context, ep *endpoint) (*struct{}, error) {
				return nil, attempt(ctx, methods(ep))
			})
			return err
		},
	}
}
