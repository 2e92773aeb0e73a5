package cluster

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/cluster/catalog"
	"github.com/belfrydb/belfry/cluster/routing/routingtest"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
)

// TestMinVotersFollowsTheCatalog: nodes ask for as many voters as the catalog says, whatever a
// catalog that begins anew says meanwhile. A shard with fewer refuses puts through every node, and
// takes them when that is said.
func TestMinVotersFollowsTheCatalog(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		network := routingtest.NewNetwork()
		a := newMember(t, network, dir, "a", nil)
		await(t, "the format that has it", func() bool { return a.cluster.Format() >= 2 })
		if _, err := a.cluster.Configure(t.Context(), catalog.Settings{MinVoters: 2}); err != nil {
			t.Fatal(err)
		}
		refused := func(m *member) bool {
			short, ok := errors.AsType[*node.VotersError](put(m, "q"))
			return ok && short.Have == 1 && short.Want == 2
		}
		await(t, "a refusal", func() bool { return refused(a) })
		b := newMember(t, network, dir, "b", a)
		await(t, "two voters of each shard", func() bool { return settled(a.cluster, 2, a, b) })
		for _, m := range []*member{a, b} {
			if err := put(m, "q"); err != nil {
				t.Errorf("put through %s: %v", m.name, err)
			}
		}
		b.stop()
		b.start(nil)
		if got := b.node.MinVoters(); got != 2 {
			t.Errorf("after its start b asks for %d voters", got)
		}
		var bad *catalog.SettingError
		if _, err := b.cluster.Configure(t.Context(), catalog.Settings{MinVoters: 1}); !errors.As(err, &bad) ||
			bad.Setting != catalog.MinVotersSetting {
			t.Errorf("lowered by the way: %v", err)
		}
		await(t, "a lowering", func() bool {
			_, err := b.cluster.LowerMinVoters(t.Context(), 1)
			return err == nil
		})
		await(t, "the nodes to follow", func() bool { return a.node.MinVoters() == 1 && b.node.MinVoters() == 1 })
	})
}

// TestNoAutoCreateFollowsTheCatalog: once the catalog says so, puts into queues that do not exist
// are refused with their names, through any node; those that were created are served, nodes that
// start know it at once, and all of it is taken back.
func TestNoAutoCreateFollowsTheCatalog(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		network := routingtest.NewNetwork()
		a := newMember(t, network, dir, "a", nil)
		b := newMember(t, network, dir, "b", a)
		await(t, "the format that has it", func() bool { return a.cluster.Format() >= 2 })
		await(t, "two voters of each shard", func() bool { return settled(a.cluster, 2, a, b) })
		if *a.cluster.Settings().NoAutoCreate {
			t.Error("by default puts make no queues")
		}
		if _, err := b.cluster.Configure(t.Context(), catalog.Settings{NoAutoCreate: new(true)}); err != nil {
			t.Fatal(err)
		}
		refused := func(m *member, queue string) bool {
			none, ok := errors.AsType[*node.NoQueueError](put(m, queue))
			return ok && none.Queue == queue
		}
		names := 0 // a put that comes too early makes its queue
		for shard := range uint32(testShards) {
			await(t, "refusals through both", func() bool {
				for names++; node.ShardOf(fmt.Sprint("q", names), 0, testShards) != shard; names++ {
				}
				return refused(a, fmt.Sprint("q", names)) && refused(b, fmt.Sprint("q", names))
			})
		}
		if _, err := b.cluster.CreateQueue(t.Context(), "made", 1, fsm.Settings{}); err != nil {
			t.Fatal(err)
		}
		for _, m := range []*member{a, b} {
			if err := put(m, "made"); err != nil {
				t.Errorf("put through %s: %v", m.name, err)
			}
		}
		if s, err := a.cluster.Configure(t.Context(), catalog.Settings{Grace: catalog.DefaultGrace}); err != nil ||
			!*s.NoAutoCreate {
			t.Errorf("another setting changed it to %t: %v", *s.NoAutoCreate, err)
		}
		a.stop()
		b.stop()
		b.start(nil) // it finds no leader of the catalog
		for range 10 {
			if time.Sleep(time.Second); !b.node.NoAutoCreate() {
				t.Error("a node that has just started makes queues")
			}
		}
		a.start(b)
		await(t, "a leader", func() bool {
			_, err := a.cluster.Configure(t.Context(), catalog.Settings{Grace: catalog.DefaultGrace})
			return err == nil
		})
		if !a.node.NoAutoCreate() || !b.node.NoAutoCreate() {
			t.Errorf("after their starts the nodes refuse: %t, %t", a.node.NoAutoCreate(), b.node.NoAutoCreate())
		}
		if _, err := a.cluster.Configure(t.Context(), catalog.Settings{NoAutoCreate: new(false)}); err != nil {
			t.Fatal(err)
		}
		await(t, "queues that are made by puts", func() bool { return put(a, "new") == nil && put(b, "newer") == nil })
	})
}
