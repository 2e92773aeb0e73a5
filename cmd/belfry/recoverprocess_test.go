package main

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// TestRecoverFromOneOfThree destroys two of three nodes. The third has every job, but no quorum;
// recovered, it serves alone, the old nodes cannot come near it, and new ones join.
func TestRecoverFromOneOfThree(t *testing.T) {
	t.Parallel()
	program := launcher
	dirs := []string{t.TempDir(), t.TempDir(), t.TempDir()}
	n1 := serve(t, program, dirs[0], "--node-id", "n1", "--shards", "2")
	n2 := serve(t, program, dirs[1], "--node-id", "n2", "--join", n1.gossip)
	n3 := serve(t, program, dirs[2], "--node-id", "n3", "--join", n1.gossip)
	awaitCluster(t, n3, "three voters of each shard", func(code int, c *belfryv1.GetClusterResponse) bool {
		return code == 0 && len(c.Nodes) == 3 && votersOfAll(c, 3) && len(c.Catalog.GetVoters()) == 3
	})
	// which the survivor alone will not have
	if got := n1.run(program, "cluster", "settings", "--min-voters", "2"); got.Code != 0 {
		t.Fatalf("asking for two voters: %+v", got)
	}
	if got := n1.run(program, "queue", "create", "parts", "--partitions", "2"); got.Code != 0 {
		t.Fatalf("creating a queue: %+v", got)
	}
	for i := range 20 {
		if got := n1.run(program, "put", "parts", fmt.Sprintf("job %d", i), "--delay", "1h", "--id",
			fmt.Sprintf("order-%d", i)); got.Code != 0 {
			t.Fatalf("put: %+v", got)
		}
	}
	old := clusterOf(t, n1, program)
	// n3 is the survivor, which founded nothing. It may be the slower one of a majority: wait until it
	// has all.
	awaitCluster(t, n3, "replicas that are equal", func(_ int, c *belfryv1.GetClusterResponse) bool {
		return equalReplicas(c)
	})
	n3.refuses(cli.CodeError, "in use", "recover", "--data", dirs[2], "--confirm", old.ClusterId)
	for _, p := range []*process{n1, n2, n3} {
		p.signal(syscall.SIGKILL)
		p.end()
	}
	if err := os.RemoveAll(dirs[0]); err != nil {
		t.Fatal(err)
	}

	got := n3.run(program, "recover", "--data", dirs[2])
	for _, words := range []string{"shard-0", "shard-1", "catalog", "LOST", old.ClusterId} {
		if !strings.Contains(got.Out, words) || got.Code != cli.CodeUsage ||
			!strings.Contains(got.Err, "nothing was changed") {
			t.Errorf("looking: %+v, want %q", got, words)
		}
	}
	n3.refuses(cli.CodeUsage, "nothing was changed", "recover", "--data", dirs[2], "--confirm", "no")
	if got := n3.run(program, "recover", "--data", dirs[2], "--confirm", old.ClusterId); got.Code != 0 {
		t.Fatalf("recovering: %+v", got)
	}
	alone := serve(t, program, dirs[2])
	awaitCluster(t, alone, "one node that serves all", func(code int, c *belfryv1.GetClusterResponse) bool {
		return code == 0 && len(c.Nodes) == 1 && c.Nodes[0].Leads == 2 && c.ClusterId != old.ClusterId
	})
	if got := alone.run(program, "list", "parts"); got.Code != 0 || strings.Count(got.Out, "order-") != 20 {
		t.Errorf("after the recovery: %+v, want 20 jobs", got)
	}
	if got := alone.run(program, "put", "parts", "more", "--id", "more"); got.Code != 0 {
		t.Errorf("put: %+v", got)
	}

	back := serve(t, program, dirs[1], "--join", alone.gossip) // with its old data
	n4 := serve(t, program, t.TempDir(), "--node-id", "n4", "--join", alone.gossip)
	awaitCluster(t, n4, "two voters of each shard", func(_ int, c *belfryv1.GetClusterResponse) bool {
		return len(c.Nodes) == 2 && votersOfAll(c, 2) && c.Nodes[0].Name == "n3" && c.Nodes[1].Name == "n4"
	})
	if got := clusterOf(t, back, program); got.ClusterId != old.ClusterId {
		t.Errorf("a node of the old cluster is in cluster %s", got.ClusterId)
	}
}

// equalReplicas reports whether all replicas of all groups are as far as each other.
func equalReplicas(c *belfryv1.GetClusterResponse) bool {
	groups := [][]*belfryv1.Replica{c.Catalog.GetReplicas()}
	for _, s := range c.Shards {
		groups = append(groups, s.Replicas)
	}
	for _, replicas := range groups {
		for _, r := range replicas {
			if r.Silent || r.AppliedIndex != replicas[0].AppliedIndex || r.Digest != replicas[0].Digest {
				return false
			}
		}
	}
	return true
}
