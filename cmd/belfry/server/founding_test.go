package server

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/belfrydb/belfry/cluster/catalog"
	"github.com/belfrydb/belfry/cluster/gossip"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node/identity"
	"github.com/belfrydb/belfry/node/peer"
)

// seen returns a member of gossip. Its peer address is its server id.
func seen(serverID string, alive bool) gossip.Member {
	return gossip.Member{Info: gossip.Info{Name: nameOf(serverID), ServerID: serverID, PeerAddr: serverID}, Alive: alive}
}

func TestFoundingIsReady(t *testing.T) {
	settled := seen("n3.1", false)
	settled.Cluster = "c1"
	for _, test := range []struct {
		name    string
		self    string
		members []gossip.Member
		why     string
	}{
		{"all are there", "n1.1", []gossip.Member{seen("n2.1", true), seen("n3.1", true)}, ""},
		{"more than all", "n1.1", []gossip.Member{seen("n2.1", true), seen("n3.1", true), seen("n4.1", true)}, ""},
		{"nobody is there", "n1.1", nil, "1 of 3 nodes are there: n1"},
		{"two of three", "n1.1", []gossip.Member{seen("n2.1", true)}, "2 of 3 nodes are there: n1, n2"},
		{"two that have one name", "n1.1", []gossip.Member{seen("n2.1", true), seen("n2.2", true)},
			"2 of 3 nodes are there: n1, n2"},
		{"itself, as a join address may name it", "n1.1", []gossip.Member{seen("n1.1", true), seen("n2.1", true)}, "2 of 3"},
		{"another of this name", "n1.1", []gossip.Member{seen("n1.2", true), seen("n3.1", true)},
			"n1.2 has this node's name"},
		{"another comes first", "n2.1", []gossip.Member{seen("n1.1", true), seen("n3.1", true)}, "it is for n1 to found it"},
		{"one fell silent", "n1.1", []gossip.Member{seen("n2.1", true), seen("n3.1", true), seen("n4.1", false)},
			"n4.1 is silent"},
		{"one fell silent and is back", "n1.1", []gossip.Member{seen("n2.1", false), seen("n2.2", true), seen("n3.1", true)},
			""},
		{"its own earlier life fell silent", "n1.2",
			[]gossip.Member{seen("n1.1", false), seen("n2.1", true), seen("n3.1", true)}, ""},
		{"one has a cluster, and is silent", "n1.1", []gossip.Member{seen("n2.1", true), settled, seen("n4.1", true)},
			"n3.1 has cluster c1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := &founding{self: gossip.Info{Name: nameOf(test.self), ServerID: test.self}, expect: 3}
			if got := f.ready(test.members); (got == "") != (test.why == "") || !strings.Contains(got, test.why) {
				t.Errorf("got %q, want %q", got, test.why)
			}
		})
	}
}

func TestConsent(t *testing.T) {
	c := &consent{self: "n2.1", shards: 6}
	for _, step := range []struct{ asker, founder string }{
		{"", ""},
		{"n3.1", ""}, // its name comes after this one's
		{"n2.2", ""}, // it has this one's name
		{"n1.1", "n1.1"},
		{"n0.1", "n1.1"}, // n1.1 may have founded
		{"", "n1.1"},
		{"n1.2", "n1.2"}, // a later start of the same name
	} {
		if got := c.answer(step.asker); got.Founder != step.founder || got.ServerID != "n2.1" || got.Shards != 6 ||
			got.ClusterID != "" {
			t.Errorf("asked by %q: %+v, want %q", step.asker, got, step.founder)
		}
	}
	c = &consent{self: "n2.1"}
	if c.stand() != "n2.1" || c.answer("n1.1").Founder != "n1.1" || c.decide() {
		t.Error("it did not give way before its decision")
	}
	c = &consent{self: "n2.1"}
	if c.stand() != "n2.1" || !c.decide() || c.answer("n1.1").Founder != "n2.1" {
		t.Error("it gave way after its decision")
	}
}

