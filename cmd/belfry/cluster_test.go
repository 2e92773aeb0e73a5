package main

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

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// shownCluster returns a cluster of two nodes that answer and one that does not.
func shownCluster() *belfryv1.GetClusterResponse {
	return &belfryv1.GetClusterResponse{
		ClusterId: "c1", AnsweredBy: "n1", ReplicationFactor: 3, Format: 1,
		Nodes: []*belfryv1.Node{
			{
				Name: "n1", Incarnation: "0000000000000001", State: belfryv1.NodeState_NODE_STATE_LIVE, Address: "10.0.0.1:7400",
				PeerAddress: "10.0.0.1:7401", Zone: "a", Version: "v1", Format: 2, Replicas: 2, Leads: 1,
			},
			{Name: "n2", Incarnation: "0000000000000002", State: belfryv1.NodeState_NODE_STATE_DRAINING, Draining: true, Version: "v1", Replicas: 1, Leads: 1},
			{Name: "n3", Incarnation: "0000000000000003", State: belfryv1.NodeState_NODE_STATE_SILENT, Draining: true, Replicas: 1},
		},
		Shards: []*belfryv1.Shard{
			{
				Shard: 0, Leader: "n1", Term: 3, AppliedIndex: 1200, Digest: "00000000000000ab", Jobs: 1000,
				Replicas: []*belfryv1.Replica{{Node: "n1", Voter: true}, {Node: "n3", Voter: true, Silent: true}, {Node: "n2"}},
			},
			{Shard: 1, Digest: "0000000000000000"},
		},
		Catalog: &belfryv1.Catalog{Leader: "n2", Term: 2, Replicas: []*belfryv1.Replica{{Node: "n2", Voter: true}}},
	}
}

const shownNodesAndShards = `
NODE  STATE             CLIENTS        PEERS          ZONE  VERSION  FORMAT  REPLICAS  LEADS  INCARNATION
n1    live              10.0.0.1:7400  10.0.0.1:7401  a     v1       2       2         1      0000000000000001
n2    draining          -              -              -     v1       0       1         1      0000000000000002
n3    silent, draining  -              -              -     -        0       1         0      0000000000000003

SHARD    LEADER  TERM  VOTERS  OTHERS  APPLIED  DIGEST            JOBS
0        n1      3     n1 n3?  n2      1,200    00000000000000ab  1,000
1        -       -     -       -       -        -                 -
catalog  n2      2     n2      -                                  
`

// clusterSettingsCases shows and changes the settings of the cluster.
func clusterSettingsCases() []commandCase {
	return []commandCase{
		{
			name: "cluster settings", args: []string{"cluster", "settings"},
			answer: &belfryv1.GetClusterResponse{ReplicationFactor: 3, GracePeriod: durationpb.New(10 * time.Minute), MinVoters: 2}, sent: &belfryv1.GetClusterRequest{},
			out: "replication factor 3, grace period 10m0s, min-voters 2, no-auto-create false\n",
		},
		{
			name: "cluster settings that change", args: []string{"cluster", "settings", "--grace-period", "5m"},
			answer: &belfryv1.UpdateClusterResponse{ReplicationFactor: 3, GracePeriod: durationpb.New(5 * time.Minute), MinVoters: 1},
			sent:   &belfryv1.UpdateClusterRequest{GracePeriod: durationpb.New(5 * time.Minute)},
			out:    "replication factor 3, grace period 5m0s, min-voters 1, no-auto-create false\n",
		},
		{
			name: "min-voters raised", args: []string{"cluster", "settings", "--min-voters", "2"},
			answer: &belfryv1.UpdateClusterResponse{ReplicationFactor: 3, GracePeriod: durationpb.New(time.Minute), MinVoters: 2},
			sent:   &belfryv1.UpdateClusterRequest{MinVoters: 2}, out: "replication factor 3, grace period 1m0s, min-voters 2, no-auto-create false\n",
		},
		{
			name: "min-voters lowered", args: []string{"cluster", "settings", "--lower-min-voters", "1"},
			answer: &belfryv1.UpdateClusterResponse{ReplicationFactor: 3, GracePeriod: durationpb.New(time.Minute), MinVoters: 1},
			sent:   &belfryv1.UpdateClusterRequest{LowerMinVoters: 1}, out: "replication factor 3, grace period 1m0s, min-voters 1, no-auto-create false\n",
		},
		{
			name: "no-auto-create", args: []string{"cluster", "settings", "--no-auto-create"},
			answer: &belfryv1.UpdateClusterResponse{ReplicationFactor: 3, GracePeriod: durationpb.New(time.Minute), MinVoters: 1, NoAutoCreate: true},
			sent:   &belfryv1.UpdateClusterRequest{NoAutoCreate: new(true)}, out: "replication factor 3, grace period 1m0s, min-voters 1, no-auto-create true\n",
		},
		{
			name: "no-auto-create taken back", args: []string{"cluster", "settings", "--no-auto-create=false"},
			answer: &belfryv1.UpdateClusterResponse{ReplicationFactor: 3, GracePeriod: durationpb.New(time.Minute), MinVoters: 1},
			sent:   &belfryv1.UpdateClusterRequest{NoAutoCreate: new(false)}, out: "replication factor 3, grace period 1m0s, min-voters 1, no-auto-create false\n",
		},
	}
}

