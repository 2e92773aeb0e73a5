package rpc

import (
	"testing"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
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
	if res, err := q.Redrive(t.Context(), &belfryv1.RedriveRequest{Queue: "wide", Max: 4}); err != nil || res.GetMoved() != 4 {
		t.Errorf("%v, %v", res, err)
	}
	if res, err := q.Redrive(t.Context(), &belfryv1.RedriveRequest{Queue: "wide", Max: 100}); err != nil || res.GetMoved() != 5 {
		t.Errorf("%v, %v", res, err)
	}
	if _, err := q.Redrive(t.Context(), &belfryv1.RedriveRequest{Queue: "nix", Max: 100}); reasonOf(t, err) != belfryv1.Reason_REASON_QUEUE_NOT_FOUND {
		t.Errorf("%v", err)
	}
	if _, err := q.Redrive(t.Context(), &belfryv1.RedriveRequest{Queue: "wide", Ids: []string{"9-9"}}); reasonOf(t, err) != belfryv1.Reason_REASON_JOB_NOT_FOUND {
		t.Errorf("%v", err)
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
