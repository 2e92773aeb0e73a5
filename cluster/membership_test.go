package cluster

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/belfrydb/belfry/cluster/catalog"
	"github.com/belfrydb/belfry/cluster/placement"
	"github.com/belfrydb/belfry/cluster/routing/routingtest"
	"github.com/belfrydb/belfry/node"
)

// threeMembers starts three nodes and waits until each shard is on all of them.
func threeMembers(t *testing.T, dir string) (network *routingtest.Network, all []*member) {
	t.Helper()
	network, a, b, c := three(t, dir)
	return network, []*member{a, b, c}
}

// leads splits the nodes into the leader of a group and the others.
func leads(t *testing.T, group string, all []*member) (leader *member, others []*member) {
	t.Helper()
	for _, m := range all {
		if g := m.report().Group(group); g != nil && g.Serving {
			leader = m
		} else {
			others = append(others, m)
		}
	}
	if leader == nil {
		t.Fatalf("nobody leads %s", group)
	}
	return leader, others
}

func (m *member) report() *placement.Report {
	r := m.cluster.members.self()
	return &r
}

func (m *member) serverID() string { return m.node.Status().ServerID }

// TestReplicaStaysUntilItsRemovalIsCommitted asks a leader that is about to remove a replica and
// cannot commit that.
func TestReplicaStaysUntilItsRemovalIsCommitted(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		network, all := threeMembers(t, dir)
		leader, others := leads(t, catalog.ShardGroup(0), all)
		leaving, cutOff := others[0], others[1]
		record := catalog.Placement{Shard: 0, Servers: []string{leader.serverID(), cutOff.serverID()}}
		network.Isolate(cutOff.addr)
		ended := make(chan error, 1)
		go func() {
			ended <- leader.node.RemoveServer(t.Context(), catalog.ShardGroup(0), leaving.serverID(), 0)
		}()
		synctest.Wait()
		if err := leaving.cluster.members.checkRemoved(t.Context(), record); err == nil {
			t.Error("the replica may go although its removal is not committed")
		}
		if err := <-ended; err == nil {
			t.Error("a removal was committed by one of two")
		}
		network.Reconnect(cutOff.addr)
		await(t, "the removal", func() bool {
			for _, m := range all {
				if err := m.node.RemoveServer(t.Context(), catalog.ShardGroup(0), leaving.serverID(), 0); err == nil {
					return true
				}
			}
			return false
		})
		await(t, "the leader to say so", func() bool {
			return leaving.cluster.members.checkRemoved(t.Context(), record) == nil
		})
	})
}

// TestStepsFromOldMembers has a leader of the catalog plan by what another has changed since.
func TestStepsFromOldMembers(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		_, all := threeMembers(t, dir)
		leader, others := leads(t, catalog.ShardGroup(0), all)
		after := leader.report().Group(catalog.ShardGroup(0)).Members
		step := func(action placement.Action, server string) error {
			return others[0].cluster.members.Change(t.Context(), leader.serverID(), placement.Change{
				Group: catalog.ShardGroup(0), Action: action, ServerID: server, After: after,
			})
		}
		if err := step(placement.Remove, others[0].serverID()); err != nil {
			t.Fatal(err)
		}
		for _, stale := range []placement.Action{placement.Remove, placement.Promote, placement.Demote,
			placement.AddNonvoter} {
			if err := step(stale, others[1].serverID()); !errors.Is(err, node.ErrOvertaken) {
				t.Errorf("%s after another change gives %v", stale, err)
			}
		}
		if after = 0; !errors.Is(step(placement.Remove, others[1].serverID()), node.ErrCanceled) {
			t.Error("a change that does not say what it was made from was not refused")
		}
		if g := leader.report().Group(catalog.ShardGroup(0)); !slices.Contains(g.Voters, others[1].serverID()) ||
			len(g.Voters) != 2 {
			t.Errorf("the members are %+v", g)
		}
	})
}
