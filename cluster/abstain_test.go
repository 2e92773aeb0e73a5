package cluster

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/cluster/catalog"
	"github.com/belfrydb/belfry/cluster/placement"
	"github.com/belfrydb/belfry/cluster/routing"
	"github.com/belfrydb/belfry/node"
)

// servedWithin is within what time every shard must be served again through every node that the
// others reach. It is less than a call waits for a leader: none of those that come with the fault
// is refused for want of one.
const servedWithin = routing.LeaderWait - 500*time.Millisecond

// queueIn returns a queue whose only partition is in a shard.
func queueIn(shard uint32) string {
	for i := 0; ; i++ {
		if queue := fmt.Sprintf("q%d", i); node.ShardOf(queue, 0, testShards) == shard {
			return queue
		}
	}
}

// expectServed fails the test unless puts to every shard are applied soon through each of some
// members.
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

// TestUnreachableLeader: the others cannot connect to a node, whose own connections work. It gives
// up its leaderships, since the calls of the others do not arrive, and is not elected again. Once
// they reach it, it gets its part back.
func TestUnreachableLeader(t *testing.T) {
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
		sick, others := leads(t, catalog.GroupName, all)
		network.Drop(sick.addr, others[0].addr, others[1].addr)
		expectServed(t, others...)
		for range 20 {
			time.Sleep(time.Second) // in the bubble
			if st := sick.node.Status(); slices.ContainsFunc(slices.Concat(st.Shards, st.Groups), func(g node.GroupStatus) bool {
				return g.Serving
			}) {
				t.Fatal("it leads something again")
			}
		}
		expectServed(t, others...)
		if err := put(sick, queueIn(0)); err != nil {
			t.Errorf("through the node itself: %v", err)
		}
		network.Pass(sick.addr, others[0].addr, others[1].addr)
		await(t, "an even cluster", func() bool { return settled(others[0].cluster, 3, all...) })
		expectServed(t, all...)
	})
}

// TestPartialPartition: two of three nodes do not reach each other, and one of the three leads the
// catalog. Soon all queues are served through all nodes, and the third node leads all shards. Each
// node knows of all others, also of the one that it does not reach. Afterwards all is as before.
func TestPartialPartition(t *testing.T) {
	for _, test := range []struct {
		name string
		pair func(leader *member, others []*member) (x, y, hub *member)
	}{
		{"beside the catalog's leader", func(leader *member, others []*member) (x, y, hub *member) {
			return others[0], others[1], leader
		}},
		{"with the catalog's leader", func(leader *member, others []*member) (x, y, hub *member) {
			return leader, others[0], others[1]
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				network, all := threeMembers(t, dir)
				expectServed(t, all...) // so that there are connections
				leader, others := leads(t, catalog.GroupName, all)
				x, y, hub := test.pair(leader, others)
				network.Drop(x.addr, y.addr)
				network.Drop(y.addr, x.addr)
				expectServed(t, all...)
				await(t, "the node that all reach leads all", func() bool { return groupsLed(hub) == testShards+1 })
				for _, m := range all {
					members, _ := m.cluster.Members(t.Context())
					for _, got := range members {
						switch {
						case got.Report == nil:
							t.Errorf("%s does not hear of %s", m.name, got.Name)
						case got.ServerID == x.id() && reaches(got.Report, y.id()), got.ServerID == y.id() && reaches(got.Report, x.id()):
							t.Errorf("%s is told by %s that it reaches all", m.name, got.Name)
						}
					}
				}
				expectServed(t, all...)
				network.Pass(x.addr, y.addr)
				network.Pass(y.addr, x.addr)
				await(t, "an even cluster", func() bool { return settled(hub.cluster, 3, all...) })
				expectServed(t, all...)
			})
		})
	}
}

// reaches reports whether a node has not said that it does not reach another one.
func reaches(r *placement.Report, serverID string) bool {
	return !slices.ContainsFunc(r.Unreached, func(u placement.Unreached) bool { return u.ServerID == serverID })
}
