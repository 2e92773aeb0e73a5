package cluster

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/node"
)

// servedWithin is within what time every shard must be served again through every node that the others reach.
const servedWithin = 5 * time.Second

// queueIn returns a queue whose only partition is in a shard.
func queueIn(shard uint32) string {
	for i := 0; ; i++ {
		if queue := fmt.Sprintf("q%d", i); node.ShardOf(queue, 0, testShards) == shard {
			return queue
		}
	}
}

// expectServed fails the test unless puts to every shard are applied soon through each of some members.
func expectServed(t *testing.T, through ...*member) {
	t.Helper()
	began := time.Now()
	for _, m := range through {
		for shard := range uint32(testShards) {
			await(t, "a put through "+m.name, func() bool { return put(m, queueIn(shard)) == nil })
		}
	}
	if took := time.Since(began); took > servedWithin {
		t.Errorf("puts were served after %v", took)
	}
}

// TestLeaderThatNobodyReaches: the others cannot connect to a node, whose own connections work. It gives up what it leads, of which they would hear nothing, and is
// not elected again; once they reach it, it gets its part back.
func TestLeaderThatNobodyReaches(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		network, all := threeMembers(t, dir)
		for _, m := range all {
			for shard := range uint32(testShards) { // so that there are connections
				if err := put(m, queueIn(shard)); err != nil {
					t.Fatal(err)
				}
			}
		}
		sick, others := leads(t, groupName, all)
		network.drop(sick.addr, true, others[0].addr, others[1].addr)
		expectServed(t, others...)
		for range 20 {
			time.Sleep(time.Second) // in the bubble
			if st := sick.node.Status(); slices.ContainsFunc(slices.Concat(st.Shards, st.Groups), func(g node.GroupStatus) bool { return g.Serving }) {
				t.Fatal("it leads something again")
			}
		}
		expectServed(t, others...)
		if err := put(sick, queueIn(0)); err != nil {
			t.Errorf("through the node itself: %v", err)
		}
		network.drop(sick.addr, false, others[0].addr, others[1].addr)
		await(t, "an even cluster", func() bool { return settled(others[0].cluster, 3, all...) })
		expectServed(t, all...)
	})
}
