package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
)

// now is the time of every command that a test runs without a process.
var now = time.Date(2030, 1, 31, 9, 0, 0, 0, time.UTC)

// fixedRequestID is the first request id that a harness makes; numberedID gives them all.
const fixedRequestID = "018dcb2a-4f00-7000-8000-000000000000"

func numberedID(n int) string { return fmt.Sprintf("018dcb2a-4f00-7000-8000-%012d", n) }

// harness runs commands against a fake server and remembers what the server was sent.
type harness struct {
	t      *testing.T
	url    string
	system *system
	env    map[string]string

	mu       sync.Mutex
	requests []proto.Message
	// answer returns what the server answers to a request.
	answer func(request proto.Message) (proto.Message, error)
}

// outcome is what a command left behind.
type outcome struct {
	code     int
	out, err string
}

func newHarness(t *testing.T, answer func(proto.Message) (proto.Message, error)) *harness {
	t.Helper()
	h := &harness{t: t, env: make(map[string]string), answer: answer}
	mux := http.NewServeMux()
	mux.Handle(belfryv1connect.NewQueueServiceHandler(&fakeQueues{h: h}))
	mux.Handle(belfryv1connect.NewAdminServiceHandler(&fakeAdmin{h: h}))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	h.url = server.URL
	ids := 0
	h.system = &system{
		in:        strings.NewReader(""),
		lookupEnv: func(name string) (string, bool) { value, ok := h.env[name]; return value, ok },
		environ: func() (all []string) {
			for name, value := range h.env {
				all = append(all, name+"="+value)
			}
			return all
		},
		size:      func() (int, int) { return 80, 24 },
		now:       func() time.Time { return now },
		requestID: func() string { ids++; return numberedID(ids - 1) },
		exit:      func(code int) { t.Errorf("the command ended the process with %d", code) },
	}
	return h
}

// run runs a command line against the fake server.
func (h *harness) run(args ...string) outcome {
	h.t.Helper()
	return h.runContext(h.t.Context(), args...)
}

func (h *harness) runContext(ctx context.Context, args ...string) outcome {
	h.t.Helper()
	var out, errOut bytes.Buffer
	h.system.out, h.system.err = &out, &errOut
	if _, ok := h.env["BELFRY_SERVER"]; !ok {
		h.env["BELFRY_SERVER"] = h.url
	}
	code := run(ctx, h.system, args)
	return outcome{code, out.String(), errOut.String()}
}

// sent returns the requests of one type in the order in which they came.
func sent[T proto.Message](h *harness) []T {
	h.mu.Lock()
	defer h.mu.Unlock()
	var found []T
	for _, request := range h.requests {
		if r, ok := request.(T); ok {
			found = append(found, r)
		}
	}
	return found
}

// always answers every request alike.
func always(response proto.Message) func(proto.Message) (proto.Message, error) {
	return func(proto.Message) (proto.Message, error) { return response, nil }
}

// refuse answers every request with an error as the server writes it.
func refuse(code connect.Code, reason, message string) func(proto.Message) (proto.Message, error) {
	return func(proto.Message) (proto.Message, error) { return nil, wireError(code, reason, message) }
}

func wireError(code connect.Code, reason, message string) error {
	err := connect.NewError(code, errors.New(message))
	detail, detailErr := connect.NewErrorDetail(&errdetails.ErrorInfo{Reason: reason, Domain: "belfry"})
	if detailErr != nil {
		return detailErr
	}
	err.AddDetail(detail)
	return err
}

// handle records a request and answers it.
func handle[T proto.Message](h *harness, request proto.Message) (T, error) {
	h.mu.Lock()
	h.requests = append(h.requests, proto.Clone(request))
	h.mu.Unlock()
	var none T
	response, err := h.answer(request)
	if err != nil {
		return none, err
	}
	typed, ok := response.(T)
	if !ok {
		return none, connect.NewError(connect.CodeInternal, errors.New("the test has no answer for this request"))
	}
	return typed, nil
}

