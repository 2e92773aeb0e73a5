package gossip_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belfrydb/belfry/cluster/gossip"
	"github.com/belfrydb/belfry/cluster/gossip/gossiptest"
)

func TestNodesFindEachOther(t *testing.T) {
	inWorld(t, func(w *world) {
		nodes := w.runAll(3)
		w.await("all see all", 10*time.Second, sees(nodes...))
		got := member(nodes[2], "n2.a")
		if !got.Alive || time.Since(got.Since) > 10*time.Second {
			t.Errorf("n2 is alive: %v, since %v", got.Alive, got.Since)
		}
		if diff := cmp.Diff(w.config(2).Self, got.Info); diff != "" {
			t.Errorf("what n3 knows of n2 (-want +got):\n%s", diff)
		}
		if got.GossipAddr.String() != at(2) || nodes[1].Addr().String() != at(2) {
			t.Errorf("n2 is at %v, itself says %v", got.GossipAddr, nodes[1].Addr())
		}
		for _, g := range nodes {
			if len(g.Problems()) != 0 {
				t.Errorf("problems: %v", g.Problems())
			}
		}
	})
}

func TestJoinAddressMayComeUpLater(t *testing.T) {
	inWorld(t, func(w *world) {
		first := w.run(w.config(1, 2))
		gossiptest.Pass(time.Hour)
		second := w.run(w.config(2))
		w.await("they see each other", 40*time.Second, sees(first, second))
	})
}

func TestSilenceAndReturn(t *testing.T) {
	inWorld(t, func(w *world) {
		nodes := w.runAll(3)
		w.await("all see all", 10*time.Second, sees(nodes...))
		changed := nodes[0].Changed()
		w.net.Split([]netip.Addr{host(3)})
		took := w.await("n3 is silent", time.Minute, func() bool { return !member(nodes[0], "n3.a").Alive })
		t.Logf("silent after %v", took)
		select {
		case <-changed:
		default:
			t.Error("nobody was told of the change")
		}
		if len(nodes[0].Members()) != 2 {
			t.Errorf("a silent node is no member any more: %v", nodes[0].Members())
		}
		w.net.Heal()
		w.await("all see all again", time.Minute, sees(nodes...))
	})
}

func TestLeaveIsNoticedAtOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		nodes := w.runAll(3)
		w.await("all see all", 10*time.Second, sees(nodes...))
		if err := nodes[2].Close(); err != nil {
			t.Fatal(err)
		}
		w.await("n3 is silent", 2*time.Second, sees(nodes[:2]...))
		if err := nodes[2].Update(w.config(3).Self); !errors.Is(err, gossip.ErrClosed) {
			t.Errorf("Update after Close: %v", err)
		}
	})
}

// The library forgets silent nodes after half a minute and never calls again: without the joiner
// both halves stay apart.
func TestHalvesFindEachOtherAfterALongSplit(t *testing.T) {
	inWorld(t, func(w *world) {
		nodes := w.runAll(4) // all join host 1, so the other half has no join address of its own
		w.await("all see all", 10*time.Second, sees(nodes...))
		w.net.Split([]netip.Addr{host(1), host(2)})
		w.await("the halves see only themselves", 2*time.Minute, func() bool {
			return sees(nodes[:2]...)() && sees(nodes[2:]...)()
		})
		gossiptest.Pass(2 * time.Hour)
		w.net.Heal()
		took := w.await("all see all again", 2*time.Minute, sees(nodes...))
		t.Logf("together again after %v", took)
	})
}

// TestAddressesOutliveARestart: no join address leads anywhere any more, but the stored addresses
// do, whether the data directory was there from the start or is made later.
func TestAddressesOutliveARestart(t *testing.T) {
	for _, later := range []bool{false, true} {
		t.Run(fmt.Sprintf("later %v", later), func(t *testing.T) {
			inWorld(t, func(w *world) {
				first := w.run(w.config(1))
				second, dir := w.config(2, 1), t.TempDir()
				if !later {
					second.Dir = dir
				}
				g := w.run(second)
				w.await("they see each other", 10*time.Second, sees(first, g))
				if later {
					g.KeepAddresses(dir)
				}
				if err := errors.Join(g.Close(), first.Close()); err != nil {
					t.Fatal(err)
				}
				gossiptest.Pass(time.Hour)
				first = w.run(w.config(1)) // it keeps nothing
				second.Dir, second.Join = dir, []string{at(9)}
				g = w.run(second)
				w.await("they see each other again", 10*time.Second, sees(first, g))
			})
		})
	}
}

func TestRestartAtAnotherAddress(t *testing.T) {
	inWorld(t, func(w *world) {
		nodes := w.runAll(3)
		w.await("all see all", 10*time.Second, sees(nodes...))
		w.net.Split([]netip.Addr{host(3)}) // as if it had died: it cannot take leave
		moved := w.config(3, 1)
		moved.Listen = at(4)
		g := w.run(moved)
		// The library by itself refuses the new address until it has forgotten the old one, half a minute
		// after it fell silent.
		took := w.await("n3 is at its new address", 35*time.Second, func() bool {
			one, two := member(nodes[0], "n3.a"), member(nodes[1], "n3.a")
			return one.Alive && two.Alive && one.GossipAddr.String() == at(4) && two.GossipAddr.String() == at(4)
		})
		t.Logf("known after %v", took)
		gossiptest.Pass(10 * time.Minute)
		for _, g := range []*gossip.Gossip{nodes[0], nodes[1], g} {
			if clash := problems(g, gossip.NameClash); len(clash) != 0 {
				t.Errorf("a node that moved is no clash: %v", clash)
			}
		}
	})
}

