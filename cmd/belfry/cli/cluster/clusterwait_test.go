package cluster

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/clitest"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// TestClusterStatusWaits until as many nodes answer as were named, nothing is wrong and nothing is
// under way.
func TestClusterStatusWaits(t *testing.T) {
	whole := clitest.ShownCluster()
	for _, n := range whole.Nodes {
		n.State = belfryv1.NodeState_NODE_STATE_LIVE
	}
	alone, sick, moving := proto.Clone(whole).(*belfryv1.GetClusterResponse),
		proto.Clone(whole).(*belfryv1.GetClusterResponse), proto.Clone(whole).(*belfryv1.GetClusterResponse)
	alone.Nodes = alone.Nodes[:1]
	sick.Problems = []string{"without a leader: shard 1"}
	moving.Moves = []*belfryv1.ShardMove{{Shard: 1, Text: "n3 catches up"}}
	steps := []*belfryv1.GetClusterResponse{alone, sick, moving, whole}
	asked := 0
	h := newHarness(t, func(proto.Message) (proto.Message, error) {
		step := steps[min(asked, len(steps)-1)]
		asked++
		return step, nil
	})
	got := h.Run("cluster", "status", "--wait", "--nodes", "3")
	if got.Code != 0 || asked != len(steps) || !strings.Contains(got.Out, "asked n1: healthy\n") {
		t.Errorf("asked %d times: %+v", asked, got)
	}
	for missing, answer := range map[string]*belfryv1.GetClusterResponse{
		"1 of 3 nodes are there": alone, "without a leader: shard 1": sick, "shard 1: n3 catches up": moving,
	} {
		got := newHarness(t, clitest.Always(answer)).Run("cluster", "status", "--wait", "--nodes", "3", "--timeout", "1s")
		if got.Code != cli.CodeWaited || !strings.Contains(got.Err, "after 1s the cluster is not whole:") ||
			!strings.Contains(got.Err, missing) {
			t.Errorf("%s: %+v", missing, got)
		}
	}
}

func TestClusterStatusWaitIsChecked(t *testing.T) {
	for want, args := range map[string][]string{
		"--nodes: have 0, want 1 or more":                          {"--wait", "--nodes", "0"},
		"--nodes: it says what --wait waits for, which is missing": {"--nodes", "3"},
	} {
		got := newHarness(t, clitest.Always(clitest.ShownCluster())).Run(append([]string{"cluster", "status"}, args...)...)
		if got.Code != cli.CodeUsage || !strings.Contains(got.Err, want) {
			t.Errorf("%v: %+v", args, got)
		}
	}
}

// TestClusterStatusGivesAdvice that is no problem.
func TestClusterStatusGivesAdvice(t *testing.T) {
	answer := clitest.ShownCluster()
	answer.Advice = []string{"min-voters is 1: raise it"}
	got := newHarness(t, clitest.Always(answer)).Run("cluster", "status")
	if got.Code != 0 || !strings.Contains(got.Out, "healthy\n  advice: min-voters is 1: raise it\n") {
		t.Errorf("%+v", got)
	}
}
