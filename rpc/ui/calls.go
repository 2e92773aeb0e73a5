package ui

import (
	"bytes"
	"context"
	"io"
	"net/http"

	"connectrpc.com/connect"

	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
)

// newClients returns clients of the API that call its handler directly.
func newClients(api http.Handler) (belfryv1connect.QueueServiceClient, belfryv1connect.AdminServiceClient) {
	direct := &http.Client{Transport: transport{api}}
	// Nothing is sent anywhere, so nothing is compressed.
	plain := connect.WithAcceptCompression("gzip", nil, nil)
	const nowhere = "http://belfry" // the host is that of the page, see RoundTrip
	return belfryv1connect.NewQueueServiceClient(direct, nowhere, plain),
		belfryv1connect.NewAdminServiceClient(direct, nowhere, plain)
}

// visitorKey is the key of the request for a page, in the context of the calls that the page makes.
type visitorKey struct{}

// onBehalf returns the context for calls on behalf of the one who asked for a page.
func onBehalf(ctx context.Context, r *http.Request) context.Context {
	return context.WithValue(ctx, visitorKey{}, r)
}

// transport carries calls to a handler of this process.
type transport struct{ api http.Handler }

// RoundTrip has the handler answer a call. The call has the token and the address of the one who
// asked for the page, so that it is allowed, limited and audited as theirs.
func (t transport) RoundTrip(call *http.Request) (*http.Response, error) {
	r := call.Clone(call.Context())
	if page, ok := call.Context().Value(visitorKey{}).(*http.Request); ok {
		r.RemoteAddr, r.Host = page.RemoteAddr, page.Host
		for _, name := range []string{"Authorization", callIDHeader} {
			if value := page.Header.Get(name); value != "" {
				r.Header.Set(name, value)
			}
		}
	}
	answer := &answer{header: http.Header{}, status: http.StatusOK}
	t.api.ServeHTTP(answer, r)
	if call.Body != nil {
		_ = call.Body.Close() // a buffer
	}
	return &http.Response{
		Status: http.StatusText(answer.status), StatusCode: answer.status, Header: answer.header, Request: call,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Body: io.NopCloser(&answer.body), ContentLength: int64(answer.body.Len()),
	}, nil
}

// callIDHeader names a call in the logs of both sides.
const callIDHeader = "X-Request-Id"

// answer is the answer to a call.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) { a.status = status }

// Write implements http.ResponseWriter.
func (a *answer) Write(b []byte) (int, error) { return a.body.Write(b) }
