// Package clitest runs commands against a fake server, in the process of a test.
package clitest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
	"github.com/spf13/cobra"
)

// Now is the time of every command that a test runs without a process.
var Now = time.Date(2030, 1, 31, 9, 0, 0, 0, time.UTC) //nolint:gochecknoglobals // never changes

// FirstRequestID is the first request id that a harness makes; RequestID gives them all.
const FirstRequestID = "018dcb2a-4f00-7000-8000-000000000000"

// RequestID returns the n-th request id that a harness makes, from 0.
func RequestID(n int) string { return fmt.Sprintf("018dcb2a-4f00-7000-8000-%012d", n) }

// Harness runs commands against a fake server and remembers what the server was sent.
type Harness struct {
	t        *testing.T
	carryOut RunFunc
	// URL is where the fake server answers. System is the process that commands see. Env has the
	// variables of its environment.
	URL    string
	System *cli.System
	Env    map[string]string

	mu sync.Mutex
	// Requests are what the server was sent, in that order.
	Requests []proto.Message
	// Answer returns what the server answers to a request.
	Answer func(request proto.Message) (proto.Message, error)
}

// Outcome is what a command left behind.
type Outcome struct {
	Code     int
	Out, Err string
}

// Holds checks an outcome's code, and the words in what was printed; nothing may have been said
// beside them.
func (o Outcome) Holds(t *testing.T, code int, words ...string) {
	t.Helper()
	if o.Code != code || (code == 0) != (o.Err == "") {
		t.Errorf("exit code %d, want %d; it said %q and printed %q", o.Code, code, o.Err, o.Out)
	}
	for _, word := range words {
		if !strings.Contains(o.Out+o.Err, word) {
			t.Errorf("%q lacks %q", o.Out+o.Err, word)
		}
	}
}

// Left returns an outcome.
func Left(code int, out, err string) Outcome { return Outcome{Code: code, Out: out, Err: err} }

// RunFunc carries out a command line and returns its exit code.
type RunFunc func(ctx context.Context, sys *cli.System, args []string) int

// Commands returns what carries out command lines of a tree that has some commands only.
func Commands(commands ...func(*cli.App) []*cobra.Command) RunFunc {
	return func(ctx context.Context, sys *cli.System, args []string) int {
		a := cli.New(sys)
		all := cli.Group{ID: "all", Title: "All:"}
		for _, f := range commands {
			all.Commands = append(all.Commands, f(a)...)
		}
		return a.Run(ctx, a.Root(all), args)
	}
}

// New returns a harness whose commands are carried out by run, with a server that answers so.
func New(t *testing.T, run RunFunc, answer func(proto.Message) (proto.Message, error)) *Harness {
	t.Helper()
	h := &Harness{t: t, carryOut: run, Env: make(map[string]string), Answer: answer}
	mux := http.NewServeMux()
	mux.Handle(belfryv1connect.NewQueueServiceHandler(&fakeQueues{h: h}))
	mux.Handle(belfryv1connect.NewAdminServiceHandler(&fakeAdmin{h: h}))
	mux.Handle(belfryv1connect.NewScheduleServiceHandler(&fakeSchedules{h: h}))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	h.URL = server.URL
	ids := 0
	h.System = &cli.System{
		In:        strings.NewReader(""),
		LookupEnv: func(name string) (string, bool) { value, ok := h.Env[name]; return value, ok },
		Environ: func() (all []string) {
			for name, value := range h.Env {
				all = append(all, name+"="+value)
			}
			return all
		},
		Size:      func() (int, int) { return 80, 24 },
		Now:       func() time.Time { return Now },
		RequestID: func() string { ids++; return RequestID(ids - 1) },
		Exit:      func(code int) { t.Errorf("the command ended the process with %d", code) },
	}
	return h
}

// Run runs a command line against the fake server.
func (h *Harness) Run(args ...string) Outcome {
	h.t.Helper()
	return h.RunContext(h.t.Context(), args...)
}

// RunContext is Run with a context that ends when the command shall stop.
func (h *Harness) RunContext(ctx context.Context, args ...string) Outcome {
	h.t.Helper()
	var out, errOut bytes.Buffer
	h.System.Out, h.System.Err = &out, &errOut
	if _, ok := h.Env["BELFRY_SERVER"]; !ok {
		h.Env["BELFRY_SERVER"] = h.URL
	}
	code := h.carryOut(ctx, h.System, args)
	return Left(code, out.String(), errOut.String())
}

// Sent returns the requests of one type in the order in which they came.
func Sent[T proto.Message](h *Harness) []T {
	h.mu.Lock()
	defer h.mu.Unlock()
	var found []T
	for _, request := range h.Requests {
		if r, ok := request.(T); ok {
			found = append(found, r)
		}
	}
	return found
}