// clusterCases are the commands about the cluster that make one call.
func clusterCases() []commandCase {
	no, yes := false, true
	draining := &belfryv1.Node{Name: "n3", Draining: true, Replicas: 6, Leads: 2}
	return []commandCase{
		{
			name: "cluster status", args: []string{"cluster", "status"}, answer: shownCluster(), sent: &belfryv1.GetClusterRequest{},
			out: "cluster c1, which speaks format 1, asked n1: healthy\n" + shownNodesAndShards,
		},
		{
			name: "cluster drain without waiting", args: []string{"cluster", "drain", "n3", "--no-wait"},
			answer: &belfryv1.DrainNodeResponse{Node: draining}, sent: &belfryv1.DrainNodeRequest{Name: "n3", Draining: &yes},
			out: "n3 is draining: 6 replicas left, leads 2 shards\n",
		},
		{
			name: "cluster drain that is forced", args: []string{"cluster", "drain", "n3", "--no-wait", "--force"},
			answer: &belfryv1.DrainNodeResponse{Node: draining}, sent: &belfryv1.DrainNodeRequest{Name: "n3", Draining: &yes, Force: true},
			out: "n3 is draining: 6 replicas left, leads 2 shards\n",
		},
		{
			name: "cluster drain of an empty node", args: []string{"cluster", "drain", "n3.00000000000000ff"},
			answer: &belfryv1.DrainNodeResponse{Node: &belfryv1.Node{Name: "n3", Draining: true}},
			sent:   &belfryv1.DrainNodeRequest{Name: "n3", Incarnation: "00000000000000ff", Draining: &yes},
			out:    "n3 is empty: once it is stopped, 'belfry cluster remove n3' forgets it\n",
		},
		{
			name: "cluster drain --undo", args: []string{"cluster", "drain", "n3", "--undo"},
			answer: &belfryv1.DrainNodeResponse{Node: &belfryv1.Node{Name: "n3"}}, sent: &belfryv1.DrainNodeRequest{Name: "n3", Draining: &no},
			out: "n3 takes replicas again\n",
		},
		{
			name: "cluster transfer", args: []string{"cluster", "transfer", "2", "--to", "n3"},
			answer: &belfryv1.TransferLeaderResponse{Previous: "n1", Leader: "n3"}, sent: &belfryv1.TransferLeaderRequest{Shard: 2, To: "n3"},
			out: "shard 2: n1 handed over to n3\n",
		},
		{
			name: "cluster transfer to who leads", args: []string{"cluster", "transfer", "0"},
			answer: &belfryv1.TransferLeaderResponse{Previous: "n1", Leader: "n1"}, sent: &belfryv1.TransferLeaderRequest{},
			out: "n1 leads shard 0 already\n",
		},
		{
			name: "cluster reset-clock", args: []string{"cluster", "reset-clock", "--yes"}, sent: &belfryv1.ResetClockRequest{},
			answer: &belfryv1.ResetClockResponse{Shards: []*belfryv1.ShardClock{{From: at(0), To: at(0)}, {Shard: 1, From: at(time.Hour), To: at(0)}}},
			out:    "shard 1: from " + now.Add(time.Hour).UTC().Format(time.RFC3339Nano) + " back to " + now.UTC().Format(time.RFC3339Nano) + "\n",
		},
		{
			name: "cluster reset-clock of clocks that are right", args: []string{"cluster", "reset-clock", "-y"}, sent: &belfryv1.ResetClockRequest{},
			answer: &belfryv1.ResetClockResponse{Shards: []*belfryv1.ShardClock{{From: at(0), To: at(0)}}},
			out:    "no shard's time is ahead; nothing was changed\n",
		},
	}
}

