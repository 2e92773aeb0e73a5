package lab

import (
	"testing"

	"google.golang.org/protobuf/proto"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// whole returns a cluster that is healthy and converged.
func whole() *belfryv1.GetClusterResponse {
	var replicas []*belfryv1.Replica
	var nodes []*belfryv1.Node
	for _, name := range []string{"n1", "n2", "n3"} {
		replicas = append(replicas, &belfryv1.Replica{Node: name, AppliedIndex: 9, Digest: "d"})
		nodes = append(nodes, &belfryv1.Node{Name: name, State: belfryv1.NodeState_NODE_STATE_LIVE})
	}
	return &belfryv1.GetClusterResponse{
		Nodes:   nodes,
		Catalog: &belfryv1.Catalog{Leader: "n1", Voters: []string{"n1", "n2", "n3"}, Replicas: replicas},
		Shards: []*belfryv1.Shard{
			{Leader: "n2", Voters: []string{"n1", "n2", "n3"}, VotersWanted: 3, AppliedIndex: 9, Digest: "d",
				Replicas: replicas},
		},
	}
}

// TestHealthyAndConverged spoils a whole cluster in each way; one that says nothing is neither.
func TestHealthyAndConverged(t *testing.T) {
	if !Healthy(whole()) || !Converged(whole()) {
		t.Fatal("a whole cluster is not healthy or not converged")
	}
	for name, spoil := range map[string]func(*belfryv1.GetClusterResponse){
		"no shards":  func(s *belfryv1.GetClusterResponse) { s.Shards = nil },
		"no leader":  func(s *belfryv1.GetClusterResponse) { s.Shards[0].Leader = "" },
		"no catalog": func(s *belfryv1.GetClusterResponse) { s.Catalog.Leader = "" },
		"a voter less": func(s *belfryv1.GetClusterResponse) {
			s.Shards[0].Voters = s.Shards[0].Voters[1:]
		},
		"one more":                    func(s *belfryv1.GetClusterResponse) { s.Shards[0].Nonvoters = []string{"n4"} },
		"a dead voter of the catalog": func(s *belfryv1.GetClusterResponse) { s.Catalog.Replicas[2].Silent = true },
		"a voter of the catalog too few": func(s *belfryv1.GetClusterResponse) {
			s.Catalog.Voters = s.Catalog.Voters[1:]
		},
		"a node's earlier life as its voter": func(s *belfryv1.GetClusterResponse) {
			s.Catalog.Voters = append(s.Catalog.Voters, "n3")
		},
		"a node that drains": func(s *belfryv1.GetClusterResponse) {
			s.Nodes[1].State = belfryv1.NodeState_NODE_STATE_DRAINING
		},
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

// TestLeadsMost: the node that leads most is struck, and no node if none leads.
func TestLeadsMost(t *testing.T) {
	up := []*Node{{Name: "n1"}, {Name: "n2"}}
	for _, c := range []struct {
		leaders []string
		want    string
	}{
		{[]string{"n2", "n1", "n2"}, "n2"},
		{[]string{"n3", "n3", "n1"}, "n1"}, // n3 does not run
		{[]string{"", "", "n3"}, ""},
		{nil, ""},
	} {
		status := &belfryv1.GetClusterResponse{}
		for _, leader := range c.leaders {
			status.Shards = append(status.Shards, &belfryv1.Shard{Leader: leader})
		}
		have := ""
		if n := leadsMost(status, up); n != nil {
			have = n.Name
		}
		if have != c.want {
			t.Errorf("leaders %q: have %q, want %q", c.leaders, have, c.want)
		}
	}
}
