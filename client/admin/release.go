package admin

import (
	"context"
	"time"

	"github.com/belfrydb/belfry/client/internal/calls"
	"github.com/belfrydb/belfry/client/internal/failure"
	"github.com/belfrydb/belfry/client/internal/values"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// A LeaseHolder is a consumer that holds jobs of a queue, for [Client.ReleaseLeases].
type LeaseHolder struct {
	// Queue is the queue.
	Queue string
	// Client is the consumer, exactly as Client of a Job in package client: "name@address", or the
	// address of one without a name; at most 256 bytes. Consumers with the same text are one here.
	Client string
	// ReservedBefore, if not zero, selects only jobs that were reserved before it, on the servers'
	// clock. So a consumer that has come back under its name keeps what it has reserved since.
	ReservedBefore time.Time
}

// ReleaseLeases returns all jobs of the queue that a consumer holds, for a consumer that is gone,
// and returns how many it released. They are ready at once, and the attempt does not count. If the
// consumer is not gone, its leases are stale: its next ack or extension fails with ErrStaleLease of
// package client, and another consumer may work on the same jobs at the same time.
//
// One round trip releases up to 1,000 jobs. After an error, the number says how many jobs the
// answered round trips released. If there were any, the outcome is unknown. It is safe to call
// ReleaseLeases again: it releases what the consumer still holds. The number can be too low if the
// client had to repeat a request.
//
// Errors: Reason("QUEUE_NOT_FOUND"). Reason("INVALID") if Client is empty. Reason("UNIMPLEMENTED")
// until all nodes run a version that records who holds a job.
func (c Client) ReleaseLeases(ctx context.Context, h LeaseHolder) (int, error) {
	req := &belfryv1.ReleaseLeasesRequest{
		Queue: h.Queue, Client: h.Client, ReservedBefore: values.Timestamp(h.ReservedBefore),
	}
	for released := 0; ; {
		req.RequestId = c.service.NewID()
		res, err := calls.Try(ctx, c.service, calls.Kind{ID: &req.RequestId}, calls.Of(methods.ReleaseLeases, req))
		if err != nil {
			if released > 0 {
				err.Outcome = failure.Unknown
			}
			return released, c.service.Public(err)
		}
		released += int(res.GetReleased())
		if req.PageToken = res.GetNextPageToken(); req.GetPageToken() == "" {
			return released, nil
		}
	}
}
