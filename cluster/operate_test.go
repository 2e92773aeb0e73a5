package cluster

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/belfrydb/belfry/cluster/catalog"
	"github.com/belfrydb/belfry/cluster/routing/routingtest"
	"github.com/belfrydb/belfry/node"
)

// holds counts the members that a server is, and the shards that it leads, as the leaders of the
// shards say.
func holds(t *testing.T, c *Cluster, serverID string) (replicas, leads int) {
	t.Helper()
	all, _ := c.Members(t.Context())
	for _, m := range all {
		for shard := range uint32(testShards) {
			g := m.Report.Group(catalog.ShardGroup(shard))
			if g == nil || !g.Serving {
				continue
			}
			if slices.Contains(slices.Concat(g.Voters, g.Nonvoters), serverID) {
				replicas++
			}
			if m.ServerID == serverID {
				leads++
			}
		}
	}
	return replicas, leads
}

// TestDrainedNode empties a node, which goes on to serve every call, and fills it again.
func TestDrainedNode(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		network := routingtest.NewNetwork()
		a := newMember(t, network, dir, "a", nil)
		b, c := newMember(t, network, dir, "b", a), newMember(t, network, dir, "c", a)
		await(t, "an even cluster", func() bool { return settled(a.cluster, 3, a, b, c) })
		drained := c.node.Status().ServerID
		if err := b.cluster.Drain(t.Context(), drained, 3); !errors.Is(err, catalog.ErrNodeNeeded) {
			t.Errorf("a drain that leaves two nodes of three gives %v", err)
		}
		if err := b.cluster.Drain(t.Context(), drained, 0); err != nil {
			t.Fatal(err)
		}
		await(t, "an empty node", func() bool {
			replicas, leads := holds(t, a.cluster, drained)
			return replicas+leads == 0 && len(catalogVoters(a, b)) == 2
		})
		if voters := catalogVoters(a, b); slices.Contains(voters, drained) {
			t.Errorf("the empty node still has a vote in the catalog: %v", voters)
		}
		// A replica that the leader does not know finds no leader; other nodes do. It is stopped
		// repeatedly until that is seen.
		await(t, "a replica without a leader", func() bool {
			if leader, err := c.node.Leader(0); err == nil && leader == "" {
				return true
			}
			_ = c.node.StartShard(t.Context(), 0) // it may be there
			leader, err := c.node.Leader(0)
			return err == nil && leader == ""
		})
		if server := c.cluster.Router().FindLeader(t.Context(), 0); server != a.node.Status().ServerID &&
			server != b.node.Status().ServerID {
			t.Errorf("calls of a shard of which only a forgotten replica is here go to %q", server)
		}
		// Started again, it remembers no leader of what it has left.
		c.stop()
		c.start(nil)
		for q := range testShards * 2 {
			await(t, "a put through a node that holds nothing", func() bool { return put(c, fmt.Sprintf("q%d", q)) == nil })
		}
		if err := b.cluster.Undrain(t.Context(), drained); err != nil {
			t.Fatal(err)
		}
		await(t, "an even cluster again", func() bool {
			return settled(a.cluster, 3, a, b, c) && len(catalogVoters(a, b, c)) == 3
		})
	})
}

func TestTransferAndRemove(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		network := routingtest.NewNetwork()
		a := newMember(t, network, dir, "a", nil)
		b, c := newMember(t, network, dir, "b", a), newMember(t, network, dir, "c", a)
		all := []*member{a, b, c}
		await(t, "an even cluster", func() bool { return settled(a.cluster, 3, all...) })
		from := slices.IndexFunc(all, func(m *member) bool { return m.node.Status().Shards[0].Serving })
		to := all[(from+1)%3]
		move := Transfer{Shard: 0, From: all[from].node.Status().ServerID, To: to.node.Status().ServerID}
		if err := all[(from+2)%3].cluster.TransferLeader(t.Context(), move); err != nil {
			t.Fatal(err)
		}
		await(t, "the new leader", func() bool { return to.node.Status().Shards[0].Serving })
		// Placement may have handed the shard back meanwhile; a node that does not lead refuses.
		if err := a.cluster.TransferLeader(t.Context(), move); err != nil && node.OutcomeOf(err) != node.NotApplied {
			t.Errorf("a transfer from who no longer leads: %v", err)
		}

		gone := c.node.Status().ServerID
		if err := a.cluster.Remove(t.Context(), gone); !errors.Is(err, ErrNodeAnswers) {
			t.Errorf("removing a node that runs: %v", err)
		}
		c.stop()
		await(t, "a leader of the catalog", func() bool { return a.cluster.Remove(t.Context(), gone) == nil })
		await(t, "two nodes that have everything", func() bool {
			return len(b.cluster.Nodes()) == 2 && settled(b.cluster, 2, a, b)
		})
		for what, err := range map[string]error{
			"remove": b.cluster.Remove(t.Context(), gone), "drain": b.cluster.Drain(t.Context(), gone, 0),
			"undrain": b.cluster.Undrain(t.Context(), gone),
		} {
			if !errors.Is(err, catalog.ErrUnknownNode) {
				t.Errorf("%s of a node that is gone: %v", what, err)
			}
		}
	})
}