// TestFoundingAsks: whatever another node says that is not its consent prevents the founding.
func TestFoundingAsks(t *testing.T) {
	const self = "n1.1"
	agrees := func(founder string) peer.Introduction {
		return peer.Introduction{ServerID: "n2.1", Founder: founder, Format: fsm.LatestFormat}
	}
	agreed := agrees(self)
	for _, test := range []struct {
		name   string
		answer peer.Introduction
		err    error
		why    string
	}{
		{"it agrees", agreed, nil, ""},
		{"it agreed to another", agrees("n0.1"), nil, "n2.1 has left it to n0.1"},
		{"it agreed to one that gave way", agrees("n3.1"), nil, ""},
		{"it is about to found", agrees("n2.1"), nil, "n2.1 has left it to n2.1"},
		{"it runs an earlier version", peer.Introduction{
			ServerID: "n2.1", Founder: self, Format: fsm.FirstFormat,
		}, nil, "n2.1 runs an earlier version"},
		{"it agrees to nobody", agrees(""), nil, "n2.1 has left it to nobody"},
		{"it has a cluster", peer.Introduction{ServerID: "n2.1", ClusterID: "c1"}, nil, "n2.1 has cluster c1"},
		{"it is another", peer.Introduction{ServerID: "n2.2", Founder: self}, nil, "there is n2.2"},
		{"it does not answer", agreed, errors.New("refused"), "does not answer: refused"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := &founding{
				self: gossip.Info{Name: "n1", ServerID: self}, expect: 3, consent: &consent{self: self},
				ask: func(_ context.Context, addr, asker string) (peer.Introduction, error) {
					if asker != self {
						t.Errorf("%s asks", asker)
					}
					if addr == "n3.1" {
						return peer.Introduction{ServerID: "n3.1", Founder: self, Format: fsm.LatestFormat}, nil
					}
					return test.answer, test.err
				},
			}
			got := f.try(t.Context(),
				[]gossip.Member{seen(self, true), seen("n2.1", true), seen("n3.1", true), seen("n2.0", false)})
			if (got == "") != (test.why == "") || !strings.Contains(got, test.why) {
				t.Errorf("got %q, want %q", got, test.why)
			}
			if f.consent.founds != (test.why == "") {
				t.Errorf("founds: %v", f.consent.founds)
			}
		})
	}
}

// foundingSim simulates processes that found a cluster together, in one goroutine: while one asks,
// anything may happen to the others.
type foundingSim struct {
	t       *testing.T
	rng     *rand.Rand
	expect  int
	procs   []*proc
	founded []string // server ids of those that have a cluster on their disk
	depth   int
	final   bool // a node that has ended does not start again
}