// Always answers every request alike.
func Always(response proto.Message) func(proto.Message) (proto.Message, error) {
	return func(proto.Message) (proto.Message, error) { return response, nil }
}

// Refuse answers every request with an error as the server writes it.
func Refuse(code connect.Code, reason, message string) func(proto.Message) (proto.Message, error) {
	return func(proto.Message) (proto.Message, error) { return nil, WireError(code, reason, message) }
}

// WireError returns an error as a server sends it.
func WireError(code connect.Code, reason, message string) error {
	err := connect.NewError(code, errors.New(message))
	detail, detailErr := connect.NewErrorDetail(&errdetails.ErrorInfo{Reason: reason, Domain: "belfry"})
	if detailErr != nil {
		return detailErr
	}
	err.AddDetail(detail)
	return err
}

// InvalidField returns the refusal of a field, as a server sends it.
func InvalidField(field, message string) error {
	err := connect.NewError(connect.CodeInvalidArgument, errors.New(message))
	detail, detailErr := connect.NewErrorDetail(&errdetails.ErrorInfo{
		Reason: "INVALID", Domain: "belfry", Metadata: map[string]string{"field": field},
	})
	if detailErr != nil {
		return detailErr
	}
	err.AddDetail(detail)
	return err
}

// handle records a request and answers it.
func handle[T proto.Message](h *Harness, request proto.Message) (T, error) {
	h.mu.Lock()
	h.Requests = append(h.Requests, proto.Clone(request))
	h.mu.Unlock()
	var none T
	response, err := h.Answer(request)
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
	h *Harness
}

// Put implements the handler of QueueService.
func (f *fakeQueues) Put(_ context.Context, r *belfryv1.PutRequest) (*belfryv1.PutResponse, error) {
	return handle[*belfryv1.PutResponse](f.h, r)
}

// PutBatch implements the handler of QueueService.
func (f *fakeQueues) PutBatch(_ context.Context, r *belfryv1.PutBatchRequest) (*belfryv1.PutBatchResponse, error) {
	return handle[*belfryv1.PutBatchResponse](f.h, r)
}

// Reserve implements the handler of QueueService.
func (f *fakeQueues) Reserve(_ context.Context, r *belfryv1.ReserveRequest) (*belfryv1.ReserveResponse, error) {
	return handle[*belfryv1.ReserveResponse](f.h, r)
}

// Ack implements the handler of QueueService.
func (f *fakeQueues) Ack(_ context.Context, r *belfryv1.AckRequest) (*belfryv1.AckResponse, error) {
	return handle[*belfryv1.AckResponse](f.h, r)
}

// AckBatch implements the handler of QueueService.
func (f *fakeQueues) AckBatch(_ context.Context, r *belfryv1.AckBatchRequest) (*belfryv1.AckBatchResponse, error) {
	return handle[*belfryv1.AckBatchResponse](f.h, r)
}

// Nack implements the handler of QueueService.
func (f *fakeQueues) Nack(_ context.Context, r *belfryv1.NackRequest) (*belfryv1.NackResponse, error) {
	return handle[*belfryv1.NackResponse](f.h, r)
}

// Release implements the handler of QueueService.
func (f *fakeQueues) Release(_ context.Context, r *belfryv1.ReleaseRequest) (*belfryv1.ReleaseResponse, error) {
	return handle[*belfryv1.ReleaseResponse](f.h, r)
}

// Extend implements the handler of QueueService.
func (f *fakeQueues) Extend(_ context.Context, r *belfryv1.ExtendRequest) (*belfryv1.ExtendResponse, error) {
	return handle[*belfryv1.ExtendResponse](f.h, r)
}

// Cancel implements the handler of QueueService.
func (f *fakeQueues) Cancel(_ context.Context, r *belfryv1.CancelRequest) (*belfryv1.CancelResponse, error) {
	return handle[*belfryv1.CancelResponse](f.h, r)
}

// Reschedule implements the handler of QueueService.
func (f *fakeQueues) Reschedule(_ context.Context,
	r *belfryv1.RescheduleRequest) (*belfryv1.RescheduleResponse, error) {
	return handle[*belfryv1.RescheduleResponse](f.h, r)
}

// Get implements the handler of QueueService.
func (f *fakeQueues) Get(_ context.Context, r *belfryv1.GetRequest) (*belfryv1.GetResponse, error) {
	return handle[*belfryv1.GetResponse](f.h, r)
}

// List implements the handler of QueueService.
func (f *fakeQueues) List(_ context.Context, r *belfryv1.ListRequest) (*belfryv1.ListResponse, error) {
	return handle[*belfryv1.ListResponse](f.h, r)
}

