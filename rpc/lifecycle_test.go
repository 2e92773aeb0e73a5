package rpc

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
	"github.com/belfrydb/belfry/rpc/check"
	"github.com/belfrydb/belfry/rpc/fault"
)

// clients returns a client for every protocol.
func (s *served) clients() map[string]belfryv1connect.QueueServiceClient {
	two := h2c(s.t)
	return map[string]belfryv1connect.QueueServiceClient{
		"Connect, HTTP/1":  belfryv1connect.NewQueueServiceClient(http.DefaultClient, s.url),
		"Connect, HTTP/2":  belfryv1connect.NewQueueServiceClient(two, s.url),
		"Connect, gzip":    belfryv1connect.NewQueueServiceClient(two, s.url, connect.WithSendGzip()),
		"gRPC":             belfryv1connect.NewQueueServiceClient(two, s.url, connect.WithGRPC()),
		"gRPC-Web, HTTP/1": belfryv1connect.NewQueueServiceClient(http.DefaultClient, s.url, connect.WithGRPCWeb()),
		"gRPC-Web, HTTP/2": belfryv1connect.NewQueueServiceClient(two, s.url, connect.WithGRPCWeb()),
	}
}

// reasonOf returns the reason of an error that came over the wire.
func reasonOf(t *testing.T, err error) belfryv1.Reason {
	t.Helper()
	f, ok := fault.FromConnect(err)
	if !ok {
		t.Errorf("%v carries no reason", err)
		return belfryv1.Reason_REASON_UNSPECIFIED
	}
	return f.Reason
}

// TestJobLifecycle goes through put, reserve and every way to end, over every protocol.
func TestJobLifecycle(t *testing.T) {
	s := serve(t)
	for name, c := range s.clients() {
		t.Run(name, func(t *testing.T) {
			jobLifecycle(t, c, "lifecycle/"+strings.Map(func(r rune) rune {
				if unicode.IsLetter(r) || unicode.IsDigit(r) {
					return r
				}
				return '-'
			}, name))
		})
	}
}

func jobLifecycle(t *testing.T, c belfryv1connect.QueueServiceClient, queue string) {
	ctx := t.Context()
	reserve := func() *belfryv1.Job {
		t.Helper()
		res, err := c.Reserve(ctx, &belfryv1.ReserveRequest{Queues: []string{queue}, Ttr: durationpb.New(time.Minute)})
		if err != nil || len(res.GetJobs()) != 1 {
			t.Fatalf("reserve: %v, %v", res, err)
		}
		return res.GetJobs()[0]
	}
	body := strings.Repeat("body ", 1000) + "\x00\xff"
	put, err := c.Put(ctx, &belfryv1.PutRequest{
		Queue: queue, Id: "order-42", Body: &belfryv1.PutRequest_Data{Data: []byte(body)},
		Headers: map[string]string{"k": "v"},
	})
	if err != nil || !put.GetCreated() || put.GetState() != belfryv1.JobState_JOB_STATE_READY ||
		put.GetWitness().GetIndex() == 0 {
		t.Fatalf("put: %v, %v", put, err)
	}
	again, err := c.Put(ctx, &belfryv1.PutRequest{
		Queue: queue, Id: "order-42", Body: &belfryv1.PutRequest_Data{Data: []byte(body)},
		Headers: map[string]string{"k": "v"},
	})
	if err != nil || again.GetCreated() || !again.GetDueAt().AsTime().Equal(put.GetDueAt().AsTime()) {
		t.Fatalf("put again: %v, %v", again, err)
	}
	if _, err := c.Put(ctx, &belfryv1.PutRequest{
		Queue: queue, Id: "order-42",
	}); reasonOf(t, err) != belfryv1.Reason_REASON_JOB_EXISTS {
		t.Fatalf("other content: %v", err)
	}
	attemptsOfAJob(t, c, body, reserve)
	_, err = c.Cancel(ctx, &belfryv1.CancelRequest{Queue: queue, Id: "order-42"})
	if f, _ := fault.FromConnect(err); f == nil || f.Message != "the job has ended: it is ACKED" {
		t.Fatalf("cancel after ack: %v", err)
	}
}

