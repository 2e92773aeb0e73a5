package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/cluster/catalog"
	"github.com/belfrydb/belfry/cluster/placement"
	"github.com/belfrydb/belfry/cluster/routing"
	"github.com/belfrydb/belfry/cluster/routing/routingtest"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/node/storage/diskfault"
)

// groupsLed counts the groups, the catalog included, that a member leads.
func groupsLed(m *member) (n int) {
	st := m.node.Status()
	for _, g := range slices.Concat(st.Shards, st.Groups) {
		if g.Serving {
			n++
		}
	}
	return n
}

// TestNodeWithAConditionLeadsNothing: a node with a condition transfers all its leaderships, the
// catalog's too, and gets none back while the condition lasts. It keeps its replicas and votes.
func TestNodeWithAConditionLeadsNothing(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		tr := newTrio(t, dir)
		i := slices.IndexFunc(tr.all, func(m *member) bool { return m.cluster.Group().Serving() })
		if i < 0 {
			t.Fatal("the catalog has no leader")
		}
		sick, sound := tr.all[i], tr.all[(i+1)%3]
		const kind = node.ConditionKind("SOMETHING_NEW") // which no part of the node clears
		sick.node.RaiseCondition(kind, "it is too hot")
		raised := time.Now()
		await(t, "a node that leads nothing", func() bool { return groupsLed(sick) == 0 })
		if took := time.Since(raised); took > 3*time.Second {
			t.Errorf("the leaderships were transferred after %v", took)
		}
		for range 300 { // through many rounds of placement
			time.Sleep(100 * time.Millisecond)
			if n := groupsLed(sick); n > 0 {
				t.Fatalf("it leads %d groups again", n)
			}
		}
		for q := range 2 * testShards {
			for _, m := range tr.all {
				if err := put(m, fmt.Sprintf("q%d", q)); err != nil {
					t.Errorf("a put through %s: %v", m.name, err)
				}
			}
		}
		if replicas, _ := holds(t, sound.cluster, sick.node.Status().ServerID); replicas != testShards {
			t.Errorf("it has %d replicas, want %d", replicas, testShards)
		}
		all, _ := sound.cluster.Members(t.Context())
		if got := reportOf(all[i]).Conditions; len(got) != 1 || got[0].Kind != kind || got[0].Message == "" ||
			got[0].Since.IsZero() {
			t.Errorf("the others are told %+v", got)
		}
		sick.node.ClearCondition(kind)
		await(t, "an even cluster again", func() bool { return settled(sound.cluster, 3, tr.all...) })
	})
}

// TestWrongAddress: a node starts again and advertises an address without a listener. At first the
// others reach it at its old address. Once its new address is recorded it counts as unreached,
// although connections to the old one would work, and leads nothing.
func TestWrongAddress(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		tr := newTrio(t, dir)
		sick, others := tr.all[2], tr.all[:2]
		sick.stop()
		sick.told = "nowhere"
		sick.start(nil)
		began := time.Now()
		for _, m := range others {
			m.known.Hear(sick.id(), sick.told) // as gossip says
			sick.known.Hear(m.id(), m.addr)
		}
		await(t, "all others to say so", func() bool {
			for _, m := range others {
				all, _ := m.cluster.Members(t.Context())
				for i := range others {
					if !slices.ContainsFunc(reportOf(all[i]).Unreached, func(u placement.Unreached) bool {
						return u.ServerID == sick.id() && u.Address == sick.told
					}) {
						return false
					}
				}
			}
			return true
		})
		if took := time.Since(began); took > 15*time.Second {
			t.Errorf("it took %v", took)
		}
		await(t, "the others to lead all", func() bool { return groupsLed(others[0])+groupsLed(others[1]) == testShards+1 })
		await(t, "it to know", func() bool {
			return slices.ContainsFunc(sick.node.Status().Conditions, func(c node.Condition) bool {
				return c.Kind == node.Unreachable && strings.Contains(c.Message, "--advertise")
			})
		})
		sick.stop()
		sick.told = ""
		sick.start(nil)
		for _, m := range others {
			m.known.Hear(sick.id(), sick.addr)
			sick.known.Hear(m.id(), m.addr)
		}
		await(t, "an even cluster again", func() bool { return settled(others[0].cluster, 3, tr.all...) })
	})
}

// TestNodeThatNoLeaderReaches: a node that no other node could reach since its start knows no
// records. The others know all the same that it runs, and it knows what is wrong.
func TestNodeThatNoLeaderReaches(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		tr := newTrio(t, dir)
		sick, others := tr.all[2], tr.all[:2]
		sick.stop()
		sick.network.Drop(sick.addr, others[0].addr, others[1].addr)
		sick.start(nil)
		for _, m := range others {
			sick.known.Hear(m.id(), m.addr) // as gossip says
		}
		await(t, "all others to know that it runs", func() bool {
			for _, m := range others {
				if !slices.ContainsFunc(m.cluster.peers.Reachability().Unreached(), func(u routing.LostPeer) bool {
					return u.Server == sick.id() && u.Calls
				}) {
					return false
				}
			}
			return true
		})
		await(t, "it to know", func() bool {
			return slices.ContainsFunc(sick.node.Status().Conditions, func(c node.Condition) bool {
				return c.Kind == node.Unreachable
			})
		})
		if n := len(sick.cluster.Nodes()); n > 0 {
			t.Errorf("it has heard of %d records", n)
		}
	})
}

