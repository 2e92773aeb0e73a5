package main

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/clitest"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
)

// TestClusterOfProcesses runs three servers, looks at them, drains one under the eyes of the
// others, stops and removes it.
func TestClusterOfProcesses(t *testing.T) {
	t.Parallel()
	program := launcher
	const shards = 2
	dirs := map[string]string{}
	start := func(name string, more ...string) *process {
		dirs[name] = t.TempDir()
		return serve(t, program, dirs[name],
			append([]string{"--node-id", name, "--zone", "z" + name, "--shards", fmt.Sprint(shards)}, more...)...)
	}
	n1 := start("n1")
	if n1.peers == "" {
		t.Fatal("the server does not print where other nodes reach it")
	}
	n2, n3 := start("n2", "--join", n1.gossip), start("n3", "--join", n1.gossip)
	awaitCluster(t, n2, "three voters of each shard", func(code int, c *belfryv1.GetClusterResponse) bool {
		return code == 0 && len(c.Nodes) == 3 && votersOfAll(c, 3) && c.Nodes[0].Leads < shards
	})
	status := awaitCluster(t, n3, "all nodes to answer the third", func(code int, c *belfryv1.GetClusterResponse) bool {
		return code == 0 && len(c.Nodes) == 3 && c.Catalog.GetLeader() != ""
	})
	for i, p := range []*process{n1, n2, n3} {
		n := status.Nodes[i]
		if n.Address != p.address || n.PeerAddress != p.peers || n.Zone != fmt.Sprintf("zn%d", i+1) ||
			n.State != belfryv1.NodeState_NODE_STATE_LIVE || len(n.Incarnation) != 16 || n.Version == "" {
			t.Errorf("node %d: %v", i+1, n)
		}
	}
	if status.AnsweredBy != "n3" || status.ReplicationFactor != 3 || len(status.Shards) != shards {
		t.Errorf("%v", status)
	}
	n1.refuses(cli.CodeUsage, "the nodes are n1, n2, n3", "cluster", "drain", "n9")

	n1.refuses(cli.CodeUsage, "2 voters instead of 3", "cluster", "drain", "n3")
	awaitCluster(t, n1, "all to be as before the drain that was refused",
		func(code int, c *belfryv1.GetClusterResponse) bool {
			return code == 0 && len(c.Nodes) == 3 && !c.Nodes[2].Draining
		})
	if got := n1.run(program, "cluster", "drain", "n3", "--force"); got.Code != 0 ||
		!strings.HasPrefix(got.Out, "n3 is empty") {
		t.Fatalf("draining: %+v", got)
	}
	awaitCluster(t, n1, "the third to be empty", func(_ int, c *belfryv1.GetClusterResponse) bool {
		return c.Nodes[2].State == belfryv1.NodeState_NODE_STATE_DRAINING && votersOfAll(c, 2) && lacksVoters(c)
	})
	if got := n3.run(program, "put", "orders", "through the empty node"); got.Code != 0 {
		t.Errorf("a node that is empty does not forward: %+v", got)
	}
	n1.refuses(cli.CodeUsage, "still answers", "cluster", "remove", "n3", "--yes")
	transferLeader(t, n1, program)

	n3.signal(syscall.SIGKILL)
	n3.end()
	awaitCluster(t, n1, "n3 to be missed", func(code int, c *belfryv1.GetClusterResponse) bool {
		return code == cli.CodeUnhealthy && len(c.Problems) == 2 && c.Problems[0] == "node n3 does not answer" &&
			lacksVoters(c)
	})
	if got := n1.run(program, "cluster", "status"); got.Code != cli.CodeUnhealthy {
		t.Errorf("the status of a cluster that misses a node: %+v", got)
	}
	if got := n1.run(program, "cluster", "remove", "n3", "--yes"); got.Code != 0 || got.Out != "removed n3\n" {
		t.Errorf("removing: %+v", got)
	}
	awaitCluster(t, n2, "two nodes", func(code int, c *belfryv1.GetClusterResponse) bool {
		return code == cli.CodeUnhealthy && len(c.Nodes) == 2 && len(c.Catalog.GetVoters()) == 2 && len(c.Problems) == 1 &&
			lacksVoters(c)
	})
	expectRefused(t, dirs["n3"], program, status.ClusterId, n1.gossip)
	awaitCluster(t, n1, "two nodes after the return of the third", func(_ int, c *belfryv1.GetClusterResponse) bool {
		return len(c.Nodes) == 2 && len(c.Problems) == 1 && lacksVoters(c)
	})
}

