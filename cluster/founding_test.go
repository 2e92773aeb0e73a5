package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belfrydb/belfry/cluster/catalog"
	"github.com/belfrydb/belfry/cluster/routing/routingtest"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
)

// incarnationOf returns the incarnation of a node that founds a cluster in a test.
func incarnationOf(name string) string { return fmt.Sprintf("%016x", []byte(name)) }

// founders returns nodes that are to found a cluster together. None is started.
func founders(t *testing.T, dir string, settings catalog.Settings, names ...string) []*member {
	t.Helper()
	cfg := catalog.FoundingConfig{Shards: testShards, Settings: settings}
	for _, name := range names {
		cfg.Founders = append(cfg.Founders, catalog.Founder{ServerID: name + "." + incarnationOf(name)})
	}
	f, err := catalog.NewFounding(cfg)
	if err != nil {
		t.Fatal(err)
	}
	network := routingtest.NewNetwork()
	var all []*member
	for _, name := range names {
		m := &member{t: t, name: name, dir: filepath.Join(dir, name), network: network, founding: f}
		t.Cleanup(m.stop)
		all = append(all, m)
	}
	return all
}

// join starts a founder that knows of the cluster.
func (m *member) join(first *member) {
	m.t.Helper()
	m.clusterID = first.node.Status().ClusterID
	m.start(nil)
}

// leading counts the shards that are led.
func leading(all []*member) (n int) {
	for _, m := range all {
		for _, g := range m.node.Status().Shards {
			if g.Serving {
				n++
			}
		}
	}
	return n
}

// TestFoundedTogether: a cluster of three has three voters everywhere from its first entry on.
// Nothing is acknowledged, and no node takes itself for one of it, before a majority of them is
// there; and then it does not take long.
func TestFoundedTogether(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		all := founders(t, dir, catalog.Settings{Factor: 3, Grace: time.Hour}, "a", "b", "c")
		a, b, c := all[0], all[1], all[2]
		a.start(nil)
		time.Sleep(10 * time.Second)
		// or its first queues had other defaults than the next ones
		if got := a.node.Format(); got != catalog.FoundingFormat {
			t.Errorf("a founder writes format %d", got)
		}
		if err := put(a, "early"); node.OutcomeOf(err) != node.NotApplied {
			t.Errorf("a founder that is alone answers a put with %v", err)
		}
		select {
		case <-a.cluster.Confirmed():
			t.Error("a founder that is alone is ready")
		default:
		}
		b.join(a)
		c.join(a)
		begun := time.Now()
		await(t, "a cluster that serves", func() bool {
			return leading(all) == testShards && b.cluster.Recorded() && c.cluster.Recorded()
		})
		if took := time.Since(begun); took > 3*time.Second { // of the bubble's time
			t.Errorf("it took %v", took)
		}
		for _, m := range all {
			<-m.cluster.Confirmed()
			for _, g := range m.report().Groups {
				if g.Serving && (len(g.Voters) != 3 || g.Members != 1) {
					t.Errorf("%s on %s has the voters %v since entry %d", g.Group, m.name, g.Voters, g.Members)
				}
			}
			if err := put(m, "q"); err != nil {
				t.Errorf("put through %s: %v", m.name, err)
			}
			want := catalog.Settings{Factor: 3, Grace: time.Hour, MinVoters: 2, NoAutoCreate: new(false)}
			if diff := cmp.Diff(want, m.cluster.Settings()); diff != "" {
				t.Errorf("settings of %s (-want +got):\n%s", m.name, diff)
			}
			await(t, "the node to ask for two voters", func() bool { return m.node.MinVoters() == 2 })
			if got := m.cluster.Format(); got != catalog.FoundingFormat {
				t.Errorf("%s speaks format %d", m.name, got)
			}
		}
	})
}

// TestFounderIsWiped: when the founder is lost with its disk a moment after the cluster has taken
// its first jobs, the others have them all, and the founder comes back as a new node in its own
// place.
func TestFounderIsWiped(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		all := founders(t, dir, catalog.Settings{}, "a", "b", "c")
		a, b, c := all[0], all[1], all[2]
		a.start(nil)
		b.join(a)
		c.join(a)
		var acked []string
		for q := 0; len(acked) < 2*testShards; q++ {
			if queue := fmt.Sprintf("q%d", q); putSoon(a, queue) == nil {
				acked = append(acked, queue)
			}
		}
		a.network.Isolate(a.addr)
		a.stop()
		if err := os.RemoveAll(a.dir); err != nil {
			t.Fatal(err)
		}
		await(t, "the others to go on", func() bool { return put(b, "later") == nil && put(c, "later") == nil })
		for _, queue := range acked {
			shard := node.ShardOf(queue, 0, testShards)
			reading, _, err := c.cluster.Router().Query(t.Context(), shard, &fsm.QueueQuery{Queue: queue})
			if err != nil || len(reading.Queues) != 1 || reading.Queues[0].Counts.Ready != 1 {
				t.Errorf("%s: %+v, %v", queue, reading.Queues, err)
			}
		}
		a.network.Reconnect(a.addr)
		again := newMember(t, a.network, filepath.Dir(a.dir), "a", b)
		for _, m := range []*member{b, c} {
			m.known.Hear(again.id(), again.addr) // as gossip has it
		}
		await(t, "three voters of each shard again", func() bool {
			return settled(b.cluster, 3, again, b, c) && len(b.cluster.Nodes()) == 3
		})
	})
}

// putSoon is put with a short deadline.
func putSoon(m *member, queue string) error {
	ctx, cancel := context.WithTimeout(m.t.Context(), 50*time.Millisecond)
	defer cancel()
	return putWithin(ctx, m, queue)
}

// TestFoundingRecordIsCompleted: whichever founder leads the catalog records the cluster, and
// completes what another one began.
func TestFoundingRecordIsCompleted(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		all := founders(t, dir, catalog.Settings{Grace: time.Hour}, "a", "b", "c")
		a, b, c := all[0], all[1], all[2]
		a.start(nil)
		b.clusterID = a.node.Status().ClusterID
		c.clusterID = b.clusterID
		a.stop() // the others know of it, and it comes back late
		b.start(nil)
		c.start(nil)
		await(t, "a cluster of the other two", func() bool {
			return b.cluster.Recorded() && c.cluster.Recorded() && put(b, "q") == nil
		})
		if got := c.cluster.Settings(); got.Grace != time.Hour {
			t.Errorf("the settings are %+v", got)
		}
		a.start(nil)
		await(t, "a whole cluster", func() bool { return settled(a.cluster, 3, all...) })
	})
}
