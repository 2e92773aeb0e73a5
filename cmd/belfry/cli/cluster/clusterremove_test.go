package cluster

import (
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/clitest"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// removableCluster is clitest.ShownCluster with a leader of each shard, so that the silent node may
// go.
func removableCluster() *belfryv1.GetClusterResponse {
	cluster := clitest.ShownCluster()
	cluster.Shards[1].Leader = "n1"
	return cluster
}

func TestClusterRemove(t *testing.T) {
	answer := func(request proto.Message) (proto.Message, error) {
		if _, ok := request.(*belfryv1.RemoveNodeRequest); ok {
			return &belfryv1.RemoveNodeResponse{Node: &belfryv1.Node{Name: "n3"}}, nil
		}
		return removableCluster(), nil
	}
	const announced = "Removing n3 (silent, incarnation 0000000000000003) is for good: 1 replica on it will be missed, " +
		"because the other nodes are too few to replace what it holds.\n"
	h := newHarness(t, answer)
	got := h.Run("cluster", "remove", "n3")
	if got.Code != cli.CodeUsage || !strings.HasPrefix(got.Err, announced) ||
		len(clitest.Sent[*belfryv1.RemoveNodeRequest](h)) > 0 {
		t.Errorf("without an answer: %+v", got)
	}
	if diff := cmp.Diff(clitest.Left(0, "removed n3\n", announced),
		h.Run("cluster", "remove", "n3", "--yes")); diff != "" {
		t.Error(diff)
	}
	want := []*belfryv1.RemoveNodeRequest{{Name: "n3", Incarnation: "0000000000000003"}}
	if diff := cmp.Diff(want, clitest.Sent[*belfryv1.RemoveNodeRequest](h), protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

// TestClusterRemoveSaysWhatFollows: with enough other nodes what is removed is replaced.
func TestClusterRemoveSaysWhatFollows(t *testing.T) {
	answer := removableCluster()
	answer.ReplicationFactor = 1
	got := newHarness(t, clitest.Always(answer)).Run("cluster", "remove", "n3")
	if got.Code != cli.CodeUsage ||
		!strings.Contains(got.Err, "is for good: 1 replica on it will be replaced from the others.\n") {
		t.Errorf("%+v", got)
	}
}

// TestClusterRemoveOfAStranger leaves it to the server to say which nodes there are.
func TestClusterRemoveOfAStranger(t *testing.T) {
	h := newHarness(t, func(request proto.Message) (proto.Message, error) {
		if _, ok := request.(*belfryv1.RemoveNodeRequest); ok {
			return nil, clitest.WireError(connect.CodeInvalidArgument, "INVALID", "name: there is no node n9; the nodes are n1")
		}
		return clitest.ShownCluster(), nil
	})
	if got := h.Run("cluster", "remove", "n9", "--yes"); got.Code != cli.CodeUsage ||
		!strings.Contains(got.Err, "the nodes are n1") {
		t.Errorf("%+v", got)
	}
}

// TestClusterRemoveChecksFirst: what cannot be removed is refused before anything is announced,
// asked or sent.
func TestClusterRemoveChecksFirst(t *testing.T) {
	headless := removableCluster()
	headless.Shards[0].Leader = ""
	unseen := removableCluster()
	unseen.Shards[1].Leader = "" // and no node that answers has a replica of it
	elsewhere := removableCluster()
	elsewhere.Shards[1].Leader, elsewhere.Shards[1].Replicas = "", []*belfryv1.Replica{
		{Node: "n1", Voter: true},
		{Node: "n3", Incarnation: "00000000000000ff", Voter: true},
	}
	for _, test := range []struct {
		name, node string
		cluster    *belfryv1.GetClusterResponse
		says       string
	}{
		{"a node that answers", "n1", removableCluster(), "belfry: n1 still answers"},
		{"one that drains", "n2", removableCluster(), "belfry: n2 still answers"},
		{"a shard that has it has no leader", "n3", headless, "belfry: shard 0 has no leader"},
		{"a shard may have it", "n3.0000000000000003", unseen, "belfry: shard 1 has no leader"},
		{"a shard without a leader that does not have it", "n3", elsewhere, "Removing n3"},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := newHarness(t, clitest.Always(test.cluster))
			got := h.Run("cluster", "remove", test.node) // without --yes and a terminal nothing is ever removed
			if got.Code != cli.CodeUsage || !strings.HasPrefix(got.Err, test.says) ||
				len(clitest.Sent[*belfryv1.RemoveNodeRequest](h)) > 0 {
				t.Errorf("%+v, want %q", got, test.says)
			}
		})
	}
}
