package rpc

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/belfrydb/belfry/node"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
	"github.com/belfrydb/belfry/rpc/fault"
)

func TestRedriveMany(t *testing.T) {
	s := serve(t)
	q, a := s.bothClients()
	if _, err := a.CreateQueue(t.Context(), &belfryv1.CreateQueueRequest{Queue: "wide", Partitions: 3}); err != nil {
		t.Fatal(err)
	}
	for range 9 {
		if _, err := q.Put(t.Context(), &belfryv1.PutRequest{Queue: "wide"}); err != nil {
			t.Fatal(err)
		}
	}
	killAll(t, q, "wide")
	if res, err := q.Redrive(t.Context(), &belfryv1.RedriveRequest{
		Queue: "wide", Max: 4,
	}); err != nil || res.GetMoved() != 4 {
		t.Errorf("%v, %v", res, err)
	}
	if res, err := q.Redrive(t.Context(), &belfryv1.RedriveRequest{
		Queue: "wide", Max: 100,
	}); err != nil || res.GetMoved() != 5 {
		t.Errorf("%v, %v", res, err)
	}
	if _, err := q.Redrive(t.Context(), &belfryv1.RedriveRequest{
		Queue: "nix", Max: 100,
	}); reasonOf(t, err) != belfryv1.Reason_REASON_QUEUE_NOT_FOUND {
		t.Errorf("%v", err)
	}
	if _, err := q.Redrive(t.Context(), &belfryv1.RedriveRequest{
		Queue: "wide", Ids: []string{"9-9"},
	}); reasonOf(t, err) != belfryv1.Reason_REASON_JOB_NOT_FOUND {
		t.Errorf("%v", err)
	}
}

// TestRedriveInSteps: a command of the machine is bounded, the call is not, and a repeat moves
// nothing more.
func TestRedriveInSteps(t *testing.T) {
	s := serve(t)
	q, _ := s.bothClients()
	jobs := make([]*belfryv1.PutRequest, 1000)
	for i := range jobs {
		jobs[i] = &belfryv1.PutRequest{Queue: "a", Ttl: durationpb.New(time.Millisecond)}
	}
	settings := &belfryv1.QueueSettings{ExpireTo: belfryv1.ExpireTo_EXPIRE_TO_DEAD.Enum()}
	_, a := s.bothClients()
	if _, err := a.CreateQueue(t.Context(), &belfryv1.CreateQueueRequest{Queue: "a", Settings: settings}); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	s.node.Now = func() time.Time { return now }
	for range 9 {
		if _, err := q.PutBatch(t.Context(), &belfryv1.PutBatchRequest{Jobs: jobs}); err != nil {
			t.Fatal(err)
		}
	}
	now = now.Add(time.Second)
	for range 3 { // each command settles a bounded number of jobs
		if _, err := q.Reserve(t.Context(), &belfryv1.ReserveRequest{Queues: []string{"a"}}); err != nil {
			t.Fatal(err)
		}
	}
	for round := range 2 {
		if res, err := q.Redrive(t.Context(), &belfryv1.RedriveRequest{
			Queue: "a", Max: 8500, RequestId: "r",
		}); err != nil || res.GetMoved() != 8500 || len(res.GetWitnesses()) != 1 {
			t.Errorf("round %d: %v, %v", round, res, err)
		}
	}
	if res, err := q.Redrive(t.Context(), &belfryv1.RedriveRequest{
		Queue: "a", Max: 100_000,
	}); err != nil || res.GetMoved() != 500 {
		t.Errorf("the rest: %v, %v", res, err)
	}
}

// TestRedriveThatStopsHalfway: what was moved is not hidden behind an error that says that nothing
// was.
func TestRedriveThatStopsHalfway(t *testing.T) {
	s := serve(t)
	q, a := s.bothClients()
	if _, err := a.CreateQueue(t.Context(), &belfryv1.CreateQueueRequest{Queue: "wide", Partitions: 3}); err != nil {
		t.Fatal(err)
	}
	var ids []string
	for range 9 {
		put, err := q.Put(t.Context(), &belfryv1.PutRequest{Queue: "wide"})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, put.GetId())
	}
	killAll(t, q, "wide")
	last := node.ShardOf("wide", 2, s.node.ShardCount())
	s.node.Fail = func(shard uint32) error {
		if shard == last {
			return nodeNoLeader()
		}
		return nil
	}
	_, byMax := q.Redrive(t.Context(), &belfryv1.RedriveRequest{Queue: "wide", Max: 1000})
	if f, _ := fault.FromConnect(byMax); f == nil || f.Reason != belfryv1.Reason_REASON_UNKNOWN_OUTCOME ||
		f.Count == nil || *f.Count != 6 {
		t.Errorf("%v", byMax)
	}
	if _, err := q.Redrive(t.Context(), &belfryv1.RedriveRequest{
		Queue: "wide", Max: 1000,
	}); reasonOf(t, err) != belfryv1.Reason_REASON_NO_LEADER {
		t.Errorf("nothing was left in the others: %v", err)
	}
	s.node.Fail = nil
	if res, err := q.Redrive(t.Context(), &belfryv1.RedriveRequest{
		Queue: "wide", Ids: ids,
	}); err != nil || res.GetMoved() != 3 {
		t.Errorf("%v, %v", res, err)
	}
	killAll(t, q, "wide")
	s.node.Fail = func(shard uint32) error {
		if shard == last {
			return nodeNoLeader()
		}
		return nil
	}
	_, byID := q.Redrive(t.Context(), &belfryv1.RedriveRequest{Queue: "wide", Ids: ids})
	if f, _ := fault.FromConnect(byID); f == nil || f.Reason != belfryv1.Reason_REASON_UNKNOWN_OUTCOME || f.Count == nil ||
		*f.Count != 6 {
		t.Errorf("%v", byID)
	}
}

// killAll takes all jobs of a queue and makes them dead.
func killAll(t *testing.T, q belfryv1connect.QueueServiceClient, queue string) {
	t.Helper()
	for {
		res, err := q.Reserve(t.Context(), &belfryv1.ReserveRequest{Queues: []string{queue}, MaxJobs: 100})
		if err != nil {
			t.Fatal(err)
		}
		if len(res.GetJobs()) == 0 {
			return
		}
		for _, job := range res.GetJobs() {
			if _, err := q.Nack(t.Context(), &belfryv1.NackRequest{Lease: job.GetLease(), Dead: true, Error: "no"}); err != nil {
				t.Fatal(err)
			}
		}
	}
}
