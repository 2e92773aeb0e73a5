package cluster

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/belfrydb/belfry/node/admit"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
)

func TestPlan(t *testing.T) {
	h := newHarness(t, nil)
	of := func(args ...string) (v planned) {
		t.Helper()
		got := h.Run(append([]string{"plan", "-o", "json"}, args...)...)
		if err := json.Unmarshal([]byte(got.Out), &v); err != nil || got.Code != cli.CodeOK {
			t.Fatalf("%q: %+v, %v", args, got, err)
		}
		return v
	}
	three := of("--jobs", "50M", "--body", "200")
	if three.JobsPerNode != 50_000_000 || three.UsedBytesPerNode < three.JobsPerNode*three.BytesPerJobInUse ||
		three.BytesPerJobInUse <= three.BytesPerJob || three.BytesPerJob < 232 {
		t.Errorf("%+v", three)
	}
	if least := admit.MemoryFor(three.UsedBytesPerNode); three.MemoryBytesPerNode < least ||
		three.MemoryBytesPerNode > least+64<<20 || least < three.UsedBytesPerNode*5/4 {
		t.Errorf("%+v, want a limit of about %d", three, least)
	}
	if six := of("--jobs", "50M", "--nodes", "6"); six.JobsPerNode != 25_000_000 ||
		six.MemoryBytesPerNode > three.MemoryBytesPerNode*6/10 {
		t.Errorf("on six nodes: %+v", six)
	}
	if alone := of("--jobs", "50M", "--nodes", "1"); alone.JobsPerNode != 50_000_000 {
		t.Errorf("on one node: %+v", alone)
	}
	if named := of("--jobs", "50M", "--id", "36"); named.BytesPerJob < three.BytesPerJob+36 ||
		named.BytesPerJobInUse < three.BytesPerJobInUse+2*36 {
		t.Errorf("with ids: %+v", named)
	}
	for args, want := range map[string]string{
		"": "--jobs is missing", "--jobs many": "want a number of jobs such as 500000",
		"--jobs 1M --body -1": "--body: have -1, want 0 to 1048576", "--jobs 1M --nodes 0": "--nodes: have 0, want 1 to 1000",
	} {
		if got := h.Run(append([]string{"plan"}, strings.Fields(args)...)...); got.Code != cli.CodeUsage ||
			!strings.Contains(got.Err, want) {
			t.Errorf("plan %s: %+v, want %q", args, got, want)
		}
	}
	if got := h.Run("plan", "--jobs", "1M"); got.Code != cli.CodeOK || !strings.Contains(got.Out, "memory of each node") {
		t.Errorf("%+v", got)
	}
}
