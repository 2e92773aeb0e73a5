package ui

import (
	"context"
	"net/http"

	"connectrpc.com/connect"

	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
	"github.com/belfrydb/belfry/rpc/ui/fallback"
)

// newClients returns clients of the API.
func newClients(api http.RoundTripper) (belfryv1connect.QueueServiceClient, belfryv1connect.AdminServiceClient,
	belfryv1connect.ScheduleServiceClient) {
	direct := &http.Client{Transport: visitorTransport{api}}
	// Nothing is sent anywhere, so nothing is compressed.
	options := connect.WithClientOptions(connect.WithAcceptCompression("gzip", nil, nil),
		connect.WithInterceptors(fallback.Interceptor()))
	const nowhere = "http://belfry" // the host is that of the page, see RoundTrip
	return belfryv1connect.NewQueueServiceClient(direct, nowhere, options),
		belfryv1connect.NewAdminServiceClient(direct, nowhere, options),
		belfryv1connect.NewScheduleServiceClient(direct, nowhere, options)
}

// visitorKey is the key of the request for a page, in the context of the calls that the page makes.
type visitorKey struct{}

// onBehalf returns the context for calls on behalf of the one who asked for a page.
func onBehalf(ctx context.Context, r *http.Request) context.Context {
	return fallback.Visit(context.WithValue(ctx, visitorKey{}, r))
}

// visitorTransport makes calls those of the one who asked for a page.
type visitorTransport struct{ api http.RoundTripper }

// RoundTrip makes a call with the token and the address of the one who asked for the page, so that
// it is allowed, limited and audited as theirs.
func (t visitorTransport) RoundTrip(call *http.Request) (*http.Response, error) {
	r := call.Clone(call.Context())
	if page, ok := call.Context().Value(visitorKey{}).(*http.Request); ok {
		r.RemoteAddr, r.Host = page.RemoteAddr, page.Host
		for _, name := range []string{"Authorization", callIDHeader} {
			if value := page.Header.Get(name); value != "" {
				r.Header.Set(name, value)
			}
		}
	}
	return t.api.RoundTrip(r)
}

// callIDHeader names a call in the logs of both sides.
const callIDHeader = "X-Request-Id"