// Redrive implements the handler of QueueService.
func (f *fakeQueues) Redrive(_ context.Context, r *belfryv1.RedriveRequest) (*belfryv1.RedriveResponse, error) {
	return handle[*belfryv1.RedriveResponse](f.h, r)
}

type fakeAdmin struct {
	belfryv1connect.UnimplementedAdminServiceHandler
	h *Harness
}

// CreateQueue implements the handler of AdminService.
func (f *fakeAdmin) CreateQueue(_ context.Context,
	r *belfryv1.CreateQueueRequest) (*belfryv1.CreateQueueResponse, error) {
	return handle[*belfryv1.CreateQueueResponse](f.h, r)
}

// ListQueues implements the handler of AdminService.
func (f *fakeAdmin) ListQueues(_ context.Context, r *belfryv1.ListQueuesRequest) (*belfryv1.ListQueuesResponse, error) {
	return handle[*belfryv1.ListQueuesResponse](f.h, r)
}

// GetQueue implements the handler of AdminService.
func (f *fakeAdmin) GetQueue(_ context.Context, r *belfryv1.GetQueueRequest) (*belfryv1.GetQueueResponse, error) {
	return handle[*belfryv1.GetQueueResponse](f.h, r)
}

// UpdateQueue implements the handler of AdminService.
func (f *fakeAdmin) UpdateQueue(_ context.Context,
	r *belfryv1.UpdateQueueRequest) (*belfryv1.UpdateQueueResponse, error) {
	return handle[*belfryv1.UpdateQueueResponse](f.h, r)
}

// PurgeQueue implements the handler of AdminService.
func (f *fakeAdmin) PurgeQueue(_ context.Context, r *belfryv1.PurgeQueueRequest) (*belfryv1.PurgeQueueResponse, error) {
	return handle[*belfryv1.PurgeQueueResponse](f.h, r)
}

// DeleteQueue implements the handler of AdminService.
func (f *fakeAdmin) DeleteQueue(_ context.Context,
	r *belfryv1.DeleteQueueRequest) (*belfryv1.DeleteQueueResponse, error) {
	return handle[*belfryv1.DeleteQueueResponse](f.h, r)
}

// GetCluster implements the handler of AdminService.
func (f *fakeAdmin) GetCluster(_ context.Context, r *belfryv1.GetClusterRequest) (*belfryv1.GetClusterResponse, error) {
	return handle[*belfryv1.GetClusterResponse](f.h, r)
}

// DrainNode implements the handler of AdminService.
func (f *fakeAdmin) DrainNode(_ context.Context, r *belfryv1.DrainNodeRequest) (*belfryv1.DrainNodeResponse, error) {
	return handle[*belfryv1.DrainNodeResponse](f.h, r)
}

// UpdateCluster implements the handler of AdminService.
func (f *fakeAdmin) UpdateCluster(_ context.Context,
	r *belfryv1.UpdateClusterRequest) (*belfryv1.UpdateClusterResponse, error) {
	return handle[*belfryv1.UpdateClusterResponse](f.h, r)
}

// SetNamespace implements the handler of AdminService.
func (f *fakeAdmin) SetNamespace(_ context.Context,
	r *belfryv1.SetNamespaceRequest) (*belfryv1.SetNamespaceResponse, error) {
	return handle[*belfryv1.SetNamespaceResponse](f.h, r)
}

// GetNamespace implements the handler of AdminService.
func (f *fakeAdmin) GetNamespace(_ context.Context,
	r *belfryv1.GetNamespaceRequest) (*belfryv1.GetNamespaceResponse, error) {
	return handle[*belfryv1.GetNamespaceResponse](f.h, r)
}

// ListNamespaces implements the handler of AdminService.
func (f *fakeAdmin) ListNamespaces(_ context.Context,
	r *belfryv1.ListNamespacesRequest) (*belfryv1.ListNamespacesResponse, error) {
	return handle[*belfryv1.ListNamespacesResponse](f.h, r)
}

// CreateToken implements the handler of AdminService.
func (f *fakeAdmin) CreateToken(_ context.Context,
	r *belfryv1.CreateTokenRequest) (*belfryv1.CreateTokenResponse, error) {
	return handle[*belfryv1.CreateTokenResponse](f.h, r)
}

// ListTokens implements the handler of AdminService.
func (f *fakeAdmin) ListTokens(_ context.Context, r *belfryv1.ListTokensRequest) (*belfryv1.ListTokensResponse, error) {
	return handle[*belfryv1.ListTokensResponse](f.h, r)
}

