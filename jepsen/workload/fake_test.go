package workload

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/jepsen/history"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
)

// fakeNode is one server of a fake cluster.
type fakeNode struct {
	belfryv1connect.UnimplementedQueueServiceHandler
	belfryv1connect.UnimplementedAdminServiceHandler
	name    string
	cluster *fake
}

// fake is a cluster of servers with one store of jobs, as little of it as the tests need.
type fake struct {
	names   []string
	urls    map[string]string
	history *history.History
	// answer, if it is not nil, decides what a put is answered.
	answer func(context.Context, *belfryv1.PutRequest) (*belfryv1.PutResponse, error)
	// refuses is a node that reserves nothing; told hears which node is asked for jobs, or given a
	// batch of them.
	refuses string
	told    func(node string)
	// attempt is which one of a job it is that is handed out.
	attempt uint32
	// shards is how many shards a batch reaches.
	shards uint32
	// tasks are those that were started, and end at once.
	tasks []*belfryv1.Task

	mu    sync.Mutex
	jobs  []string
	taken map[string]int
	calls int
}

// newFake starts nodes that speak HTTP/1.1 and HTTP/2.
func newFake(t *testing.T, names ...string) *fake {
	f := &fake{names: names, urls: map[string]string{}, history: history.New(), taken: map[string]int{}}
	for _, name := range names {
		n := &fakeNode{name: name, cluster: f}
		mux := http.NewServeMux()
		mux.Handle(belfryv1connect.NewQueueServiceHandler(n))
		mux.Handle(belfryv1connect.NewAdminServiceHandler(n))
		server := httptest.NewUnstartedServer(mux)
		server.Config.Protocols = new(http.Protocols)
		server.Config.Protocols.SetHTTP1(true)
		server.Config.Protocols.SetUnencryptedHTTP2(true)
		server.Start()
		t.Cleanup(server.Close)
		f.urls[name] = server.URL
	}
	return f
}

func (f *fake) target() Target {
	return Target{History: f.history, Nodes: func() []string { return f.names },
		URL: func(_, node string) (string, error) {
			if url, ok := f.urls[node]; ok {
				return url, nil
			}
			return "", fmt.Errorf("there is no node %s", node)
		}}
}

func (n *fakeNode) Put(ctx context.Context, r *belfryv1.PutRequest) (*belfryv1.PutResponse, error) {
	n.cluster.mu.Lock()
	n.cluster.calls++
	n.cluster.mu.Unlock()
	return n.cluster.answer(ctx, r)
}

func (n *fakeNode) PutBatch(_ context.Context, r *belfryv1.PutBatchRequest) (*belfryv1.PutBatchResponse, error) {
	f := n.cluster
	f.note(n.name)
	f.mu.Lock()
	defer f.mu.Unlock()
	answer := &belfryv1.PutBatchResponse{}
	for i := range r.GetJobs() {
		f.calls++
		f.jobs = append(f.jobs, fmt.Sprint("lease-", f.calls))
		put := &belfryv1.PutResponse{Created: true, Witness: &belfryv1.Witness{Shard: uint32(i) % f.shards}}
		answer.Results = append(answer.Results, &belfryv1.PutBatchResult{Result: &belfryv1.PutBatchResult_Put{Put: put}})
	}
	return answer, nil
}

