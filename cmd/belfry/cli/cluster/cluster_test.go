package cluster

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/clitest"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// TestClusterStatusOfAnUnhealthyCluster has an exit code of its own, in both forms, and says
// nothing twice.
func TestClusterStatusOfAnUnhealthyCluster(t *testing.T) {
	answer := clitest.ShownCluster()
	answer.Problems = []string{"node n3 does not answer", "without a leader: shard 1"}
	h := newHarness(t, clitest.Always(answer))
	want := clitest.Left(12,
		"cluster c1, which speaks format 1, asked n1: 2 problems\n  node n3 does not answer\n  without a leader: shard 1\n"+
			clitest.ShownNodesAndShards, "")
	if diff := cmp.Diff(want, h.Run("cluster", "status")); diff != "" {
		t.Error(diff)
	}
	got := h.Run("cluster", "status", "-o", "json")
	decoded := &belfryv1.GetClusterResponse{}
	if err := cli.DecodeJSON([]byte(got.Out), decoded); err != nil || got.Code != 12 || got.Err != "" {
		t.Fatalf("%+v, %v", got, err)
	}
	if diff := cmp.Diff(answer, decoded, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

// TestClusterStatusShowsPlacement says since when a node is silent and which shard moves where and
// why.
func TestClusterStatusShowsPlacement(t *testing.T) {
	answer := clitest.ShownCluster()
	answer.GracePeriod = durationpb.New(10 * time.Minute)
	answer.Nodes[2].SilentSince = timestamppb.New(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	answer.Moves = []*belfryv1.ShardMove{
		{Shard: 1, Text: "n4 gets a replica, to replace n3"},
		{Shard: 2, Text: "n3 leaves"},
		{Shard: 4, Text: "n4 gets a replica, to replace n3"},
	}
	got := newHarness(t, clitest.Always(answer)).Run("cluster", "status").Out
	const want = "healthy\n  n3 is silent since 2026-01-02T03:04:05Z; after 10m0s its replicas are replaced if another " +
		"node can take them\n" +
		"  shards 1, 4: n4 gets a replica, to replace n3\n  shard 2: n3 leaves\n\nNODE"
	if !strings.Contains(got, want) {
		t.Errorf("%s\nis not in\n%s", want, got)
	}
	answer.Nodes[2].Replicas = 0
	got = newHarness(t, clitest.Always(answer)).Run("cluster", "status").Out
	const nothing = "  n3 is silent since 2026-01-02T03:04:05Z; it holds nothing: 'belfry cluster remove n3' forgets it\n"
	if !strings.Contains(got, nothing) {
		t.Errorf("%s\nis not in\n%s", nothing, got)
	}
	answer.Nodes[1].Name, answer.Nodes[1].State = "n3", belfryv1.NodeState_NODE_STATE_SILENT
	const comes = "  n3.0000000000000003 is silent since 2026-01-02T03:04:05Z; it holds nothing yet, and " +
		"n3.0000000000000002 has its places\n"
	if got = newHarness(t, clitest.Always(answer)).Run("cluster", "status").Out; !strings.Contains(got, comes) ||
		strings.Contains(got, "cluster remove") {
		t.Errorf("of two of the name: %s", got)
	}
	answer.Nodes[1].Replicas = 0
	if got = newHarness(t, clitest.Always(answer)).Run("cluster", "status").Out; !strings.Contains(got,
		"'belfry cluster remove n3.0000000000000003' forgets it") {
		t.Errorf("of two of the name, and neither holds anything: %s", got)
	}
}

// TestClusterStatusOfAReplacedDisk: if a node was started under an old name, the status says that
// it takes over, not how to forget it.
func TestClusterStatusOfAReplacedDisk(t *testing.T) {
	answer := clitest.ShownCluster()
	answer.Nodes[2].SilentSince, answer.GracePeriod = timestamppb.New(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)),
		durationpb.New(10*time.Minute)
	answer.Nodes = append(answer.Nodes, &belfryv1.Node{
		Name: "n3", Incarnation: "0000000000000004", State: belfryv1.NodeState_NODE_STATE_LIVE,
	})
	const want = "  n3.0000000000000003 is silent since 2026-01-02T03:04:05Z; n3.0000000000000004, which started anew " +
		"under its name, takes its places, and then it is forgotten\n"
	for _, replicas := range []uint32{1, 0} {
		answer.Nodes[2].Replicas = replicas
		if got := newHarness(t, clitest.Always(answer)).Run("cluster", "status").Out; !strings.Contains(got, want) ||
			strings.Contains(got, "after 10m") || strings.Contains(got, "cluster remove") {
			t.Errorf("%s", got)
		}
	}
	answer.Nodes = append(answer.Nodes, &belfryv1.Node{
		Name: "n3", Incarnation: "0000000000000005", State: belfryv1.NodeState_NODE_STATE_LIVE,
	})
	if got := newHarness(t, clitest.Always(answer)).Run("cluster", "status").Out; strings.Contains(got,
		"takes its places") {
		t.Errorf("of two that answer neither is the replacement: %s", got)
	}
}

// TestClusterStatusOfANodeAlone says that there is no copy, though nothing is wrong with that.
func TestClusterStatusOfANodeAlone(t *testing.T) {
	answer := clitest.ShownCluster()
	answer.Nodes = answer.Nodes[:1]
	const want = "asked n1: healthy, and alone: no other node has a copy\n"
	if got := newHarness(t, clitest.Always(answer)).Run("cluster", "status"); got.Code != 0 ||
		!strings.Contains(got.Out, want) {
		t.Errorf("%+v", got)
	}
	answer.ReplicationFactor = 1
	if got := newHarness(t, clitest.Always(answer)).Run("cluster", "status"); !strings.Contains(got.Out,
		"asked n1: healthy\n") {
		t.Errorf("of a cluster that wants no copies: %+v", got)
	}
}

// drainingHarness answers a drain, and then each question with the next of the nodes.
func drainingHarness(t *testing.T, steps ...*belfryv1.Node) *clitest.Harness {
	t.Helper()
	return newHarness(t, func(request proto.Message) (proto.Message, error) {
		node := steps[0]
		if len(steps) > 1 {
			steps = steps[1:]
		}
		if _, ok := request.(*belfryv1.DrainNodeRequest); ok {
			return &belfryv1.DrainNodeResponse{Node: node}, nil
		}
		if node == nil {
			return &belfryv1.GetClusterResponse{}, nil
		}
		return &belfryv1.GetClusterResponse{Nodes: []*belfryv1.Node{{Name: "n3", Incarnation: "other"}, node}}, nil
	})
}

// drainStep is a node on its way.
func drainStep(replicas, leads uint32) *belfryv1.Node {
	return &belfryv1.Node{Name: "n3", Incarnation: "00ff", Draining: true, Replicas: replicas, Leads: leads}
}

func TestClusterDrainWaits(t *testing.T) {
	const empty = "n3 is empty: once it is stopped, 'belfry cluster remove n3' forgets it\n"
	h := drainingHarness(t, drainStep(3, 1), drainStep(3, 1), drainStep(1, 0), drainStep(0, 0))
	want := clitest.Left(0, empty, "n3: 3 replicas left, leads 1 shard\nn3: 1 replica left, leads 0 shards\n")
	if diff := cmp.Diff(want, h.Run("cluster", "drain", "n3")); diff != "" {
		t.Error(diff)
	}
	h = drainingHarness(t, drainStep(3, 1), drainStep(2, 0), drainStep(0, 0))
	h.System.ErrTerminal = true
	want.Err = cli.ClearLine + strings.Repeat("░", 30) + " n3: 3 replicas left, leads 1 shard" +
		cli.ClearLine + strings.Repeat("█", 15) + strings.Repeat("░", 15) + " n3: 2 replicas left, leads 0 shards" +
		cli.ClearLine
	if diff := cmp.Diff(want, h.Run("cluster", "drain", "n3")); diff != "" {
		t.Error(diff)
	}
}

func TestClusterDrainEndsOtherwise(t *testing.T) {
	undone := drainStep(2, 0)
	undone.Draining = false
	for _, test := range []struct {
		name string
		next *belfryv1.Node
		code int
		says string
	}{
		{"removed", nil, cli.CodeNotFound, "belfry: n3 was removed meanwhile\n"},
		{"undone", undone, cli.CodeError, "belfry: somebody stopped the drain of n3\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := drainingHarness(t, drainStep(3, 1), test.next).Run("cluster", "drain", "n3")
			if got.Code != test.code || !strings.HasSuffix(got.Err, test.says) || got.Out != "" {
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestClusterDrainInterrupted says that the drain goes on.
func TestClusterDrainInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	h := drainingHarness(t, drainStep(3, 1))
	answer := h.Answer
	h.Answer = func(request proto.Message) (proto.Message, error) {
		if _, ok := request.(*belfryv1.GetClusterRequest); ok {
			cancel(cli.Interruption{Signal: syscall.SIGINT})
		}
		return answer(request)
	}
	got := h.RunContext(ctx, "cluster", "drain", "n3")
	if got.Code != 130 || !strings.Contains(got.Err, "the drain of n3 goes on") {
		t.Errorf("%+v", got)
	}
}

func TestCompleteNode(t *testing.T) {
	h := newHarness(t, clitest.Always(clitest.ShownCluster()))
	h.System.Out = &bytes.Buffer{}
	if got := h.Run("__complete", "cluster", "drain", "n"); !strings.HasPrefix(got.Out, "n1\nn2\nn3\n:") {
		t.Errorf("%+v", got)
	}
	h = newHarness(t, func(proto.Message) (proto.Message, error) { return nil, errors.New("gone") })
	if got := h.Run("__complete", "cluster", "drain", "n"); !strings.HasPrefix(got.Out, ":") {
		t.Errorf("%+v", got)
	}
}
