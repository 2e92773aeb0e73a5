package main

import (
	"strings"
	"testing"
	"time"

	"github.com/belfrydb/belfry/cmd/belfry/cli/clitest"
	"github.com/belfrydb/belfry/node"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/codec"
)

// TestRatesAreThoseOfAllNodes: what went through one node is told by every node, and by each leader
// that comes after.
func TestRatesAreThoseOfAllNodes(t *testing.T) {
	t.Parallel()
	program := launcher
	start := func(name string, more ...string) *process {
		return serve(t, program, t.TempDir(), append([]string{"--node-id", name, "--shards", "2"}, more...)...)
	}
	n1 := start("n1")
	nodes := []*process{n1, start("n2", "--join", n1.gossip), start("n3", "--join", n1.gossip)}
	awaitCluster(t, n1, "three voters", func(code int, c *belfryv1.GetClusterResponse) bool {
		return code == 0 && len(c.Nodes) == 3 && votersOfAll(c, 3)
	})
	for _, p := range nodes {
		awaitCluster(t, p, "all nodes to speak format 2", func(_ int, c *belfryv1.GetClusterResponse) bool {
			return c.GetFormat() >= 2
		})
	}
	queue := "orders"
	for node.ShardOf(queue, 0, 2) != 1 { // the shard whose leader is moved
		queue += "s"
	}
	const puts = 12
	all := 0
	expect := func(when string) {
		t.Helper()
		all++
		lines := strings.Repeat(`{"queue":"`+queue+`","text":"x"}`+"\n", puts)
		if got := nodes[1].run(program, "put", "--file", clitest.WriteFile(t, "jobs.ndjson", lines)); got.Code != 0 {
			t.Fatalf("%+v", got)
		}
		if got := nodes[2].run(program, "reserve", queue, "-n", "3"); got.Code != 0 {
			t.Fatalf("%+v", got)
		}
		for i, p := range nodes {
			got := p.run(program, "queue", "show", queue, "-o", "json")
			response := &belfryv1.GetQueueResponse{}
			if err := codec.JSON().Unmarshal([]byte(got.Out), response); err != nil {
				t.Fatalf("%s, node %d: %+v, %v", when, i+1, got, err)
			}
			// What was put before may have left the minute meanwhile.
			rates, late := response.GetQueue().GetRates(), response.GetQueue().GetLateness()
			if rate := rates.GetPutsPerSecond(); rate < puts/60.0 || rate > float64(all*puts)/60 {
				t.Errorf("%s, node %d tells of %v puts a second", when, i+1, rate)
			}
			if late.GetJobs() < 3 || late.GetJobs() > uint32(3*all) ||
				rates.GetWindow().AsDuration() != time.Minute { //nolint:gosec // two rounds
				t.Errorf("%s, node %d tells %v and %v", when, i+1, rates, late)
			}
		}
	}
	expect("at first")
	transferLeader(t, n1, program)
	expect("after the leadership went on")
}
