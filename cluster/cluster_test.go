package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/cluster/catalog"
	"github.com/belfrydb/belfry/cluster/routing/routingtest"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/node/clock"
	"github.com/belfrydb/belfry/node/peer"
	"github.com/belfrydb/belfry/node/storage/diskfault"
)

const testShards = 3

// member is a node of a cluster in a bubble. Its address is its name unless it is set.
type member struct {
	t       *testing.T
	name    string
	addr    string
	told    string // the address that it says is its own, if that is another
	dir     string
	network *routingtest.Network
	link    *routingtest.Link
	known   *Directory
	node    *node.Node
	cluster *Cluster
	clock   clock.Source // nil for the system's
	machine fsm.Config
	heap    func() (live, cycles uint64) // of a node with a limit of memory of 1 GiB; nil for one without
	logger  *slog.Logger                 // nil for none
	disk    *diskfault.Disk              // nil for the system's
	// left receives why the node left its cluster, since its last start.
	left chan *catalog.DepartedError
	// founding is how the node founds its cluster together with others, clusterID the id that one of
	// them made; see founders and join.
	founding  *node.Founding
	clusterID string
}

// newMember starts a node that founds a cluster, or joins that of seed.
func newMember(t *testing.T, network *routingtest.Network, dir, name string, seed *member) *member {
	t.Helper()
	m := &member{t: t, name: name, dir: filepath.Join(dir, name), network: network}
	m.start(seed)
	t.Cleanup(m.stop)
	return m
}

// start starts the node on its directory.
func (m *member) start(seed *member) {
	m.t.Helper()
	if m.addr == "" {
		m.addr = m.name
	}
	m.link = m.network.Link(m.addr)
	dial := func(ctx context.Context, addr string) (net.Conn, error) { return m.link.DialPeer(ctx, addr) }
	m.known = NewDirectory()
	directory, clocks, logger := m.known, NewClocks(), m.logger
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	cfg := node.Config{
		Dir: m.dir, Name: m.name, Shards: testShards, Logger: logger, Fatal: func(err error) {
			m.t.Errorf("%s gave up: %v", m.name, err)
		},
		Peers: m.link, Dial: dial, Resolve: directory.Resolve, Clocks: clocks, Clock: m.clock, Machine: m.machine,
	}
	if m.heap != nil {
		cfg.MemoryBytes, cfg.HeapLive = 1<<30, m.heap
	}
	if m.founding != nil {
		cfg.Founding, cfg.Incarnation, cfg.Join = m.founding, incarnationOf(m.name), m.clusterID
		for _, server := range m.founding.Servers {
			directory.Hear(server, catalog.NameOf(server))
		}
	}
	if m.disk != nil {
		cfg.FS = m.disk
	}
	left := make(chan *catalog.DepartedError, 1)
	m.left = left
	part := Config{PeerAddr: cmp.Or(m.told, m.addr), Directory: directory, Clocks: clocks, Logger: logger,
		Departed: func(e *catalog.DepartedError) {
			left <- e
		}}
	if seed != nil {
		intro, err := peer.Hello(m.t.Context(), dial, seed.addr)
		if err != nil {
			m.t.Fatal(err)
		}
		directory.Hear(intro.ServerID, seed.addr)
		cfg.Join, part.Seeds = intro.ClusterID, []string{intro.ServerID}
	}
	var err error
	if m.node, err = node.Open(m.t.Context(), cfg); err != nil {
		m.t.Fatal(err)
	}
	if m.cluster, err = Open(m.t.Context(), m.node, part); err != nil {
		m.t.Fatal(err)
	}
}

// awaitLeft waits until the node knows that it left its cluster.
func (m *member) awaitLeft() (left *catalog.DepartedError) {
	m.t.Helper()
	await(m.t, "what "+m.name+" is told", func() bool {
		select {
		case left = <-m.left:
			return true
		default:
			return false
		}
	})
	return left
}

// stop ends the node in an orderly way.
func (m *member) stop() {
	m.t.Helper()
	if m.node == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(m.t.Context()), 10*time.Second)
	defer cancel()
	if err := errors.Join(m.node.AwaitDrained(ctx), m.cluster.Close(ctx)); err != nil {
		m.t.Errorf("closing %s: %v", m.name, err)
	}
	if err := m.node.Close(ctx); err != nil {
		m.t.Errorf("closing %s: %v", m.name, err)
	}
	m.node = nil
}

// await waits in virtual time until a condition holds. What goes on at a moment has come to rest
// when it looks: what is so for that moment only is seen.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	deadline := time.NewTimer(5 * time.Minute)
	defer deadline.Stop()
	for synctest.Wait(); !holds(); synctest.Wait() {
		select {
		case <-look.C:
		case <-deadline.C:
			t.Fatalf("waited for %s in vain", what)
		}
	}
}

// settled reports whether every shard has so many voters, which the catalog records, and leads are
// even.
func settled(c *Cluster, voters int, all ...*member) bool {
	placed := c.Placements()
	if len(placed) != testShards {
		return false
	}
	for _, p := range placed {
		if len(p.Servers) != voters {
			return false
		}
	}
	leads := 0
	for _, m := range all {
		n := 0
		for _, g := range m.node.Status().Shards {
			if g.Serving {
				n++
				if len(g.Voters) != voters || len(g.Nonvoters) > 0 {
					return false
				}
			}
		}
		if n > (testShards+len(all)-1)/len(all) {
			return false
		}
		leads += n
	}
	return leads == testShards
}

