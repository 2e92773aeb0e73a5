package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/cluster/catalog"
	"github.com/belfrydb/belfry/cluster/routing/routingtest"
)

// three starts a cluster of three nodes that has come to rest.
func three(t *testing.T, dir string) (network *routingtest.Network, a, b, c *member) {
	t.Helper()
	network = routingtest.NewNetwork()
	a = newMember(t, network, dir, "a", nil)
	b, c = newMember(t, network, dir, "b", a), newMember(t, network, dir, "c", a)
	await(t, "an even cluster", func() bool { return settled(a.cluster, 3, a, b, c) })
	return network, a, b, c
}

// id returns the server id of a running member.
func (m *member) id() string { return m.node.Status().ServerID }

// catalogVoters returns the voters of the catalog, as its leader reports them, in order.
func catalogVoters(all ...*member) []string {
	for _, m := range all {
		for _, g := range m.node.Status().Groups {
			if g.Group == catalog.GroupName && g.Serving {
				return slices.Sorted(slices.Values(g.Voters))
			}
		}
	}
	return nil
}

// TestWipedNode loses the disk of a node, which starts again under its name. It takes the places of
// its predecessor long before the grace period is over, and the predecessor is forgotten.
func TestWipedNode(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		network, a, b, c := three(t, dir)
		if err := put(a, "orders"); err != nil {
			t.Fatal(err)
		}
		old, began := b.id(), time.Now()
		b.stop()
		b = &member{t: t, name: "b", addr: "b", dir: filepath.Join(dir, "another disk"), network: network}
		b.start(a)
		t.Cleanup(b.stop)
		if b.id() == old || !strings.HasPrefix(b.id(), "b.") {
			t.Fatalf("the server id is %s, it was %s", b.id(), old)
		}
		all := []*member{a, b, c}
		want := []string{a.id(), b.id(), c.id()}
		slices.Sort(want)
		await(t, "the new incarnation in the old one's places", func() bool {
			return len(a.cluster.Nodes()) == 3 && settled(a.cluster, 3, all...) && slices.Equal(catalogVoters(all...), want)
		})
		if took := time.Since(began); took > catalog.DefaultGrace/2 {
			t.Errorf("it took %v", took)
		}
		for _, p := range c.cluster.Placements() {
			if !slices.Equal(p.Servers, want) {
				t.Errorf("shard %d is on %v, want %v", p.Shard, p.Servers, want)
			}
		}
		if err := put(b, "orders"); err != nil {
			t.Errorf("through the new incarnation: %v", err)
		}
	})
}

// TestNameOfALiveNode is not given to another one; it is when the first has fallen silent.
func TestNameOfALiveNode(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		network, a, b, c := three(t, dir)
		twin := &member{t: t, name: "b", addr: "elsewhere", dir: filepath.Join(dir, "another disk"), network: network}
		twin.start(a)
		t.Cleanup(twin.stop)
		err := twin.cluster.members.enrol(t.Context())
		if !errors.Is(err, catalog.ErrNameTaken) || !strings.Contains(err.Error(), b.id()) ||
			!strings.Contains(err.Error(), "at b") {
			t.Errorf("while b lives: %v", err)
		}
		if n := len(a.cluster.Nodes()); n != 3 {
			t.Errorf("%d nodes are recorded", n)
		}
		b.stop()
		await(t, "the place of b", func() bool { return settled(a.cluster, 3, a, twin, c) && len(a.cluster.Nodes()) == 3 })
	})
}

// TestChangedAddress starts a node again at another address: it is the same member, and reached
// there.
func TestChangedAddress(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		_, a, b, c := three(t, dir)
		before, nodes := a.cluster.Placements(), []string{a.id(), b.id(), c.id()}
		b.stop()
		b.addr = "elsewhere"
		b.start(nil)
		b.known.Hear(a.id(), a.addr) // as gossip says
		await(t, "the new address in the catalog", func() bool {
			return slices.ContainsFunc(c.cluster.Nodes(), func(n catalog.Node) bool {
				return n.ServerID == nodes[1] && n.PeerAddr == "elsewhere"
			})
		})
		c.stop() // now nothing can be decided without b
		await(t, "a put that needs the node at its new address", func() bool { return put(a, "orders") == nil })
		if n := a.cluster.Nodes(); len(n) != 3 {
			t.Errorf("%d nodes are recorded, want the three", len(n))
		}
		for i, p := range a.cluster.Placements() {
			if !slices.Equal(p.Servers, before[i].Servers) {
				t.Errorf("shard %d moved from %v to %v", p.Shard, before[i].Servers, p.Servers)
			}
		}
	})
}