type fakeQueues struct {
	belfryv1connect.UnimplementedQueueServiceHandler
	h *harness
}

func (f *fakeQueues) Put(_ context.Context, r *belfryv1.PutRequest) (*belfryv1.PutResponse, error) {
	return handle[*belfryv1.PutResponse](f.h, r)
}

func (f *fakeQueues) PutBatch(_ context.Context, r *belfryv1.PutBatchRequest) (*belfryv1.PutBatchResponse, error) {
	return handle[*belfryv1.PutBatchResponse](f.h, r)
}

func (f *fakeQueues) Reserve(_ context.Context, r *belfryv1.ReserveRequest) (*belfryv1.ReserveResponse, error) {
	return handle[*belfryv1.ReserveResponse](f.h, r)
}

func (f *fakeQueues) Ack(_ context.Context, r *belfryv1.AckRequest) (*belfryv1.AckResponse, error) {
	return handle[*belfryv1.AckResponse](f.h, r)
}

func (f *fakeQueues) AckBatch(_ context.Context, r *belfryv1.AckBatchRequest) (*belfryv1.AckBatchResponse, error) {
	return handle[*belfryv1.AckBatchResponse](f.h, r)
}

func (f *fakeQueues) Nack(_ context.Context, r *belfryv1.NackRequest) (*belfryv1.NackResponse, error) {
	return handle[*belfryv1.NackResponse](f.h, r)
}

func (f *fakeQueues) Release(_ context.Context, r *belfryv1.ReleaseRequest) (*belfryv1.ReleaseResponse, error) {
	return handle[*belfryv1.ReleaseResponse](f.h, r)
}

func (f *fakeQueues) Extend(_ context.Context, r *belfryv1.ExtendRequest) (*belfryv1.ExtendResponse, error) {
	return handle[*belfryv1.ExtendResponse](f.h, r)
}

func (f *fakeQueues) Cancel(_ context.Context, r *belfryv1.CancelRequest) (*belfryv1.CancelResponse, error) {
	return handle[*belfryv1.CancelResponse](f.h, r)
}

func (f *fakeQueues) Reschedule(_ context.Context, r *belfryv1.RescheduleRequest) (*belfryv1.RescheduleResponse, error) {
	return handle[*belfryv1.RescheduleResponse](f.h, r)
}

func (f *fakeQueues) Get(_ context.Context, r *belfryv1.GetRequest) (*belfryv1.GetResponse, error) {
	return handle[*belfryv1.GetResponse](f.h, r)
}

func (f *fakeQueues) List(_ context.Context, r *belfryv1.ListRequest) (*belfryv1.ListResponse, error) {
	return handle[*belfryv1.ListResponse](f.h, r)
}

func (f *fakeQueues) Redrive(_ context.Context, r *belfryv1.RedriveRequest) (*belfryv1.RedriveResponse, error) {
	return handle[*belfryv1.RedriveResponse](f.h, r)
}

type fakeAdmin struct {
	belfryv1connect.UnimplementedAdminServiceHandler
	h *harness
}

func (f *fakeAdmin) CreateQueue(_ context.Context, r *belfryv1.CreateQueueRequest) (*belfryv1.CreateQueueResponse, error) {
	return handle[*belfryv1.CreateQueueResponse](f.h, r)
}

func (f *fakeAdmin) ListQueues(_ context.Context, r *belfryv1.ListQueuesRequest) (*belfryv1.ListQueuesResponse, error) {
	return handle[*belfryv1.ListQueuesResponse](f.h, r)
}

func (f *fakeAdmin) GetQueue(_ context.Context, r *belfryv1.GetQueueRequest) (*belfryv1.GetQueueResponse, error) {
	return handle[*belfryv1.GetQueueResponse](f.h, r)
}

func (f *fakeAdmin) UpdateQueue(_ context.Context, r *belfryv1.UpdateQueueRequest) (*belfryv1.UpdateQueueResponse, error) {
	return handle[*belfryv1.UpdateQueueResponse](f.h, r)
}