// put puts a job that is due at once, through one member.
func put(m *member, queue string) error { return putWithin(m.t.Context(), m, queue) }

func putWithin(ctx context.Context, m *member, queue string) error {
	shard := node.ShardOf(queue, 0, testShards)
	reply, err := m.cluster.Router().Do(ctx, shard, &fsm.Request{Commands: []fsm.Command{&fsm.Put{
		Queue: queue, Partitions: 1, Body: []byte(queue),
	}}})
	if err != nil {
		return err
	}
	if code := reply.Results[0].Code; code != fsm.OK {
		return fmt.Errorf("code %d", code)
	}
	return nil
}

// TestClusterForms lets two nodes join a third, has every call served by every node, and goes on
// when one dies.
func TestClusterForms(t *testing.T) {
	dir := t.TempDir() // outside the bubble: it is removed after the nodes have ended
	synctest.Test(t, func(t *testing.T) {
		network := routingtest.NewNetwork()
		a := newMember(t, network, dir, "a", nil)
		b, c := newMember(t, network, dir, "b", a), newMember(t, network, dir, "c", a)
		all := []*member{a, b, c}
		await(t, "three voters of each shard, and a leader on each node", func() bool {
			return settled(a.cluster, 3, all...)
		})
		for _, m := range all {
			for q := range testShards * 2 {
				if err := put(m, fmt.Sprintf("q%d", q)); err != nil {
					t.Errorf("put through %s: %v", m.name, err)
				}
			}
		}
		for _, m := range all {
			queue := "q0"
			shard := node.ShardOf(queue, 0, testShards)
			reading, witness, err := m.cluster.Router().Query(t.Context(), shard, &fsm.QueueQuery{Queue: queue})
			if err != nil || witness.Index == 0 || len(reading.Queues) != 1 || reading.Queues[0].Counts.Ready != 3 {
				t.Errorf("asked %s: %+v at %+v, %v", m.name, reading, witness, err)
			}
		}
		if q, err := c.cluster.CreateQueue(t.Context(), "wide", 3, fsm.Settings{MaxJobs: 30}); err != nil ||
			q.State != catalog.Active {
			t.Errorf("creating a queue through a node that does not lead: %+v, %v", q, err)
		}
		b.stop()
		for _, m := range []*member{a, c} {
			for q := range testShards * 2 {
				await(t, "a put after a node ended", func() bool { return put(m, fmt.Sprintf("q%d", q)) == nil })
			}
		}
	})
}

// TestForwardedReserve waits at a leader elsewhere: a job ends the wait, so does the end of the
// caller's interest.
func TestForwardedReserve(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		network := routingtest.NewNetwork()
		a := newMember(t, network, dir, "a", nil)
		b, c := newMember(t, network, dir, "b", a), newMember(t, network, dir, "c", a)
		all := []*member{a, b, c}
		await(t, "an even cluster", func() bool { return settled(a.cluster, 3, all...) })
		queue := "orders"
		shard := node.ShardOf(queue, 0, testShards)
		i := slices.IndexFunc(all, func(m *member) bool {
			id, err := m.node.Leader(shard)
			return err == nil && id != m.node.Status().ServerID
		})
		other := all[i].cluster.Router()
		reserve := func(ctx context.Context, wait node.Wait) <-chan node.Reply {
			got := make(chan node.Reply, 1)
			go func() {
				reply, err := other.Reserve(ctx, shard, &fsm.Request{Commands: []fsm.Command{&fsm.Reserve{
					Queues: []string{queue}, Max: 1,
				}}}, wait)
				if err != nil && ctx.Err() == nil {
					t.Errorf("reserving: %v", err)
				}
				got <- reply
			}()
			synctest.Wait()
			return got
		}
		granted := reserve(t.Context(), node.Wait{For: time.Hour})
		if err := put(all[i], queue); err != nil {
			t.Fatal(err)
		}
		if reply := <-granted; len(reply.Jobs) != 1 || string(reply.Jobs[0].Body) != queue || reply.Jobs[0].Fence == 0 {
			t.Errorf("granted %+v", reply)
		}
		stop := make(chan struct{})
		stopped := reserve(t.Context(), node.Wait{For: time.Hour, Stop: stop})
		began := time.Now()
		close(stop)
		if reply := <-stopped; len(reply.Jobs) != 0 || time.Since(began) > time.Minute {
			t.Errorf("after %v: %+v", time.Since(began), reply)
		}
		ctx, cancel := context.WithCancel(t.Context())
		left := reserve(ctx, node.Wait{For: time.Hour})
		cancel()
		<-left
		await(t, "nobody to wait for a caller that left", func() bool {
			waiting := 0
			for _, m := range all {
				for _, s := range m.node.Stats().Shards {
					waiting += s.Waiters
				}
			}
			return waiting == 0
		})
	})
}