// TestCopyOfALiveNode starts a copy of a node's directory at another address while the node runs:
// the cluster keeps to the node.
func TestCopyOfALiveNode(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		network, a, b, _ := three(t, dir)
		b.stop()
		twin := &member{t: t, name: "b", addr: "elsewhere", dir: filepath.Join(dir, "copy"), network: network}
		if err := os.CopyFS(twin.dir, os.DirFS(b.dir)); err != nil {
			t.Fatal(err)
		}
		b.start(nil)
		b.known.Hear(a.id(), a.addr) // as gossip says
		await(t, "the node itself", func() bool {
			_, err := a.cluster.members.Report(t.Context(), b.id())
			return err == nil
		})
		before := a.cluster.Nodes()
		twin.start(nil)
		t.Cleanup(twin.stop)
		twin.known.Hear(a.id(), a.addr)
		await(t, "what the copy is told", func() bool {
			return strings.Contains(twin.cluster.Router().Unreached(t.Context())[catalog.GroupName], "copy of its directory")
		})
		if after := a.cluster.Nodes(); !slices.EqualFunc(before, after, func(x, y catalog.Node) bool {
			return x.ServerID == y.ServerID && x.PeerAddr == y.PeerAddr
		}) {
			t.Errorf("the nodes were %+v, and are %+v", before, after)
		}
	})
}

// TestOldIncarnationReturns brings back a node whose name and places a new incarnation has, from
// its old disk or from an unreachable address. The node learns of its departure and gets nothing.
func TestOldIncarnationReturns(t *testing.T) {
	for _, cut := range []bool{false, true} {
		t.Run(fmt.Sprintf("cut off %v", cut), func(t *testing.T) { oldIncarnationReturns(t, cut) })
	}
}

func oldIncarnationReturns(t *testing.T, cut bool) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		network, a, b, c := three(t, dir)
		if cut {
			network.Isolate("b")
		} else {
			b.stop()
		}
		replacement := &member{t: t, name: "b", addr: "elsewhere", dir: filepath.Join(dir, "another disk"), network: network}
		await(t, "b's absence to be noticed", func() bool {
			_, err := a.cluster.members.nameFree(t.Context(), joinCall{Node: catalog.Node{Name: "b"}})
			return err == nil
		})
		replacement.start(a)
		t.Cleanup(replacement.stop)
		await(t, "the place of b", func() bool {
			return settled(a.cluster, 3, a, replacement, c) && len(a.cluster.Nodes()) == 3
		})
		if cut {
			network.Reconnect("b")
		} else {
			b.start(nil)
			b.known.Hear(a.id(), a.addr) // as gossip says
		}
		left := b.awaitLeft()
		if left.ServerID != b.id() || left.Replacement != replacement.id() ||
			!strings.Contains(left.Error(), replacement.id()) {
			t.Errorf("it is told %v", left)
		}
		if why := b.cluster.Router().Unreached(t.Context())[catalog.GroupName]; !strings.Contains(why, replacement.id()) {
			t.Errorf("what keeps it from being ready: %q", why)
		}
		if n := a.cluster.Nodes(); len(n) != 3 {
			t.Errorf("after the return of the old incarnation the nodes are %+v", n)
		}
		for _, p := range a.cluster.Placements() {
			if slices.Contains(p.Servers, b.id()) {
				t.Errorf("the old incarnation has a replica of shard %d again", p.Shard)
			}
		}
		await(t, "the groups to be led by the three that belong", func() bool {
			return settled(a.cluster, 3, a, replacement, c)
		})
	})
}
