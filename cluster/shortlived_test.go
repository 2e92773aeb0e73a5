package cluster

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/cluster/catalog"
	"github.com/belfrydb/belfry/cluster/placement"
	"github.com/belfrydb/belfry/node"
)

// TestVoterStaysIfItsSuccessorIsGone asks a leader to remove a voter after the voter that the plan
// relied on has just gone.
func TestVoterStaysIfItsSuccessorIsGone(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		network, all := threeMembers(t, dir)
		leader, others := leads(t, catalog.ShardGroup(0), all)
		members := leader.report().Group(catalog.ShardGroup(0))
		ask := func() error {
			return others[0].cluster.members.Change(t.Context(), leader.serverID(), removal(members, others[0].serverID()))
		}
		network.Isolate(others[1].addr)
		time.Sleep(time.Second)
		if err := ask(); !errors.Is(err, node.ErrSilent) {
			t.Errorf("while the other voter is away: %v", err)
		}
		if now := leader.report().Group(catalog.ShardGroup(0)); !slices.Equal(now.Voters, members.Voters) {
			t.Errorf("the voters are %v, they were %v", now.Voters, members.Voters)
		}
		network.Reconnect(others[1].addr)
		// by the leader of that moment: the one that was away led something too
		await(t, "the removal when it is back", func() bool {
			if leader = leaderOf(0, all); leader == nil {
				return false
			}
			members = leader.report().Group(catalog.ShardGroup(0))
			goes := all[(slices.Index(all, leader)+1)%len(all)].serverID()
			err := others[0].cluster.members.Change(t.Context(), leader.serverID(), removal(members, goes))
			if err != nil && node.OutcomeOf(err) != node.NotApplied {
				t.Fatalf("when it is back: %v", err)
			}
			return err == nil
		})
	})
}

// leaderOf returns the member that leads a shard, nil if there is none.
func leaderOf(shard uint32, all []*member) *member {
	if i := slices.IndexFunc(all, func(m *member) bool { return m.node.Serves(shard) }); i >= 0 {
		return all[i]
	}
	return nil
}

// TestChangeReliesOnAsManyAsItNeeds: with one of three members away, a change that needs two of
// them is considered. A change that needs all of them is refused before that.
func TestChangeReliesOnAsManyAsItNeeds(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		network, all := threeMembers(t, dir)
		_, others := leads(t, catalog.ShardGroup(0), all)
		asker, away := others[0], others[1]
		c := placement.Change{Group: catalog.ShardGroup(0), After: 1} // and no action: it changes nothing
		for _, m := range all {
			c.Alive = append(c.Alive, m.serverID())
		}
		network.Isolate(away.addr)
		ask := func(need int) error {
			c.Need = need
			leader, err := asker.node.Leader(0)
			if err != nil {
				t.Fatal(err)
			}
			return asker.cluster.members.Change(t.Context(), leader, c)
		}
		await(t, "two members that answer, and one that does not", func() bool {
			two, three, every := ask(2), ask(3), ask(0)
			return errors.Is(two, node.ErrCanceled) && errors.Is(three, node.ErrSilent) &&
				strings.Contains(three.Error(), away.serverID()) && errors.Is(every, node.ErrSilent)
		})
	})
}

// removal is the change that placement requests to remove a sound voter of three from a group of
// which all voters are sound.
func removal(g *placement.GroupReport, server string) placement.Change {
	stay := slices.DeleteFunc(slices.Clone(g.Voters), func(id string) bool { return id == server })
	return placement.Change{
		Group: g.Group, Action: placement.Remove, ServerID: server, After: g.Members, Alive: stay, Need: len(stay),
	}
}