// ListAudit implements the handler of AdminService.
func (f *fakeAdmin) ListAudit(_ context.Context, r *belfryv1.ListAuditRequest) (*belfryv1.ListAuditResponse, error) {
	return handle[*belfryv1.ListAuditResponse](f.h, r)
}

// StartTask implements the handler of AdminService.
func (f *fakeAdmin) StartTask(_ context.Context, r *belfryv1.StartTaskRequest) (*belfryv1.StartTaskResponse, error) {
	return handle[*belfryv1.StartTaskResponse](f.h, r)
}

// GetTask implements the handler of AdminService.
func (f *fakeAdmin) GetTask(_ context.Context, r *belfryv1.GetTaskRequest) (*belfryv1.GetTaskResponse, error) {
	return handle[*belfryv1.GetTaskResponse](f.h, r)
}

// ListTasks implements the handler of AdminService.
func (f *fakeAdmin) ListTasks(_ context.Context, r *belfryv1.ListTasksRequest) (*belfryv1.ListTasksResponse, error) {
	return handle[*belfryv1.ListTasksResponse](f.h, r)
}

// StopTask implements the handler of AdminService.
func (f *fakeAdmin) StopTask(_ context.Context, r *belfryv1.StopTaskRequest) (*belfryv1.StopTaskResponse, error) {
	return handle[*belfryv1.StopTaskResponse](f.h, r)
}

// ReleaseLeases implements the handler of AdminService.
func (f *fakeAdmin) ReleaseLeases(_ context.Context,
	r *belfryv1.ReleaseLeasesRequest) (*belfryv1.ReleaseLeasesResponse, error) {
	return handle[*belfryv1.ReleaseLeasesResponse](f.h, r)
}

// ListKeys implements the handler of AdminService.
func (f *fakeAdmin) ListKeys(_ context.Context,
	r *belfryv1.ListKeysRequest) (*belfryv1.ListKeysResponse, error) {
	return handle[*belfryv1.ListKeysResponse](f.h, r)
}

// PauseKey implements the handler of AdminService.
func (f *fakeAdmin) PauseKey(_ context.Context,
	r *belfryv1.PauseKeyRequest) (*belfryv1.PauseKeyResponse, error) {
	return handle[*belfryv1.PauseKeyResponse](f.h, r)
}

// ResumeKey implements the handler of AdminService.
func (f *fakeAdmin) ResumeKey(_ context.Context,
	r *belfryv1.ResumeKeyRequest) (*belfryv1.ResumeKeyResponse, error) {
	return handle[*belfryv1.ResumeKeyResponse](f.h, r)
}

// PurgeKey implements the handler of AdminService.
func (f *fakeAdmin) PurgeKey(_ context.Context,
	r *belfryv1.PurgeKeyRequest) (*belfryv1.PurgeKeyResponse, error) {
	return handle[*belfryv1.PurgeKeyResponse](f.h, r)
}

// DeleteToken implements the handler of AdminService.
func (f *fakeAdmin) DeleteToken(_ context.Context,
	r *belfryv1.DeleteTokenRequest) (*belfryv1.DeleteTokenResponse, error) {
	return handle[*belfryv1.DeleteTokenResponse](f.h, r)
}

// DeleteNamespace implements the handler of AdminService.
func (f *fakeAdmin) DeleteNamespace(_ context.Context,
	r *belfryv1.DeleteNamespaceRequest) (*belfryv1.DeleteNamespaceResponse, error) {
	return handle[*belfryv1.DeleteNamespaceResponse](f.h, r)
}

// RemoveNode implements the handler of AdminService.
func (f *fakeAdmin) RemoveNode(_ context.Context, r *belfryv1.RemoveNodeRequest) (*belfryv1.RemoveNodeResponse, error) {
	return handle[*belfryv1.RemoveNodeResponse](f.h, r)
}

// TransferLeader implements the handler of AdminService.
func (f *fakeAdmin) TransferLeader(_ context.Context,
	r *belfryv1.TransferLeaderRequest) (*belfryv1.TransferLeaderResponse, error) {
	return handle[*belfryv1.TransferLeaderResponse](f.h, r)
}

// ResetClock implements the handler of AdminService.
func (f *fakeAdmin) ResetClock(_ context.Context, r *belfryv1.ResetClockRequest) (*belfryv1.ResetClockResponse, error) {
	return handle[*belfryv1.ResetClockResponse](f.h, r)
}

// At returns the time so long after now.
func At(d time.Duration) *timestamppb.Timestamp { return timestamppb.New(Now.Add(d)) }

// In returns a duration as the wire has it.
func In(d time.Duration) *durationpb.Duration { return durationpb.New(d) }

// WriteFile makes a file of a test.
func WriteFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
