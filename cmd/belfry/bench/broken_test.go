package bench_test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"

	"github.com/belfrydb/belfry/cmd/belfry/bench"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
	"github.com/belfrydb/belfry/stream"
)

// brokenServer stands before a real server and refuses a procedure from its n-th call on, for good.
func brokenServer(t *testing.T, procedure string, from int64) string {
	t.Helper()
	target, err := url.Parse(startServer(t))
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	errors := connect.NewErrorWriter()
	var calls atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == belfryv1connect.QueueServiceGetRoutingProcedure || r.URL.Path == stream.SessionPath {
			http.NotFound(w, r) // the client shall not find the way past this server, nor have calls that it does not see
			return
		}
		if r.URL.Path == procedure && calls.Add(1) >= from {
			errors.Write(w, r, forbidden(t)) //nolint:errcheck // the client sees
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	// The SDK speaks HTTP/2 without TLS.
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(server.Close)
	return server.URL
}

// forbidden is an error of the contract that no client repeats.
func forbidden(t *testing.T) *connect.Error {
	t.Helper()
	err := connect.NewError(connect.CodePermissionDenied, nil)
	detail, detailErr := connect.NewErrorDetail(&errdetails.ErrorInfo{
		Reason: "FORBIDDEN", Domain: "belfry", Metadata: map[string]string{"outcome": "NOT_APPLIED"},
	})
	if detailErr != nil {
		t.Error(detailErr)
	}
	err.AddDetail(detail)
	return err
}

// TestErrorsEndARun breaks each workload in the middle: it ends, says what it was doing, and shows
// what it had measured.
func TestErrorsEndARun(t *testing.T) {
	for _, test := range []struct {
		workload, procedure string
		from                int64
		says                string
	}{
		{"put", belfryv1connect.QueueServicePutProcedure, 10, "putting a job"},
		{"batch", belfryv1connect.QueueServicePutBatchProcedure, 2, "putting 30 jobs"},
		{"pending", belfryv1connect.QueueServicePutBatchProcedure, 2, "putting 30 jobs"},
		{"sdk", belfryv1connect.QueueServicePutBatchProcedure, 2, "putting a job"},
		{"sdk", belfryv1connect.QueueServiceReserveProcedure, 2, "reserving a job"},
		{"sdk", belfryv1connect.QueueServiceAckBatchProcedure, 2, "acking a job"},
		{"e2e", belfryv1connect.QueueServicePutBatchProcedure, 2, "putting a job"},
		{"e2e", belfryv1connect.QueueServiceAckBatchProcedure, 2, "acking a job"},
		{"lateness", belfryv1connect.QueueServicePutBatchProcedure, 2, "putting a job"},
		{"lateness", belfryv1connect.QueueServiceReserveProcedure, 2, "reserving a job"},
	} {
		t.Run(test.workload+" "+test.procedure, func(t *testing.T) {
			began := time.Now()
			results, err := bench.Run(t.Context(), small(test.workload, brokenServer(t, test.procedure, test.from)))
			if err == nil || !strings.Contains(err.Error(), test.says) || len(results) == 0 {
				t.Fatalf("got %+v, %v; want results and %q", results, err, test.says)
			}
			var failed uint64
			for _, r := range results {
				failed += r.Errors
			}
			if failed == 0 || time.Since(began) > 2*time.Minute {
				t.Errorf("%d errors after %v; want some, and soon", failed, time.Since(began))
			}
		})
	}
}