func TestRestartAsAnotherIncarnation(t *testing.T) {
	inWorld(t, func(w *world) {
		nodes := w.runAll(2)
		third := w.config(3, 1)
		old := w.run(third)
		w.await("all see all", 10*time.Second, sees(nodes[0], nodes[1], old))
		w.net.Split([]netip.Addr{host(3)}) // as if it had died, so that both are called alive for a while
		third.Self.ServerID, third.Listen = "n3.b", at(4)
		third.Self.Cluster = "" // its disk was wiped
		g := w.run(third)
		w.await("the new one is there", 40*time.Second, func() bool { return slices.Contains(alive(nodes[0]), "n3.b") })
		gossiptest.Pass(10 * time.Minute)
		if old := member(nodes[0], "n3.a"); old.ServerID == "" || old.Alive {
			t.Errorf("the old incarnation: %+v", old)
		}
		for _, g := range append(nodes, g) {
			if len(g.Problems()) != 0 {
				t.Errorf("problems: %v", g.Problems())
			}
		}
		nodes[0].Forget("n3.b")
		nodes[0].Forget("n3.a")
		if got := nodes[0].Members(); len(got) != 2 || !slices.Contains(alive(nodes[0]), "n3.b") {
			t.Errorf("forgetting takes the silent one, and only that: %v", got)
		}
	})
}

func TestUpdateReachesEverybody(t *testing.T) {
	inWorld(t, func(w *world) {
		nodes := w.runAll(2)
		blank := w.config(3, 1)
		blank.Self.Cluster = ""
		g := w.run(blank)
		nodes = append(nodes, g)
		w.await("all see all", 10*time.Second, sees(nodes...))
		info := blank.Self
		info.Cluster, info.Zone = "one", "z9"
		if err := g.Update(info); err != nil {
			t.Fatal(err)
		}
		w.await("they know", 5*time.Second, func() bool {
			return member(nodes[0], "n3.a").Info == info && member(nodes[1], "n3.a").Info == info
		})
		info.Name, info.ServerID = "other", "other.a"
		if err := g.Update(info); err == nil {
			t.Error("a node took another name")
		}
	})
}

func TestCloseIsBounded(t *testing.T) {
	inWorld(t, func(w *world) {
		w.net.Split([]netip.Addr{host(1)})
		cfg := w.config(1, 2, 3, 4, 5, 6, 7, 8, 9) // every call waits for an answer that never comes
		g := w.run(cfg)
		gossiptest.Pass(2 * time.Second)
		begin := time.Now()
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took > 3*time.Second {
			t.Errorf("Close took %v", took)
		}
	})
}

func TestJoinNamesAreResolvedAnew(t *testing.T) {
	inWorld(t, func(w *world) {
		first := w.run(w.config(1))
		resolved := netip.Addr{}
		cfg := w.config(2)
		cfg.Join = []string{"belfry.example:7402"}
		g, err := gossip.StartWithLookup(t.Context(), cfg, func(_ context.Context, _, name string) ([]netip.Addr, error) {
			if name != "belfry.example" || !resolved.IsValid() {
				return nil, errors.New("no such name")
			}
			return []netip.Addr{host(9), resolved}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		w.t.Cleanup(func() { g.Close() })
		gossiptest.Pass(time.Hour)
		resolved = host(1)
		w.await("they see each other", 40*time.Second, sees(first, g))
	})
}

func TestConfigSaysAllThatIsWrong(t *testing.T) {
	inWorld(t, func(w *world) {
		for _, tt := range []struct {
			name   string
			change func(*gossip.Config)
			want   []string
		}{
			{"no key", func(c *gossip.Config) { c.Insecure = false }, []string{"key file"}},
			{"two faults", func(c *gossip.Config) { c.Self.Name, c.Join = "a.b", []string{"x"} }, []string{"name", `"x"`}},
			{"everywhere", func(c *gossip.Config) { c.Listen = ":7402" }, []string{"say at which host"}},
			{"unreachable", func(c *gossip.Config) { c.Advertise = "0.0.0.0" }, []string{"no node can reach"}},
			{"key file", func(c *gossip.Config) { c.KeyFile = t.TempDir() + "/none" }, []string{"none"}},
			{"no port", func(c *gossip.Config) { c.Listen = "10.0.0.1" }, []string{"to listen at"}},
			{"too long", func(c *gossip.Config) {
				c.Self.PeerAddr = strings.Repeat("p", 300) + ":1"
				c.Self.ClientAddr = strings.Repeat("c", 300) + ":1"
			}, []string{"at most 512"}},
			{"listener", func(c *gossip.Config) { c.Listen = at(5) }, []string{"in use"}},
		} {
			if tt.name == "listener" {
				w.run(w.config(5))
			}
			cfg := w.config(1)
			tt.change(&cfg)
			_, err := gossip.Start(w.t.Context(), cfg)
			for _, want := range tt.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%s: %v, want it to say %q", tt.name, err, want)
				}
			}
		}
	})
}