// TestNodeWithASlowDiskLeadsNothing: the syncs of its log take a second and a half each, under
// load.
func TestNodeWithASlowDiskLeadsNothing(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		tr := newTrioOnDisks(t, dir)
		slow, sound := tr.leader(0)
		slow.disk.SetHook(func(o diskfault.Op) error {
			if o.Kind == diskfault.OpSync && strings.HasSuffix(o.Path, ".wal") {
				time.Sleep(3 * time.Second / 2)
			}
			return nil
		})
		began := time.Now()
		await(t, "a node that leads nothing", func() bool {
			for q := range testShards {
				// one that comes with the handover may fail
				await(t, "a put", func() bool { return put(sound, fmt.Sprintf("q%d", q)) == nil })
			}
			return groupsLed(slow) == 0
		})
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("its leaderships were handed over after %v", took)
		}
		all, _ := sound.cluster.Members(t.Context())
		i := slices.IndexFunc(all, func(m MemberStatus) bool { return m.ServerID == slow.serverID() })
		if got := reportOf(all[i]).Conditions; len(got) != 1 || got[0].Kind != node.SlowDisk {
			t.Errorf("the others are told %+v", got)
		}
		slow.disk.SetHook(nil)
		await(t, "an even cluster again", func() bool {
			return put(sound, "q0") == nil && settled(sound.cluster, 3, tr.all...)
		})
	})
}

// TestConditionWithoutALeaderOfTheCatalog: the node transfers its leaderships by itself.
func TestConditionWithoutALeaderOfTheCatalog(t *testing.T) {
	own := &placement.Report{ServerID: "a.1", Conditions: []node.Condition{{Kind: node.SlowDisk}}}
	for shard := range uint32(4) {
		own.Groups = append(own.Groups, placement.GroupReport{
			Group: catalog.ShardGroup(shard), Serving: true, Voters: []string{"a.1", "b.1", "c.1"}, Commit: 5000,
		})
	}
	follower := func(applied ...uint64) *placement.Report {
		r := &placement.Report{}
		for shard, at := range applied {
			r.Groups = append(r.Groups, placement.GroupReport{Group: catalog.ShardGroup(uint32(shard)), Applied: at})
		}
		return r
	}
	b, c := follower(5000, 5000, 5000, 10), follower(5000, 5000, 10, 10)
	c.Groups = append(c.Groups, placement.GroupReport{Group: "shard-9", Serving: true})
	expect := func(what string, want map[string]string) {
		t.Helper()
		if got := placement.TransferTargets(own, map[string]*placement.Report{
			"b.1": b, "c.1": c,
		}); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	expect("to who leads least and is not far behind", map[string]string{
		"shard-0": "b.1", "shard-1": "b.1", "shard-2": "b.1",
	})
	b.Quarantined = []string{"shard-1"}
	expect("not to a replica that was set aside", map[string]string{"shard-0": "b.1", "shard-1": "c.1", "shard-2": "b.1"})
	c.Conditions = []node.Condition{{Kind: node.Unreachable}}
	expect("not to another node with a condition", map[string]string{"shard-0": "b.1", "shard-2": "b.1"})
	b.Leaving = true
	expect("to nobody", map[string]string{})
	own.Groups[0].Voters = []string{"a.1"}
	expect("a sole voter", map[string]string{})
}

// newTrioOnDisks returns three even members, each with a disk that can be spoilt.
func newTrioOnDisks(t *testing.T, dir string) *trio {
	t.Helper()
	network := routingtest.NewNetwork()
	tr := &trio{t, network, nil}
	for i, name := range []string{"a", "b", "c"} {
		m := &member{t: t, name: name, dir: dir + "/" + name, network: network, disk: diskfault.New()}
		if i == 0 {
			m.start(nil)
		} else {
			m.start(tr.all[0])
		}
		t.Cleanup(m.stop)
		tr.all = append(tr.all, m)
	}
	await(t, "an even cluster", func() bool { return settled(tr.all[0].cluster, 3, tr.all...) })
	return tr
}

// TestPutsWhileADiskFills: a leader whose disk is suddenly full transfers its leaderships, and no
// put fails for it. If all disks are full, puts are refused and consumers go on.
func TestPutsWhileADiskFills(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		tr := newTrioOnDisks(t, dir)
		full, _ := tr.leader(0)
		full.disk.SetFree(100 << 20)
		for range 60 {
			for q := range testShards {
				for _, m := range tr.all {
					if err := put(m, fmt.Sprintf("q%d", q)); err != nil {
						t.Fatalf("a put through %s: %v", m.name, err)
					}
				}
			}
			time.Sleep(100 * time.Millisecond)
		}
		if n := groupsLed(full); n > 0 {
			t.Errorf("the node whose disk is full leads %d groups", n)
		}
		for _, m := range tr.all {
			m.disk.SetFree(40 << 20)
		}
		time.Sleep(10 * time.Second)
		for _, m := range tr.all {
			if err := put(m, "q0"); !errors.Is(err, node.ErrDiskFull) {
				t.Errorf("%v a put through %s when all disks are full: %v", time.Now(), m.name, err)
			}
			if reply := <-tr.reserve(m, "q0"); len(reply.Jobs) != 1 {
				t.Errorf("a reserve then: %+v", reply)
			}
		}
	})
}
