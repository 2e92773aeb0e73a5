package rpc

import (
	"testing"

	"google.golang.org/protobuf/proto"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
)

// TestNothingGoesIntoAQueueThatIsBeingDeleted: no put, no new settings, no new creation; and no
// shard is told of it.
func TestNothingGoesIntoAQueueThatIsBeingDeleted(t *testing.T) {
	s := serve(t)
	q, a := s.bothClients()
	if _, err := a.CreateQueue(t.Context(), &belfryv1.CreateQueueRequest{Queue: "wide", Partitions: 3}); err != nil {
		t.Fatal(err)
	}
	s.catalog.MarkDeleting("wide")
	_, putErr := q.Put(t.Context(), &belfryv1.PutRequest{Queue: "wide", Id: "x"})
	_, updateErr := a.UpdateQueue(t.Context(), &belfryv1.UpdateQueueRequest{
		Queue: "wide", Settings: &belfryv1.QueueSettings{Paused: proto.Bool(true)},
	})
	_, createErr := a.CreateQueue(t.Context(), &belfryv1.CreateQueueRequest{Queue: "wide", Partitions: 3})
	for name, err := range map[string]error{"put": putErr, "update": updateErr, "create": createErr} {
		if f, _ := fault.FromConnect(err); f == nil || f.Reason != belfryv1.Reason_REASON_QUEUE_CHANGED ||
			f.Field != "queue" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if res, err := a.DeleteQueue(t.Context(), &belfryv1.DeleteQueueRequest{Queue: "wide"}); err != nil ||
		len(res.GetWitnesses()) != 3 {
		t.Errorf("%v, %v", res, err)
	}
	if _, ok := s.catalog.Queue("wide"); ok || s.node.Holders("wide") != 0 {
		t.Errorf("recorded: %v; %d shards hold it", ok, s.node.Holders("wide"))
	}
	if _, err := q.Put(t.Context(), &belfryv1.PutRequest{Queue: "wide", Id: "x"}); err != nil {
		t.Errorf("a put after the deletion: %v", err)
	}
}

// TestARepeatedDeletionSparesANewerQueue: what was made since is not what was to be deleted.
func TestARepeatedDeletionSparesANewerQueue(t *testing.T) {
	s := serve(t)
	q, a := s.bothClients()
	create := func() {
		t.Helper()
		if _, err := a.CreateQueue(t.Context(), &belfryv1.CreateQueueRequest{Queue: "wide", Partitions: 3}); err != nil {
			t.Fatal(err)
		}
	}
	create()
	if _, err := q.Put(t.Context(), &belfryv1.PutRequest{Queue: "wide"}); err != nil {
		t.Fatal(err)
	}
	remove := &belfryv1.DeleteQueueRequest{Queue: "wide", RequestId: "d"}
	for round := range 2 {
		if res, err := a.DeleteQueue(t.Context(), remove); err != nil || res.GetPurged() != 1 {
			t.Errorf("round %d: %v, %v", round, res, err)
		}
		if round == 0 {
			create()
		}
	}
	if config, ok := s.catalog.Queue("wide"); !ok || config.Partitions != 3 {
		t.Errorf("the newer queue is %+v, %v", config, ok)
	}
}

// TestARepeatedDeletionGoesOn: the shards were emptied, and the record is still there.
func TestARepeatedDeletionGoesOn(t *testing.T) {
	s := serve(t)
	_, a := s.bothClients()
	if _, err := a.CreateQueue(t.Context(), &belfryv1.CreateQueueRequest{Queue: "wide", Partitions: 3}); err != nil {
		t.Fatal(err)
	}
	s.catalog.Deletion = func(string) error { return nodeUnknown() }
	remove := &belfryv1.DeleteQueueRequest{Queue: "wide", RequestId: "d"}
	if _, err := a.DeleteQueue(t.Context(), remove); reasonOf(t, err) != belfryv1.Reason_REASON_UNKNOWN_OUTCOME {
		t.Errorf("%v", err)
	}
	s.catalog.Deletion = nil
	if _, err := a.DeleteQueue(t.Context(), remove); err != nil {
		t.Error(err)
	}
	if _, ok := s.catalog.Queue("wide"); ok {
		t.Error("the record is still there")
	}
}
