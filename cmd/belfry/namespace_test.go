package main

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/clitest"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

func namespaceCases() []commandCase {
	billing := &belfryv1.Namespace{
		Name: "billing", MaxJobs: 1000000, MaxBytes: 1 << 30, MaxInFlight: 50, PutsPerSecond: 2000,
	}
	return []commandCase{
		{
			name: "namespace list", args: []string{"namespace", "list"}, sent: &belfryv1.ListNamespacesRequest{},
			answer: &belfryv1.ListNamespacesResponse{Namespaces: []*belfryv1.Namespace{billing, {
				Name: "shop", MaxJobs: 5, PendingShards: []uint32{2, 4},
			}}},
			out: "NAMESPACE  JOBS       SIZE     IN FLIGHT  PUTS/S  \n" +
				"billing    1,000,000  1.0 GiB  50         2,000   \n" +
				"shop       5          -        -          -       does not hold yet in shard 2, shard 4\n",
		},
		{
			name: "namespace list without any", args: []string{"namespaces", "ls"}, sent: &belfryv1.ListNamespacesRequest{},
			answer: &belfryv1.ListNamespacesResponse{}, out: "no quotas\n",
		},
		{
			name: "namespace show", args: []string{"namespace", "show", "billing"},
			sent:   &belfryv1.GetNamespaceRequest{Name: "billing"},
			answer: &belfryv1.GetNamespaceResponse{Namespace: billing, Queues: 3, Jobs: 1234, Bytes: 5 << 20, InFlight: 7},
			out: "namespace  billing\nqueues     3\njobs       1,234 of 1,000,000\nsize       5.0 MiB of 1.0 GiB\nin " +
				"flight  7 of 50\nputs       2,000 a second\n",
		},
		{
			name: "namespace show of one without a quota", args: []string{"namespace", "show", "x"},
			sent:   &belfryv1.GetNamespaceRequest{Name: "x"},
			answer: &belfryv1.GetNamespaceResponse{Namespace: &belfryv1.Namespace{Name: "x"}},
			out: "namespace  x (no quota, and no queue)\nqueues     0\njobs       0, no limit\nsize       0 bytes, no " +
				"limit\nin flight  0, no limit\nputs       no limit\n",
		},
		{
			name: "namespace set", args: []string{"namespace", "set", "billing", "--max-jobs", "0", "--puts-per-second", "2000"},
			sent:   &belfryv1.SetNamespaceRequest{Name: "billing", MaxJobs: proto.Uint64(0), PutsPerSecond: proto.Uint64(2000)},
			answer: &belfryv1.SetNamespaceResponse{Namespace: &belfryv1.Namespace{Name: "billing", PutsPerSecond: 2000}},
			out:    "NAMESPACE  JOBS  SIZE  IN FLIGHT  PUTS/S  \nbilling    -     -     -          2,000   \n",
		},
		{
			name: "namespace remove", args: []string{"namespace", "remove", "billing"},
			sent:   &belfryv1.DeleteNamespaceRequest{Name: "billing"},
			answer: &belfryv1.DeleteNamespaceResponse{Found: true}, out: "billing has no quota any more\n",
		},
	}
}

// TestNamespaceSetNeedsALimit names the flags, before anything is sent.
func TestNamespaceSetNeedsALimit(t *testing.T) {
	h := newHarness(t, nil)
	if got := h.Run("namespace", "set", "q1"); got.Code != cli.CodeUsage ||
		!strings.Contains(got.Err, "give --max-jobs, --max-bytes") || len(h.Requests) != 0 {
		t.Errorf("%+v", got)
	}
}

// TestNamespaceRemoveOfNothing names what has no quota, with the exit code of what is not found.
func TestNamespaceRemoveOfNothing(t *testing.T) {
	h := newHarness(t, clitest.Always(&belfryv1.DeleteNamespaceResponse{}))
	for _, output := range []string{"table", "json"} {
		got := h.Run("namespace", "remove", "biling", "-o", output)
		if got.Code != cli.CodeNotFound || got.Out != "" || !strings.Contains(got.Err, `namespace "biling" has no quota`) {
			t.Errorf("%s: %+v, want exit code 3 and the name", output, got)
		}
	}
}
