package gossip_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/belfrydb/belfry/cluster/gossip"
	"github.com/belfrydb/belfry/cluster/gossip/gossiptest"
)

// A life is two clusters on one network, whose nodes know addresses of both, through random faults.
type life struct {
	*world
	rng  *rand.Rand
	next int // the next free host
	// By the nodes' names.
	nodes map[string]*gossip.Gossip
	cfgs  map[string]gossip.Config
	hosts map[string]netip.Addr
}

const lifeNodes = 3 // of each cluster

// newLife starts the nodes a0 … and b0 …, each with a data directory, and with the first node of
// either cluster to join.
func newLife(w *world, t *testing.T, seed uint64) *life {
	l := &life{
		world: w, rng: rand.New(rand.NewPCG(seed, 1)), next: 1,
		nodes: make(map[string]*gossip.Gossip), cfgs: make(map[string]gossip.Config), hosts: make(map[string]netip.Addr),
	}
	for _, cluster := range []string{"a", "b"} {
		for n := range lifeNodes {
			name := fmt.Sprintf("%s%d", cluster, n)
			cfg := w.config(1)
			cfg.Self.Cluster, cfg.Self.Name, cfg.Self.ServerID = cluster, name, name+".1"
			cfg.Dir, cfg.Join = t.TempDir(), []string{at(1), at(1 + lifeNodes)}
			l.cfgs[name] = cfg
			l.move(name)
			l.nodes[name] = w.run(l.cfgs[name])
		}
	}
	return l
}

// names returns the nodes' names, in order so that a seed means one life.
func (l *life) names() []string {
	var names []string
	for name := range l.cfgs {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// move gives a node a host that no node had before.
func (l *life) move(name string) {
	cfg := l.cfgs[name]
	cfg.Listen, l.hosts[name] = at(l.next), host(l.next)
	l.next++
	l.cfgs[name] = cfg
}

// step does one random thing and returns what.
func (l *life) step() string {
	names := l.names()
	name := names[l.rng.IntN(len(names))]
	switch l.rng.IntN(5) {
	case 0:
		return l.split()
	case 1:
		l.net.Heal()
		return "heal"
	case 2:
		l.restart(name)
		return "restart " + name
	case 3:
		l.move(name)
		l.restart(name)
		return fmt.Sprintf("move %s to %v", name, l.hosts[name])
	default:
		cfg := l.cfgs[name]
		cfg.Self.ServerID = fmt.Sprintf("%s.%d", name, 2+l.rng.IntN(1<<30))
		l.cfgs[name] = cfg
		l.restart(name)
		return "another incarnation, " + cfg.Self.ServerID
	}
}

// split cuts the network in two at random.
func (l *life) split() string {
	var side []netip.Addr
	for _, name := range l.names() {
		if l.rng.IntN(2) == 0 {
			side = append(side, l.hosts[name])
		}
	}
	l.net.Split(side)
	return fmt.Sprintf("split %v", side)
}

func (l *life) restart(name string) {
	l.t.Helper()
	if err := l.nodes[name].Close(); err != nil {
		l.t.Fatal(err)
	}
	gossiptest.Pass(time.Duration(l.rng.IntN(120)) * time.Second)
	l.nodes[name] = l.run(l.cfgs[name])
}

// checkOwn reports members of the other cluster.
func (l *life) checkOwn(when string) {
	l.t.Helper()
	for name, g := range l.nodes {
		for _, m := range g.Members() {
			if m.Name[0] != name[0] {
				l.t.Fatalf("after %s: %s has the member %s", when, name, m.Name)
			}
		}
	}
}

// together reports whether every node sees exactly the live nodes of its own cluster, at their
// addresses.
func (l *life) together() bool {
	for name, g := range l.nodes {
		var want, got []string
		for other, cfg := range l.cfgs {
			if other != name && other[0] == name[0] {
				want = append(want, cfg.Self.ServerID+" "+cfg.Listen)
			}
		}
		for _, m := range g.Members() {
			if m.Alive {
				got = append(got, m.ServerID+" "+m.GossipAddr.String())
			}
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(want, got) {
			return false
		}
	}
	return true
}

// Whatever happened before: two minutes after the last fault each cluster is whole, and never did
// the two mix.
func TestLife(t *testing.T) {
	const steps = 10
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inWorld(t, func(w *world) {
				l := newLife(w, t, seed)
				w.await("both clusters are whole", time.Minute, l.together)
				for range steps {
					did := l.step()
					gossiptest.Pass(time.Duration(l.rng.IntN(180)) * time.Second)
					l.checkOwn(did)
				}
				l.split()
				gossiptest.Pass(10 * time.Minute)
				l.net.Heal()
				took := w.await("both clusters are whole again", 2*time.Minute, l.together)
				t.Logf("whole after %v", took)
				for name, g := range l.nodes {
					if clash := problems(g, gossip.NameClash); len(clash) != 0 {
						t.Errorf("%s: %+v", name, clash)
					}
				}
			})
		})
	}
}
