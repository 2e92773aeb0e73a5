package rpc

import (
	"testing"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// TestRepeatsAreNotHandedOutAgain: jobs that a repeat of a Reserve collects were counted before,
// and are not late by the time between the two.
func TestRepeatsAreNotHandedOutAgain(t *testing.T) {
	s := serve(t)
	q := s.server.handler.queues
	for name, queues := range map[string][]string{
		"one shard": {s.queueIn(1, "a")}, "two shards": {s.queueIn(0, "b"), s.queueIn(2, "c")},
	} {
		last := queues[len(queues)-1]
		if got := s.post("/v1/put", `{"queue":"`+last+`"}`); got.status != 200 {
			t.Fatal(got.body)
		}
		for range 3 {
			res, err := q.Reserve(t.Context(), &belfryv1.ReserveRequest{Queues: queues, RequestId: name})
			if err != nil || len(res.GetJobs()) != 1 {
				t.Fatalf("%s: %v, %v", name, res, err)
			}
		}
		r, _, err := s.node.Query(t.Context(), node.ShardOf(last, 0, s.node.ShardCount()), &fsm.QueueQuery{Queue: last})
		if err != nil {
			t.Fatal(err)
		}
		late := uint64(0)
		for _, n := range r.Queues[0].Recent.Late {
			late += n
		}
		if got := r.Queues[0].Recent; got.Grants != 1 || late != 1 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
