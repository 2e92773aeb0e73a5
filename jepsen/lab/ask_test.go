package lab

import (
	"testing"

	"google.golang.org/protobuf/proto"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// whole returns a cluster that is healthy and converged.
func whole() *belfryv1.GetClusterResponse {
	var replicas []*belfryv1.Replica
	for _, name := range []string{"n1", "n2", "n3"} {
		replicas = append(replicas, &belfryv1.Replica{Node: name, AppliedIndex: 9, Digest: "d"})
	}
	return &belfryv1.GetClusterResponse{
		Catalog: &belfryv1.Catalog{Leader: "n1"},
		Shards: []*belfryv1.Shard{
			{Leader: "n2", Voters: []string{"n1", "n2", "n3"}, VotersWanted: 3, AppliedIndex: 9, Digest: "d", Replicas: replicas},
		},
	}
}

// TestHealthyAndConverged spoils a whole cluster in each way; one that says nothing is neither.
func TestHealthyAndConverged(t *testing.T) {
	if !Healthy(whole()) || !Converged(whole()) {
		t.Fatal("a whole cluster is not healthy or not converged")
	}
	for name, spoil := range map[string]func(*belfryv1.GetClusterResponse){
		"no shards":      func(s *belfryv1.GetClusterResponse) { s.Shards = nil },
		"no leader":      func(s *belfryv1.GetClusterResponse) { s.Shards[0].Leader = "" },
		"no catalog":     func(s *belfryv1.GetClusterResponse) { s.Catalog.Leader = "" },
		"a voter less":   func(s *belfryv1.GetClusterResponse) { s.Shards[0].Voters = s.Shards[0].Voters[1:] },
		"one more":       func(s *belfryv1.GetClusterResponse) { s.Shards[0].Nonvoters = []string{"n4"} },
		"with a problem": func(s *belfryv1.GetClusterResponse) { s.Problems = []string{"n3 is silent"} },
	} {
		s := whole()
		if spoil(s); Healthy(s) {
			t.Errorf("%s: it is healthy", name)
		}
	}
	for name, spoil := range map[string]func(*belfryv1.GetClusterResponse){
		"no shards":        func(s *belfryv1.GetClusterResponse) { s.Shards = nil },
		"behind":           func(s *belfryv1.GetClusterResponse) { s.Shards[0].Replicas[2].AppliedIndex = 8 },
		"another digest":   func(s *belfryv1.GetClusterResponse) { s.Shards[0].Replicas[2].Digest = "e" },
		"one not heard of": func(s *belfryv1.GetClusterResponse) { s.Shards[0].Replicas = s.Shards[0].Replicas[:2] },
		"no digests": func(s *belfryv1.GetClusterResponse) {
			for _, r := range s.Shards[0].Replicas {
				r.Digest = ""
			}
			s.Shards[0].Digest = ""
		},
	} {
		s := proto.CloneOf(whole())
		if spoil(s); Converged(s) {
			t.Errorf("%s: it has converged", name)
		}
	}
}