func (n *fakeNode) Reserve(_ context.Context, r *belfryv1.ReserveRequest) (*belfryv1.ReserveResponse, error) {
	f := n.cluster
	f.note(n.name)
	if n.name == f.refuses {
		return nil, connect.NewError(connect.CodeUnavailable, context.Canceled)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	answer := &belfryv1.ReserveResponse{}
	for _, lease := range f.jobs[:min(len(f.jobs), int(max(1, r.GetMaxJobs())))] {
		answer.Jobs = append(answer.Jobs, &belfryv1.Job{Lease: lease, Attempt: f.attempt})
		f.taken[n.name]++
	}
	return answer, nil
}

func (n *fakeNode) end(leases ...string) {
	n.cluster.mu.Lock()
	defer n.cluster.mu.Unlock()
	n.cluster.jobs = slices.DeleteFunc(n.cluster.jobs, func(lease string) bool { return slices.Contains(leases, lease) })
}

func (n *fakeNode) Ack(_ context.Context, r *belfryv1.AckRequest) (*belfryv1.AckResponse, error) {
	n.end(r.GetLease())
	return &belfryv1.AckResponse{}, nil
}

func (n *fakeNode) AckBatch(_ context.Context, r *belfryv1.AckBatchRequest) (*belfryv1.AckBatchResponse, error) {
	n.end(r.GetLeases()...)
	return &belfryv1.AckBatchResponse{}, nil
}

func (n *fakeNode) UpdateQueue(context.Context, *belfryv1.UpdateQueueRequest) (*belfryv1.UpdateQueueResponse, error) {
	return &belfryv1.UpdateQueueResponse{}, nil
}

func (n *fakeNode) GetQueue(context.Context, *belfryv1.GetQueueRequest) (*belfryv1.GetQueueResponse, error) {
	n.cluster.mu.Lock()
	defer n.cluster.mu.Unlock()
	return &belfryv1.GetQueueResponse{Queue: &belfryv1.Queue{
		Counts: &belfryv1.JobCounts{Ready: uint32(len(n.cluster.jobs))}}}, nil
}

func (n *fakeNode) List(context.Context, *belfryv1.ListRequest) (*belfryv1.ListResponse, error) {
	return &belfryv1.ListResponse{}, nil
}

func (n *fakeNode) GetCluster(context.Context, *belfryv1.GetClusterRequest) (*belfryv1.GetClusterResponse, error) {
	return &belfryv1.GetClusterResponse{Problems: []string{"said by " + n.name}}, nil
}

func (n *fakeNode) StartTask(_ context.Context, r *belfryv1.StartTaskRequest) (*belfryv1.StartTaskResponse, error) {
	f := n.cluster
	f.mu.Lock()
	defer f.mu.Unlock()
	t := &belfryv1.Task{Id: r.GetRequestId(), Queue: r.GetQueue(), Act: r.GetAct(), EndedAt: timestamppb.Now()}
	f.tasks = append(f.tasks, t)
	return &belfryv1.StartTaskResponse{Task: t}, nil
}

func (n *fakeNode) GetTask(_ context.Context, r *belfryv1.GetTaskRequest) (*belfryv1.GetTaskResponse, error) {
	n.cluster.mu.Lock()
	defer n.cluster.mu.Unlock()
	for _, t := range n.cluster.tasks {
		if t.GetId() == r.GetId() {
			return &belfryv1.GetTaskResponse{Task: t}, nil
		}
	}
	return nil, connect.NewError(connect.CodeInvalidArgument, context.Canceled)
}

func (n *fakeNode) ListTasks(context.Context, *belfryv1.ListTasksRequest) (*belfryv1.ListTasksResponse, error) {
	n.cluster.note(n.name)
	n.cluster.mu.Lock()
	defer n.cluster.mu.Unlock()
	return &belfryv1.ListTasksResponse{Tasks: n.cluster.tasks}, nil
}

func (f *fake) note(node string) {
	if f.told != nil {
		f.told(node)
	}
}

// endAfter returns a context that ends when a node was asked n times.
func (f *fake) endAfter(t *testing.T, node string, n int64) context.Context {
	ctx, end := context.WithCancel(t.Context())
	t.Cleanup(end)
	var asked atomic.Int64
	f.told = func(name string) {
		if name == node && asked.Add(1) == n {
			end()
		}
	}
	return ctx
}

// refusal is an error as servers make it.
func refusal(t *testing.T, info *errdetails.ErrorInfo) error {
	t.Helper()
	err := connect.NewError(connect.CodeFailedPrecondition, context.Canceled)
	detail, detailErr := connect.NewErrorDetail(info)
	if detailErr != nil {
		t.Error(detailErr)
		return err
	}
	err.AddDetail(detail)
	return err
}
