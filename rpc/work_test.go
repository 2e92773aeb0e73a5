package rpc

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
	"github.com/belfrydb/belfry/rpc/codec"
	"github.com/belfrydb/belfry/rpc/fault"
)

// workClient is the client's side of a Work stream in a test.
type workClient struct {
	t      *testing.T
	stream *connect.BidiStreamForClientSimple[belfryv1.WorkRequest, belfryv1.WorkResponse]
}

// work opens a stream and grants credits.
func (s *served) work(c belfryv1connect.QueueServiceClient, credits uint32, queues ...string) *workClient {
	s.t.Helper()
	stream, err := c.Work(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	w := &workClient{t: s.t, stream: stream}
	w.send(&belfryv1.WorkRequest{Credits: &belfryv1.Credits{
		Queues: queues, Credits: credits, Ttr: durationpb.New(time.Minute),
	}})
	return w
}

func (w *workClient) send(req *belfryv1.WorkRequest) {
	w.t.Helper()
	if err := w.stream.Send(req); err != nil && !errors.Is(err, io.EOF) {
		w.t.Fatal(err)
	}
}

func (w *workClient) receive() *belfryv1.WorkResponse {
	w.t.Helper()
	res, err := w.stream.Receive()
	if err != nil {
		w.t.Fatal(err)
	}
	return res
}

// end closes the stream in good order and returns what it ended with.
func (w *workClient) end() error {
	w.t.Helper()
	if err := w.stream.CloseRequest(); err != nil {
		w.t.Fatal(err)
	}
	for {
		if _, err := w.stream.Receive(); err != nil {
			if errors.Is(err, io.EOF) {
				return w.stream.CloseResponse()
			}
			return err
		}
	}
}

// workClients returns the clients whose protocol can carry a bidirectional stream.
func (s *served) workClients() map[string]belfryv1connect.QueueServiceClient {
	two := h2c(s.t)
	return map[string]belfryv1connect.QueueServiceClient{
		"Connect":      belfryv1connect.NewQueueServiceClient(two, s.url),
		"Connect JSON": belfryv1connect.NewQueueServiceClient(two, s.url, connect.WithCodec(codec.JSON())),
		"gRPC":         belfryv1connect.NewQueueServiceClient(two, s.url, connect.WithGRPC()),
		"gRPC-Web":     belfryv1connect.NewQueueServiceClient(two, s.url, connect.WithGRPCWeb()),
	}
}

// TestWork goes through credits, jobs and every action.
func TestWork(t *testing.T) {
	s := serve(t)
	for name, c := range s.workClients() {
		t.Run(name, func(t *testing.T) {
			s.t = t
			queue := "work:" + strconv.Itoa(len(name))
			put := func(n int) {
				t.Helper()
				for range n {
					if _, err := c.Put(t.Context(), &belfryv1.PutRequest{
						Queue: queue, Body: &belfryv1.PutRequest_Text{Text: "x"},
					}); err != nil {
						t.Fatal(err)
					}
				}
			}
			put(5)
			w := s.work(c, 4, queue)
			var jobs []*belfryv1.Job
			for len(jobs) < 4 {
				jobs = append(jobs, w.receive().GetJobs()...)
			}
			if len(jobs) != 4 {
				t.Fatalf("%d jobs for 4 credits", len(jobs))
			}
			w.send(&belfryv1.WorkRequest{
				Acks:  []*belfryv1.AckRequest{{Lease: jobs[0].GetLease()}, {Lease: "junk"}},
				Nacks: []*belfryv1.NackRequest{{Lease: jobs[1].GetLease(), Delay: durationpb.New(time.Hour)}},
				Releases: []*belfryv1.ReleaseRequest{{
					Lease: jobs[2].GetLease(), Delay: durationpb.New(time.Hour), RequestId: "r-" + strconv.Itoa(len(name)),
				}},
				Extends: []*belfryv1.ExtendRequest{{Lease: jobs[3].GetLease(), Ttr: durationpb.New(time.Hour)}},
			})
			results := map[string]*belfryv1.WorkResult{}
			for len(results) < 5 {
				for _, r := range w.receive().GetResults() {
					results[r.GetLease()] = r
				}
			}
			if results[jobs[0].GetLease()].GetAck() == nil ||
				results["junk"].GetError().GetReason() != belfryv1.Reason_REASON_INVALID ||
				results[jobs[1].GetLease()].GetNack().GetState() != belfryv1.JobState_JOB_STATE_DELAYED ||
				results[jobs[2].GetLease()].GetRelease().GetState() != belfryv1.JobState_JOB_STATE_DELAYED ||
				results[jobs[3].GetLease()].GetExtend().GetLeaseUntil() == nil {
				t.Errorf("%v", results)
			}
			w.send(&belfryv1.WorkRequest{Credits: &belfryv1.Credits{Credits: 2}})
			if more := w.receive().GetJobs(); len(more) != 1 {
				t.Errorf("%d jobs of 1", len(more))
			}
			put(1)
			if pushed := w.receive().GetJobs(); len(pushed) != 1 || pushed[0].GetAttempt() != 1 {
				t.Errorf("pushed: %v", pushed)
			}
			if err := w.end(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestWorkOrderOnOneLease: what is sent for one lease happens in that order.
func TestWorkOrderOnOneLease(t *testing.T) {
	s := serve(t)
	c := belfryv1connect.NewQueueServiceClient(h2c(t), s.url)
	if _, err := c.Put(t.Context(), &belfryv1.PutRequest{Queue: "a"}); err != nil {
		t.Fatal(err)
	}
	w := s.work(c, 1, "a")
	lease := w.receive().GetJobs()[0].GetLease()
	for i := range 50 {
		w.send(&belfryv1.WorkRequest{Extends: []*belfryv1.ExtendRequest{{
			Lease: lease, Ttr: durationpb.New(time.Duration(i+2) * time.Minute),
		}}})
	}
	w.send(&belfryv1.WorkRequest{Acks: []*belfryv1.AckRequest{{Lease: lease}}})
	var last time.Time
	for n := 0; n < 51; {
		for _, r := range w.receive().GetResults() {
			n++
			if r.GetError() != nil {
				t.Fatalf("result %d: %v", n, r)
			}
			if until := r.GetExtend().GetLeaseUntil(); until != nil {
				if until.AsTime().Before(last) {
					t.Errorf("result %d is out of order", n)
				}
				last = until.AsTime()
			}
		}
	}
	if err := w.end(); err != nil {
		t.Error(err)
	}
}

func TestWorkRefusals(t *testing.T) {
	s := serve(t)
	for name, c := range s.workClients() {
		for want, credits := range map[string]*belfryv1.Credits{
			"credits.queues":    {Credits: 1},
			"credits.queues[0]": {Queues: []string{"bad queue"}, Credits: 1},
			"credits.credits":   {Queues: []string{"a"}, Credits: 10_001},
			"credits.ttr":       {Queues: []string{"a"}, Ttr: durationpb.New(-1)},
		} {
			stream, err := c.Work(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := stream.Send(&belfryv1.WorkRequest{Credits: credits}); err != nil {
				t.Fatal(err)
			}
			_, err = stream.Receive()
			if f, ok := fault.FromConnect(err); !ok || f.Reason != belfryv1.Reason_REASON_INVALID || f.Field != want {
				t.Errorf("%s, %s: %v", name, want, err)
			}
			// The stream is over already.
			_ = stream.CloseRequest()
			_ = stream.CloseResponse()
		}
	}
}

// TestWorkClientThatLeaves: a client that vanishes ends its polls; nothing is granted to it any
// more.
func TestWorkClientThatLeaves(t *testing.T) {
	s := serve(t)
	c := belfryv1connect.NewQueueServiceClient(h2c(t), s.url)
	ctx, leave := context.WithCancel(t.Context())
	stream, err := c.Work(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&belfryv1.WorkRequest{Credits: &belfryv1.Credits{
		Queues: []string{"a"}, Credits: 10,
	}}); err != nil {
		t.Fatal(err)
	}
	s.await("a parked poll", func() bool { return s.node.ParkedPolls() == 1 })
	leave()
	s.await("no parked poll", func() bool { return s.node.ParkedPolls() == 0 })
	if _, err := c.Put(t.Context(), &belfryv1.PutRequest{Queue: "a"}); err != nil {
		t.Fatal(err)
	}
	res, err := c.Reserve(t.Context(), &belfryv1.ReserveRequest{Queues: []string{"a"}})
	if err != nil || len(res.GetJobs()) != 1 || res.GetJobs()[0].GetAttempt() != 1 {
		t.Errorf("%v, %v", res, err)
	}
}

// TestWorkOtherQueues: naming other queues ends the poll for the first ones.
func TestWorkOtherQueues(t *testing.T) {
	s := serve(t)
	c := belfryv1connect.NewQueueServiceClient(h2c(t), s.url)
	w := s.work(c, 1, "a")
	s.await("a parked poll", func() bool { return s.node.ParkedPolls() == 1 })
	w.send(&belfryv1.WorkRequest{Credits: &belfryv1.Credits{Queues: []string{"b"}}})
	if _, err := c.Put(t.Context(), &belfryv1.PutRequest{Queue: "b"}); err != nil {
		t.Fatal(err)
	}
	if jobs := w.receive().GetJobs(); len(jobs) != 1 || jobs[0].GetQueue() != "b" {
		t.Errorf("%v", jobs)
	}
	if err := w.end(); err != nil {
		t.Error(err)
	}
}

// TestWorkDrain: a stream is told that the server stops, and its last acks are taken.
func TestWorkDrain(t *testing.T) {
	s := serve(t)
	c := belfryv1connect.NewQueueServiceClient(h2c(t), s.url)
	if _, err := c.Put(t.Context(), &belfryv1.PutRequest{Queue: "a"}); err != nil {
		t.Fatal(err)
	}
	w := s.work(c, 2, "a")
	lease := w.receive().GetJobs()[0].GetLease()
	s.await("a parked poll", func() bool { return s.node.ParkedPolls() == 1 })
	stopped := make(chan error, 1)
	go func() { stopped <- s.server.Shutdown(context.WithoutCancel(t.Context())) }()
	if !w.receive().GetDraining() {
		t.Error("not told")
	}
	w.send(&belfryv1.WorkRequest{Acks: []*belfryv1.AckRequest{{Lease: lease}}})
	if r := w.receive().GetResults(); len(r) != 1 || r[0].GetAck() == nil {
		t.Errorf("%v", r)
	}
	if err := w.end(); err != nil {
		t.Error(err)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// TestWorkEndsWhenNodeRefuses: an error that waiting does not resolve ends the stream with its
// reason.
func TestWorkEndsWhenNodeRefuses(t *testing.T) {
	s := serve(t)
	s.node.Fail = func(uint32) error { return errors.New("broken") }
	c := belfryv1connect.NewQueueServiceClient(h2c(t), s.url)
	w := s.work(c, 1, "a")
	if _, err := w.stream.Receive(); reasonOf(t, err) != belfryv1.Reason_REASON_INTERNAL {
		t.Errorf("%v", err)
	}
}

func TestWorkNeedsHTTP2(t *testing.T) {
	s := serve(t)
	got := s.send(http.MethodPost, "/belfry.v1.QueueService/Work", "", "Content-Type", "application/connect+proto")
	if got.status != http.StatusHTTPVersionNotSupported {
		t.Errorf("%d %s", got.status, got.body)
	}
}
