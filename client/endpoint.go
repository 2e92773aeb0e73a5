package client

import (
	"context"

	"connectrpc.com/connect"

	"github.com/belfrydb/belfry/client/internal/failure"
	"github.com/belfrydb/belfry/client/internal/routes"
	"github.com/belfrydb/belfry/client/internal/servers"
	"github.com/belfrydb/belfry/client/internal/session"
	"github.com/belfrydb/belfry/client/internal/transport"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
	"github.com/belfrydb/belfry/rpc/utf8field"
)

// An endpoint is one server address.
type endpoint struct {
	queue     belfryv1connect.QueueServiceClient
	admin     belfryv1connect.AdminServiceClient
	schedules belfryv1connect.ScheduleServiceClient
	// The calls of the hot path, with answers that decode themselves.
	sessions *session.Server
	putBatch *connect.Client[session.RawRequest, putBatchAnswer]
	ackBatch *connect.Client[session.RawRequest, ackBatchAnswer]
	reserve  *connect.Client[session.RawRequest, reserveAnswer]
}

// endpoints are the servers of a cluster, and what is known of who leads which shard.
type endpoints struct {
	*servers.List[*endpoint]
	routes routes.Table[*endpoint]
}

// newEndpoint makes the connect clients for one address.
func newEndpoint(u string, h connect.HTTPClient, s *session.Server) *endpoint {
	plain := connect.WithClientOptions(transport.Uncompressed(),
		connect.WithInterceptors(utf8field.Interceptor(failure.NotUTF8)))
	return &endpoint{
		queue:     belfryv1connect.NewQueueServiceClient(h, u, plain),
		admin:     belfryv1connect.NewAdminServiceClient(h, u, plain),
		schedules: belfryv1connect.NewScheduleServiceClient(h, u, plain),
		sessions:  s,
		putBatch:  newCall[putBatchAnswer](h, u, belfryv1connect.QueueServicePutBatchProcedure),
		ackBatch:  newCall[ackBatchAnswer](h, u, belfryv1connect.QueueServiceAckBatchProcedure),
		reserve:   newCall[reserveAnswer](h, u, belfryv1connect.QueueServiceReserveProcedure),
	}
}

// newCall makes the connect client of a call whose answer decodes itself.
func newCall[A any](h connect.HTTPClient, u, procedure string) *connect.Client[session.RawRequest, A] {
	return connect.NewClient[session.RawRequest, A](h, u+procedure, transport.Uncompressed(),
		connect.WithCodec(session.Codec{}))
}

type queueMethods = belfryv1connect.QueueServiceClient

// onQueue returns what calls a method of QueueService, for call.
func onQueue[Req, Res any](method func(queueMethods, context.Context, *Req) (*Res, error),
	req *Req) func(context.Context, *endpoint) (*Res, error) {
	return func(ctx context.Context, ep *endpoint) (*Res, error) { return method(ep.queue, ctx, req) }
}