// attemptsOfAJob reserves a job again and again, and gives it back in every way until it is acked.
func attemptsOfAJob(t *testing.T, c belfryv1connect.QueueServiceClient, body string, reserve func() *belfryv1.Job) {
	t.Helper()
	ctx := t.Context()
	job := reserve()
	queue := job.GetQueue()
	if string(job.GetData()) != body || job.GetHeaders()["k"] != "v" || job.GetAttempt() != 1 ||
		job.GetId() != "order-42" ||
		job.GetTtr().AsDuration() != 30*time.Second || job.GetMaxAttempts() != 16 {
		t.Fatalf("job: %v", job)
	}
	extended, err := c.Extend(ctx, &belfryv1.ExtendRequest{Lease: job.GetLease(), Ttr: durationpb.New(time.Hour)})
	if err != nil || extended.GetLeaseUntil().AsTime().Before(job.GetLeaseUntil().AsTime().Add(58*time.Minute)) {
		t.Fatalf("extend: %v, %v", extended, err)
	}
	held, err := c.List(ctx, &belfryv1.ListRequest{Queue: queue, State: belfryv1.JobState_JOB_STATE_RESERVED})
	if err != nil || len(held.GetJobs()) != 1 {
		t.Fatalf("held: %v, %v", held, err)
	}
	// Both ends are shown in milliseconds.
	if length := extended.GetLeaseUntil().AsTime().Sub(held.GetJobs()[0].GetLeaseSince().AsTime()); length < time.Hour ||
		length > time.Hour+time.Millisecond {
		t.Fatalf("held for %v since the extension, to %v: %v", length, extended.GetLeaseUntil().AsTime(), held)
	}
	nacked, err := c.Nack(ctx, &belfryv1.NackRequest{
		Lease: job.GetLease(), Delay: durationpb.New(0), Error: strings.Repeat("é", 600),
	})
	if err != nil || nacked.GetState() != belfryv1.JobState_JOB_STATE_READY {
		t.Fatalf("nack: %v, %v", nacked, err)
	}
	if _, err := c.Ack(ctx, &belfryv1.AckRequest{Lease: job.GetLease()}); reasonOf(t,
		err) != belfryv1.Reason_REASON_STALE_LEASE {
		t.Fatalf("ack with the old lease: %v", err)
	}
	second := reserve()
	if second.GetAttempt() != 2 || second.GetFence() <= job.GetFence() || len(second.GetLastError()) != 1024 {
		t.Fatalf("second attempt: %v", second)
	}
	released, err := c.Release(ctx, &belfryv1.ReleaseRequest{Lease: second.GetLease()})
	if err != nil || released.GetState() != belfryv1.JobState_JOB_STATE_READY {
		t.Fatalf("release: %v, %v", released, err)
	}
	third := reserve()
	if third.GetAttempt() != 2 {
		t.Fatalf("the attempt that was given back counts: %v", third)
	}
	if dead, err := c.Nack(ctx, &belfryv1.NackRequest{
		Lease: third.GetLease(), Dead: true,
	}); err != nil || dead.GetState() != belfryv1.JobState_JOB_STATE_DEAD || dead.GetDueAt() != nil {
		t.Fatalf("nack dead: %v, %v", dead, err)
	}
	if moved, err := c.Redrive(ctx, &belfryv1.RedriveRequest{
		Queue: queue, Ids: []string{"order-42"},
	}); err != nil || moved.GetMoved() != 1 {
		t.Fatalf("redrive: %v, %v", moved, err)
	}
	fourth := reserve()
	for range 2 {
		if acked, err := c.Ack(ctx, &belfryv1.AckRequest{Lease: fourth.GetLease()}); err != nil || acked.GetWitness() == nil {
			t.Fatalf("ack: %v, %v", acked, err)
		}
	}
	if _, err := c.Get(ctx, &belfryv1.GetRequest{
		Queue: queue, Id: "order-42",
	}); reasonOf(t, err) != belfryv1.Reason_REASON_JOB_NOT_FOUND {
		t.Fatalf("get after ack: %v", err)
	}
}

func TestJobsByID(t *testing.T) {
	s := serve(t)
	c := belfryv1connect.NewQueueServiceClient(http.DefaultClient, s.url)
	ctx := t.Context()
	put, err := c.Put(ctx, &belfryv1.PutRequest{
		Queue: "q", Body: &belfryv1.PutRequest_Text{Text: "x"},
		When: &belfryv1.PutRequest_Delay{Delay: durationpb.New(time.Hour)},
	})
	if err != nil || !check.IsGeneratedID(put.GetId()) {
		t.Fatalf("%v, %v", put, err)
	}
	got, err := c.Get(ctx, &belfryv1.GetRequest{Queue: "q", Id: put.GetId()})
	if err != nil || got.GetJob().GetState() != belfryv1.JobState_JOB_STATE_DELAYED ||
		string(got.GetJob().GetData()) != "x" || got.GetWitness() == nil {
		t.Fatalf("%v, %v", got, err)
	}
	if !got.GetJob().GetDueAt().AsTime().Equal(put.GetDueAt().AsTime()) || got.GetJob().GetBodyBytes() != 1 {
		t.Errorf("%v", got)
	}
	moved, err := c.Reschedule(ctx, &belfryv1.RescheduleRequest{
		Queue: "q", Id: put.GetId(), When: &belfryv1.RescheduleRequest_Delay{Delay: durationpb.New(0)},
	})
	if err != nil || moved.GetState() != belfryv1.JobState_JOB_STATE_READY {
		t.Fatalf("%v, %v", moved, err)
	}
	if res, err := c.Reserve(ctx, &belfryv1.ReserveRequest{Queues: []string{"q"}}); err != nil || len(res.GetJobs()) != 1 {
		t.Fatalf("%v, %v", res, err)
	}
	if _, err := c.Cancel(ctx, &belfryv1.CancelRequest{
		Queue: "q", Id: put.GetId(),
	}); reasonOf(t, err) != belfryv1.Reason_REASON_JOB_RESERVED {
		t.Errorf("cancel of a reserved job: %v", err)
	}
	cancelled, err := c.Cancel(ctx, &belfryv1.CancelRequest{Queue: "q", Id: put.GetId(), Force: true})
	if err != nil || cancelled.GetState() != belfryv1.JobState_JOB_STATE_RESERVED {
		t.Errorf("%v, %v", cancelled, err)
	}
	for _, id := range []string{"0-99999", "7-1", "never"} {
		if _, err := c.Get(ctx, &belfryv1.GetRequest{
			Queue: "q", Id: id,
		}); reasonOf(t, err) != belfryv1.Reason_REASON_JOB_NOT_FOUND {
			t.Errorf("get %s: %v", id, err)
		}
	}
}