// expectRefused starts a node that was removed on its old data. The second time the node knows by
// itself that it was removed.
func expectRefused(t *testing.T, dir, program, clusterID, join string) {
	t.Helper()
	for _, more := range [][]string{{"--join", join}, nil} {
		args := append([]string{"serve", "--data", dir, "--listen", "127.0.0.1:0", "--peer-listen", "127.0.0.1:0",
			"--log-format", "text"}, more...)
		want := "was removed from cluster " + clusterID + "; what is in " + dir + " is of no use"
		if got := runProgram(t, program, nil, args...); got.Code != cli.CodeError ||
			!strings.Contains(got.Err, "belfry: n3.") || !strings.Contains(got.Err, want) {
			t.Errorf("the removed node, started again %v: %+v", more, got)
		} else if strings.Contains(got.Err, "msg=ready") {
			t.Errorf("the removed node, started again %v, called itself ready:\n%s", more, got.Err)
		}
	}
}

// lacksVoters reports whether the last problem is that all shards have two voters instead of three,
// as each of them says.
func lacksVoters(c *belfryv1.GetClusterResponse) bool {
	last := len(c.Problems) - 1
	return last >= 0 && strings.HasPrefix(c.Problems[last], "under-replicated (wanted 3 voters, has 2): shards 0, 1") &&
		c.Shards[0].VotersWanted == 3
}

// transferLeader has the leader of the second of two shards hand over, and sees it where it was
// asked to be: what is uneven by that, placement makes even with the first.
func transferLeader(t *testing.T, p *process, program string) {
	t.Helper()
	to := "n1"
	if clusterOf(t, p, program).Shards[1].Leader == to {
		to = "n2"
	}
	var got clitest.Outcome
	// which is refused while a busy node does not answer in time
	awaitEvery(t, 50*time.Millisecond, "the transfer to "+to, func() bool {
		got = p.run(program, "cluster", "transfer", "1", "--to", to)
		return got.Code == 0
	})
	if !strings.Contains(got.Out, to) {
		t.Errorf("transferring: %+v", got)
	}
	awaitCluster(t, p, to+" to lead", func(_ int, c *belfryv1.GetClusterResponse) bool { return c.Shards[1].Leader == to })
}

// votersOfAll reports whether every shard has so many voters and no other members.
func votersOfAll(c *belfryv1.GetClusterResponse, voters int) bool {
	for _, s := range c.Shards {
		if len(s.Voters) != voters || len(s.Nonvoters) > 0 {
			return false
		}
	}
	return true
}

// clusterOf asks a server for the cluster.
func clusterOf(t *testing.T, p *process, program string) *belfryv1.GetClusterResponse {
	t.Helper()
	c, got := &belfryv1.GetClusterResponse{}, p.run(program, "cluster", "status", "-o", "json")
	if err := cli.DecodeJSON([]byte(got.Out), c); err != nil {
		t.Fatalf("%v: %+v", err, got)
	}
	return c
}

// awaitCluster asks a server until its answer, and the exit code that `cluster status` makes of it,
// are as wanted, and returns the answer. A process for each question would leave the servers little
// of the machine.
func awaitCluster(t *testing.T, p *process, what string,
	yes func(code int, c *belfryv1.GetClusterResponse) bool) (last *belfryv1.GetClusterResponse) {
	t.Helper()
	caller, url := p.caller()
	admin := belfryv1connect.NewAdminServiceClient(caller, url)
	var lastErr error
	defer func() {
		if t.Failed() {
			t.Logf("waited for %s; last seen: %v, %v\nthe server's log:\n%s", what, last, lastErr, p.stderr)
		}
	}()
	awaitEvery(t, 50*time.Millisecond, what, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if last, lastErr = admin.GetCluster(ctx, &belfryv1.GetClusterRequest{}); lastErr != nil {
			return false
		}
		if len(last.Problems) > 0 {
			return yes(cli.CodeUnhealthy, last)
		}
		return yes(0, last)
	})
	return last
}