func (f *fakeAdmin) PurgeQueue(_ context.Context, r *belfryv1.PurgeQueueRequest) (*belfryv1.PurgeQueueResponse, error) {
	return handle[*belfryv1.PurgeQueueResponse](f.h, r)
}

func (f *fakeAdmin) DeleteQueue(_ context.Context, r *belfryv1.DeleteQueueRequest) (*belfryv1.DeleteQueueResponse, error) {
	return handle[*belfryv1.DeleteQueueResponse](f.h, r)
}

func (f *fakeAdmin) GetCluster(_ context.Context, r *belfryv1.GetClusterRequest) (*belfryv1.GetClusterResponse, error) {
	return handle[*belfryv1.GetClusterResponse](f.h, r)
}

func (f *fakeAdmin) DrainNode(_ context.Context, r *belfryv1.DrainNodeRequest) (*belfryv1.DrainNodeResponse, error) {
	return handle[*belfryv1.DrainNodeResponse](f.h, r)
}

func (f *fakeAdmin) UpdateCluster(_ context.Context, r *belfryv1.UpdateClusterRequest) (*belfryv1.UpdateClusterResponse, error) {
	return handle[*belfryv1.UpdateClusterResponse](f.h, r)
}

func (f *fakeAdmin) SetNamespace(_ context.Context, r *belfryv1.SetNamespaceRequest) (*belfryv1.SetNamespaceResponse, error) {
	return handle[*belfryv1.SetNamespaceResponse](f.h, r)
}

func (f *fakeAdmin) GetNamespace(_ context.Context, r *belfryv1.GetNamespaceRequest) (*belfryv1.GetNamespaceResponse, error) {
	return handle[*belfryv1.GetNamespaceResponse](f.h, r)
}

func (f *fakeAdmin) ListNamespaces(_ context.Context, r *belfryv1.ListNamespacesRequest) (*belfryv1.ListNamespacesResponse, error) {
	return handle[*belfryv1.ListNamespacesResponse](f.h, r)
}

func (f *fakeAdmin) CreateToken(_ context.Context, r *belfryv1.CreateTokenRequest) (*belfryv1.CreateTokenResponse, error) {
	return handle[*belfryv1.CreateTokenResponse](f.h, r)
}

func (f *fakeAdmin) ListTokens(_ context.Context, r *belfryv1.ListTokensRequest) (*belfryv1.ListTokensResponse, error) {
	return handle[*belfryv1.ListTokensResponse](f.h, r)
}

func (f *fakeAdmin) DeleteToken(_ context.Context, r *belfryv1.DeleteTokenRequest) (*belfryv1.DeleteTokenResponse, error) {
	return handle[*belfryv1.DeleteTokenResponse](f.h, r)
}

func (f *fakeAdmin) DeleteNamespace(_ context.Context, r *belfryv1.DeleteNamespaceRequest) (*belfryv1.DeleteNamespaceResponse, error) {
	return handle[*belfryv1.DeleteNamespaceResponse](f.h, r)
}

func (f *fakeAdmin) RemoveNode(_ context.Context, r *belfryv1.RemoveNodeRequest) (*belfryv1.RemoveNodeResponse, error) {
	return handle[*belfryv1.RemoveNodeResponse](f.h, r)
}

func (f *fakeAdmin) TransferLeader(_ context.Context, r *belfryv1.TransferLeaderRequest) (*belfryv1.TransferLeaderResponse, error) {
	return handle[*belfryv1.TransferLeaderResponse](f.h, r)
}

func (f *fakeAdmin) ResetClock(_ context.Context, r *belfryv1.ResetClockRequest) (*belfryv1.ResetClockResponse, error) {
	return handle[*belfryv1.ResetClockResponse](f.h, r)
}

// at returns the time so long after now.
func at(d time.Duration) *timestamppb.Timestamp { return timestamppb.New(now.Add(d)) }

// in returns a duration as the wire has it.
func in(d time.Duration) *durationpb.Duration { return durationpb.New(d) }