func TestBatchesStandAlone(t *testing.T) {
	s := serve(t)
	c := belfryv1connect.NewQueueServiceClient(http.DefaultClient, s.url)
	ctx := t.Context()
	res, err := c.PutBatch(ctx, &belfryv1.PutBatchRequest{RequestId: "b-1", Jobs: []*belfryv1.PutRequest{
		{Queue: "a", Id: "1"}, {Queue: "bad queue"}, {Queue: "b", Id: "2"}, {Queue: "c", Id: "3"},
		{
			Queue: "a", Id: "4", When: &belfryv1.PutRequest_Delay{Delay: durationpb.New(-1)},
		}, {Queue: "a", Id: "1", Priority: new(int64)},
		{Queue: "a", RequestId: "x"},
	}})
	if err != nil || len(res.GetResults()) != 7 {
		t.Fatalf("%v, %v", res, err)
	}
	want := []belfryv1.Reason{0, belfryv1.Reason_REASON_INVALID, 0, 0, belfryv1.Reason_REASON_INVALID,
		belfryv1.Reason_REASON_JOB_EXISTS, belfryv1.Reason_REASON_INVALID}
	for i, r := range res.GetResults() {
		if r.GetError().GetReason() != want[i] || (want[i] == 0) != r.GetPut().GetCreated() {
			t.Errorf("entry %d: %v", i, r)
		}
	}
	var leases []string
	for range 3 {
		got, err := c.Reserve(ctx, &belfryv1.ReserveRequest{Queues: []string{"a", "b", "c"}, MaxJobs: 10})
		if err != nil {
			t.Fatal(err)
		}
		for _, job := range got.GetJobs() {
			leases = append(leases, job.GetLease())
		}
	}
	if len(leases) != 3 {
		t.Fatalf("%d jobs", len(leases))
	}
	acked, err := c.AckBatch(ctx,
		&belfryv1.AckBatchRequest{Leases: []string{leases[0], "junk", leases[1], leases[0], leases[2]}})
	if err != nil || len(acked.GetResults()) != 5 {
		t.Fatalf("%v, %v", acked, err)
	}
	for i, r := range acked.GetResults() {
		if bad := i == 1; bad != (r.GetError().GetReason() == belfryv1.Reason_REASON_INVALID) || bad == (r.GetAck() != nil) {
			t.Errorf("entry %d: %v", i, r)
		}
	}
}

func TestUnknownOutcomeIsNotAFailure(t *testing.T) {
	s := serve(t)
	s.node.Fail = func(uint32) error { return context.DeadlineExceeded }
	for name, want := range map[string]struct {
		err  error
		want []string
	}{
		"unknown": {nodeUnknown(),
			[]string{`"code":"unavailable"`, `"reason":"UNKNOWN_OUTCOME"`, `"outcome":"UNKNOWN"`, `"shard":"`,
				"google.rpc.RetryInfo"}},
		"no leader": {nodeNoLeader(), []string{`"code":"unavailable"`, `"reason":"NO_LEADER"`, `"outcome":"NOT_APPLIED"`}},
		"broken": {context.DeadlineExceeded,
			[]string{`"code":"deadline_exceeded"`, `"reason":"OVERLOADED"`, `"outcome":"NOT_APPLIED"`}},
	} {
		s.node.Fail = func(uint32) error { return want.err }
		got := s.post("/v1/put", `{"queue":"a"}`)
		for _, text := range want.want {
			if !strings.Contains(got.body, text) {
				t.Errorf("%s: %s is not in %s", name, text, got.body)
			}
		}
		if batch := s.post("/v1/put-batch", `{"jobs":[{"queue":"a"}]}`); batch.status != 200 ||
			!strings.Contains(batch.body, `"outcome":"`) {
			t.Errorf("%s: %d %s", name, batch.status, batch.body)
		}
	}
}