// TestFounders: of those that are alive as many found the cluster as are expected, the first by
// name.
func TestFounders(t *testing.T) {
	f := &founding{self: gossip.Info{Name: "n1", ServerID: "n1.1", Zone: "a"}, expect: 3}
	late := seen("n3.1", true)
	late.Zone = "b"
	got := f.founders([]gossip.Member{seen("n1.1", true), seen("n5.1", true), late, seen("n2.0", false),
		seen("n4.1", true)})
	if want := []catalog.Founder{
		{ServerID: "n1.1", Zone: "a"},
		{ServerID: "n3.1", Zone: "b"},
		{ServerID: "n4.1"},
	}; !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestIncarnationIsKept: a node that is to found a cluster comes back under the id that it had,
// until its data directory belongs to one.
func TestIncarnationIsKept(t *testing.T) {
	dir := t.TempDir()
	keep := func(name string) string {
		t.Helper()
		incarnation, err := keepIncarnation(dir, name)
		if err != nil || !identity.ValidIncarnation(incarnation) {
			t.Fatalf("%q: %v", incarnation, err)
		}
		return incarnation
	}
	first := keep("n1")
	if again := keep("n1"); again != first {
		t.Errorf("the second start has %s, the first had %s", again, first)
	}
	if other := keep("n2"); other == first {
		t.Error("a node of another name has the same incarnation")
	}
	for range 2 {
		if err := forgetIncarnation(dir); err != nil {
			t.Fatal(err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// proc is a process, and what is on its disk.
type proc struct {
	name, serverID, cluster string
	starts                  int
	alive, busy             bool
	consent                 *consent
	seen                    map[string]bool // whom it has ever seen
}

func (b *foundingSim) start(p *proc) {
	p.alive = true
	if p.cluster != "" {
		return
	}
	if p.serverID == "" { // it is on its disk, as that of keepIncarnation
		p.serverID = fmt.Sprintf("%s.%d", p.name, b.rng.Uint32())
	}
	p.starts++
	p.consent, p.seen = &consent{self: p.serverID}, map[string]bool{}
}

// view returns what gossip may show a process: whom it has seen, as they are, and some of the
// others.
func (b *foundingSim) view(p *proc) (members []gossip.Member) {
	for _, other := range b.procs {
		if other != p && other.alive && b.rng.IntN(3) > 0 {
			p.seen[other.serverID] = true
		}
	}
	for id := range p.seen {
		m := seen(id, false)
		for _, other := range b.procs {
			if other.serverID == id {
				m.Alive, m.Cluster = other.alive, other.cluster
			}
		}
		members = append(members, m)
	}
	slices.SortFunc(members, func(a, b gossip.Member) int { return strings.Compare(a.ServerID, b.ServerID) })
	return members
}

// act has one process try, or end, or start.
func (b *foundingSim) act() {
	p := b.procs[b.rng.IntN(len(b.procs))]
	switch chance := b.rng.IntN(10); {
	case !p.alive:
		if !b.final {
			b.start(p)
		}
	case chance == 0:
		p.alive = false
	case p.cluster == "" && !p.busy:
		p.busy = true
		b.try(p)
		p.busy = false
	}
}

func (b *foundingSim) try(p *proc) {
	starts := p.starts
	f := &founding{self: gossip.Info{Name: p.name, ServerID: p.serverID}, expect: b.expect, consent: p.consent}
	f.ask = func(_ context.Context, addr, asker string) (peer.Introduction, error) {
		if b.depth < 3 && b.rng.IntN(2) == 0 {
			b.depth++
			b.act()
			b.depth--
		}
		i := slices.IndexFunc(b.procs, func(o *proc) bool { return o.alive && o.serverID == addr })
		switch {
		case i < 0:
			return peer.Introduction{}, errors.New("nobody is there")
		case b.procs[i].cluster != "":
			return peer.Introduction{ServerID: addr, ClusterID: b.procs[i].cluster}, nil
		}
		return b.procs[i].consent.answer(asker), nil
	}
	members := b.view(p)
	for _, m := range members {
		if m.Cluster != "" {
			return // it joins that
		}
	}
	if f.ready(members) != "" || f.try(b.t.Context(), members) != "" || !p.alive || p.starts != starts {
		return
	}
	if b.rng.IntN(4) == 0 {
		p.alive = false // before it has written anything
		return
	}
	p.cluster = p.serverID
	b.founded = append(b.founded, p.serverID)
}

// TestFoundingOnce starts, ends and starts again processes that are to found a cluster, at any
// moment, over incomplete views: there is never a second cluster, and at last there is one.
func TestFoundingOnce(t *testing.T) {
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 3))
		b := &foundingSim{t: t, rng: rng, expect: 2 + rng.IntN(4)}
		for i := range b.expect {
			p := &proc{name: fmt.Sprintf("n%d", i+1)}
			b.procs = append(b.procs, p)
			b.start(p)
		}
		for range 60 {
			b.act()
			if len(b.founded) > 1 {
				t.Fatalf("seed %d: clusters were founded by %v", seed, b.founded)
			}
		}
		for _, p := range b.procs {
			if !p.alive {
				b.start(p)
			}
		}
		for range 200 {
			if p := b.procs[rng.IntN(len(b.procs))]; p.cluster == "" {
				b.depth = 3 // nothing else happens
				b.try(p)
			}
			for _, p := range b.procs {
				if !p.alive {
					b.start(p)
				}
			}
		}
		if len(b.founded) != 1 {
			t.Fatalf("seed %d: after all were there for long, clusters were founded by %v", seed, b.founded)
		}
	}
}

// TestFoundingAmongMore has one node more than expected and none that starts anew: those that
// agreed to one founder agree to no other.
func TestFoundingAmongMore(t *testing.T) {
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 5))
		b := &foundingSim{t: t, rng: rng, expect: 3, final: true}
		for i := range 3 + rng.IntN(3) {
			p := &proc{name: fmt.Sprintf("n%d", i+1)}
			b.procs = append(b.procs, p)
			b.start(p)
		}
		for range 60 {
			b.act()
			if len(b.founded) > 1 {
				t.Fatalf("seed %d: clusters were founded by %v", seed, b.founded)
			}
		}
	}
}