// TestClusterStatusOfAnUnhealthyCluster has an exit code of its own, in both forms, and says nothing twice.
func TestClusterStatusOfAnUnhealthyCluster(t *testing.T) {
	answer := shownCluster()
	answer.Problems = []string{"node n3 does not answer", "without a leader: shard 1"}
	h := newHarness(t, always(answer))
	want := outcome{12, "cluster c1, which speaks format 1, asked n1: 2 problems\n  node n3 does not answer\n  without a leader: shard 1\n" + shownNodesAndShards, ""}
	if diff := cmp.Diff(want, h.run("cluster", "status"), cmp.AllowUnexported(outcome{})); diff != "" {
		t.Error(diff)
	}
	got := h.run("cluster", "status", "-o", "json")
	decoded := &belfryv1.GetClusterResponse{}
	if err := decodeJSON([]byte(got.out), decoded); err != nil || got.code != 12 || got.err != "" {
		t.Fatalf("%+v, %v", got, err)
	}
	if diff := cmp.Diff(answer, decoded, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

// TestClusterStatusShowsPlacement says since when a node is silent and which shard moves where and why.
func TestClusterStatusShowsPlacement(t *testing.T) {
	answer := shownCluster()
	answer.GracePeriod = durationpb.New(10 * time.Minute)
	answer.Nodes[2].SilentSince = timestamppb.New(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	answer.Moves = []*belfryv1.ShardMove{{Shard: 1, Text: "n4 gets a replica, to replace n3"}, {Shard: 2, Text: "n3 leaves"}, {Shard: 4, Text: "n4 gets a replica, to replace n3"}}
	got := newHarness(t, always(answer)).run("cluster", "status").out
	const want = "healthy\n  n3 is silent since 2026-01-02T03:04:05Z; after 10m0s its replicas are replaced if another node can take them\n" +
		"  shards 1, 4: n4 gets a replica, to replace n3\n  shard 2: n3 leaves\n\nNODE"
	if !strings.Contains(got, want) {
		t.Errorf("%s\nis not in\n%s", want, got)
	}
	answer.Nodes[2].Replicas = 0
	got = newHarness(t, always(answer)).run("cluster", "status").out
	if nothing := "  n3 is silent since 2026-01-02T03:04:05Z; it holds nothing: 'belfry cluster remove n3' forgets it\n"; !strings.Contains(got, nothing) {
		t.Errorf("%s\nis not in\n%s", nothing, got)
	}
	answer.Nodes[1].Name, answer.Nodes[1].State = "n3", belfryv1.NodeState_NODE_STATE_SILENT
	const comes = "  n3.0000000000000003 is silent since 2026-01-02T03:04:05Z; it holds nothing yet, and n3.0000000000000002 has its places\n"
	if got = newHarness(t, always(answer)).run("cluster", "status").out; !strings.Contains(got, comes) || strings.Contains(got, "cluster remove") {
		t.Errorf("of two of the name: %s", got)
	}
	answer.Nodes[1].Replicas = 0
	if got = newHarness(t, always(answer)).run("cluster", "status").out; !strings.Contains(got, "'belfry cluster remove n3.0000000000000003' forgets it") {
		t.Errorf("of two of the name, and neither holds anything: %s", got)
	}
}

// TestClusterStatusOfAReplacedDisk: whoever started a node under an old name reads that it takes over, not how to forget it.
func TestClusterStatusOfAReplacedDisk(t *testing.T) {
	answer := shownCluster()
	answer.Nodes[2].SilentSince, answer.GracePeriod = timestamppb.New(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)), durationpb.New(10*time.Minute)
	answer.Nodes = append(answer.Nodes, &belfryv1.Node{Name: "n3", Incarnation: "0000000000000004", State: belfryv1.NodeState_NODE_STATE_LIVE})
	const want = "  n3.0000000000000003 is silent since 2026-01-02T03:04:05Z; n3.0000000000000004, which started anew under its name, takes its places, and then it is forgotten\n"
	for _, replicas := range []uint32{1, 0} {
		answer.Nodes[2].Replicas = replicas
		if got := newHarness(t, always(answer)).run("cluster", "status").out; !strings.Contains(got, want) || strings.Contains(got, "after 10m") || strings.Contains(got, "cluster remove") {
			t.Errorf("%s", got)
		}
	}
	answer.Nodes = append(answer.Nodes, &belfryv1.Node{Name: "n3", Incarnation: "0000000000000005", State: belfryv1.NodeState_NODE_STATE_LIVE})
	if got := newHarness(t, always(answer)).run("cluster", "status").out; strings.Contains(got, "takes its places") {
		t.Errorf("of two that answer neither is the replacement: %s", got)
	}
}

// TestClusterStatusOfANodeAlone says that there is no copy, though nothing is wrong with that.
func TestClusterStatusOfANodeAlone(t *testing.T) {
	answer := shownCluster()
	answer.Nodes = answer.Nodes[:1]
	const want = "asked n1: healthy, and alone: no other node has a copy\n"
	if got := newHarness(t, always(answer)).run("cluster", "status"); got.code != 0 || !strings.Contains(got.out, want) {
		t.Errorf("%+v", got)
	}
	answer.ReplicationFactor = 1
	if got := newHarness(t, always(answer)).run("cluster", "status"); !strings.Contains(got.out, "asked n1: healthy\n") {
		t.Errorf("of a cluster that wants no copies: %+v", got)
	}
}

// drainingHarness answers a drain, and then each question with the next of the nodes.
func drainingHarness(t *testing.T, steps ...*belfryv1.Node) *harness {
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
	want := outcome{0, empty, "n3: 3 replicas left, leads 1 shard\nn3: 1 replica left, leads 0 shards\n"}
	if diff := cmp.Diff(want, h.run("cluster", "drain", "n3"), cmp.AllowUnexported(outcome{})); diff != "" {
		t.Error(diff)
	}
	h = drainingHarness(t, drainStep(3, 1), drainStep(2, 0), drainStep(0, 0))
	h.system.errTerminal = true
	want.err = clearLine + strings.Repeat("░", 30) + " n3: 3 replicas left, leads 1 shard" +
		clearLine + strings.Repeat("█", 15) + strings.Repeat("░", 15) + " n3: 2 replicas left, leads 0 shards" + clearLine
	if diff := cmp.Diff(want, h.run("cluster", "drain", "n3"), cmp.AllowUnexported(outcome{})); diff != "" {
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
		{"removed", nil, codeNotFound, "belfry: n3 was removed meanwhile\n"},
		{"undone", undone, codeError, "belfry: somebody stopped the drain of n3\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := drainingHarness(t, drainStep(3, 1), test.next).run("cluster", "drain", "n3")
			if got.code != test.code || !strings.HasSuffix(got.err, test.says) || got.out != "" {
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestClusterDrainInterrupted says that the drain goes on.
func TestClusterDrainInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	h := drainingHarness(t, drainStep(3, 1))
	answer := h.answer
	h.answer = func(request proto.Message) (proto.Message, error) {
		if _, ok := request.(*belfryv1.GetClusterRequest); ok {
			cancel(interruption{syscall.SIGINT})
		}
		return answer(request)
	}
	got := h.runContext(ctx, "cluster", "drain", "n3")
	if got.code != 130 || !strings.Contains(got.err, "the drain of n3 goes on") {
		t.Errorf("%+v", got)
	}
}

func TestFindNode(t *testing.T) {
	cluster := &belfryv1.GetClusterResponse{Nodes: []*belfryv1.Node{{Name: "n1", Incarnation: "a"}, {Name: "n1", Incarnation: "b"}, {Name: "n2", Incarnation: "c"}}}
	for _, test := range []struct{ name, incarnation, want string }{
		{"n2", "", "c"}, {"n1", "b", "b"}, {"n1", "", ""}, {"n3", "", ""}, {"n2", "a", ""},
	} {
		if got := findNode(cluster, test.name, test.incarnation).GetIncarnation(); got != test.want {
			t.Errorf("findNode(%s, %s) = %s, want %s", test.name, test.incarnation, got, test.want)
		}
	}
}

func TestCompleteNode(t *testing.T) {
	h := newHarness(t, always(shownCluster()))
	h.system.out = &bytes.Buffer{}
	if got := h.run("__complete", "cluster", "drain", "n"); !strings.HasPrefix(got.out, "n1\nn2\nn3\n:") {
		t.Errorf("%+v", got)
	}
	h = newHarness(t, func(proto.Message) (proto.Message, error) { return nil, errors.New("gone") })
	if got := h.run("__complete", "cluster", "drain", "n"); !strings.HasPrefix(got.out, ":") {
		t.Errorf("%+v", got)
	}
}
