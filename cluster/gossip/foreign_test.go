package gossip_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfrydb/belfry/cluster/gossip"
	"github.com/belfrydb/belfry/cluster/gossip/gossiptest"
)

func TestForeignClusterStaysOut(t *testing.T) {
	inWorld(t, func(w *world) {
		ours := w.runAll(2)
		var theirs []*gossip.Gossip
		for n := 3; n <= 4; n++ {
			cfg := w.config(n, 3, 1) // a mistake: host 1 belongs to the other cluster
			cfg.Self.Cluster = "two"
			theirs = append(theirs, w.run(cfg))
		}
		w.await("each cluster sees itself", 10*time.Second, func() bool { return sees(ours...)() && sees(theirs...)() })
		for range 60 {
			gossiptest.Pass(time.Minute)
			if !sees(ours...)() || !sees(theirs...)() {
				t.Fatalf("ours see %v and %v", alive(ours[0]), alive(ours[1]))
			}
		}
		got := problems(theirs[0], gossip.ForeignCluster)
		if len(got) == 0 || got[0].Addr.String() != at(1) || got[0].Cluster != "one" {
			t.Fatalf("problems of the caller: %+v", got)
		}
		for _, want := range []string{"n1", at(1), "cluster one", "this node to two"} {
			if !strings.Contains(got[0].Text, want) {
				t.Errorf("%q does not say %q", got[0].Text, want)
			}
		}
		if got := problems(ours[0], gossip.ForeignCluster); len(got) != 2 {
			t.Errorf("problems of the called: %+v", got)
		}
		if n := w.log.count("n1 at " + at(1)); n != 2 {
			t.Errorf("n1 was reported %d times by two nodes in an hour", n)
		}
	})
}

// TestNodeWithoutClusterIsNoBridge: a node without a cluster sees nodes of two clusters. It must
// not be the bridge over which they mix.
func TestNodeWithoutClusterIsNoBridge(t *testing.T) {
	inWorld(t, func(w *world) {
		one := w.run(w.config(1))
		cfg := w.config(2)
		cfg.Self.Cluster = "two"
		two := w.run(cfg)
		blank := w.config(3, 1, 2)
		blank.Self.Cluster = ""
		unassigned := w.run(blank)
		w.await("the node without a cluster sees both", 10*time.Second, func() bool { return len(alive(unassigned)) == 2 })
		gossiptest.Pass(time.Hour)
		if got := alive(one); len(got) != 1 || got[0] != "n3.a" {
			t.Errorf("cluster one sees %v", got)
		}
		info := blank.Self
		info.Cluster = "one"
		if err := unassigned.Update(info); err != nil {
			t.Fatal(err)
		}
		w.await("it is no member of two", 30*time.Second, func() bool { return len(two.Members()) == 0 })
		gossiptest.Pass(time.Hour)
		if got := unassigned.Members(); len(got) != 1 || got[0].ServerID != "n1.a" {
			t.Errorf("the node that joined sees %v", got)
		}
		for _, tt := range []struct {
			node  *gossip.Gossip
			other string
		}{{two, "n3"}, {unassigned, "n2"}} {
			got := problems(tt.node, gossip.ForeignCluster)
			if !slices.ContainsFunc(got, func(p gossip.Problem) bool { return p.Name == tt.other }) {
				t.Errorf("problems %+v, want one about %s", got, tt.other)
			}
		}
	})
}

func TestWrongKeyStaysOut(t *testing.T) {
	for _, tt := range []struct {
		name         string
		ours, theirs []byte // keys; none is none
		said, heard  string // by the caller, by the called
	}{
		{
			"another key", []byte{1}, []byte{2}, "it lacks this node's gossip key or has none: start it with --gossip-keys",
			"has a gossip key that this node does not have: put the same keys into the files of --gossip-keys of both",
		},
		{
			"no key", []byte{1}, nil, "this node has no gossip key: start this node with --gossip-keys",
			"runs gossip without a key, and this node has one: start that node with --gossip-keys",
		},
		{
			"a key", nil, []byte{1}, "it lacks this node's gossip key or has none: start it with --gossip-keys",
			"runs gossip with a key, and this node has none: start this node with --gossip-keys",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				ours, theirs := w.config(1), w.config(2, 1)
				if tt.ours != nil {
					ours.KeyFile = keyFile(t, "", tt.ours...)
				}
				if tt.theirs != nil {
					theirs.KeyFile = keyFile(t, "", tt.theirs...)
				}
				called, caller := w.run(ours), w.run(theirs)
				gossiptest.Pass(time.Hour)
				if len(called.Members())+len(caller.Members()) != 0 {
					t.Errorf("members: %v and %v", called.Members(), caller.Members())
				}
				for _, side := range []struct {
					node       *gossip.Gossip
					other, say string
					// not the port that its stream comes from
				}{{caller, "the node at " + at(1) + " ", tt.said}, {called, "the node at " + host(2).String() + " ", tt.heard}} {
					got := problems(side.node, gossip.WrongKey)
					if len(got) != 1 || !strings.Contains(got[0].Text, side.say) || !strings.Contains(got[0].Text, side.other) {
						t.Errorf("problems %+v, want one that says %q of %s", got, side.say, side.other)
					}
				}
			})
		})
	}
}

func TestKeyRotationLosesNoNode(t *testing.T) {
	inWorld(t, func(w *world) {
		var nodes []*gossip.Gossip
		var files []string
		for n := 1; n <= 3; n++ {
			cfg := w.config(n, 1)
			cfg.KeyFile = keyFile(t, "", 1)
			nodes, files = append(nodes, w.run(cfg)), append(files, cfg.KeyFile)
		}
		w.await("all see all", 10*time.Second, sees(nodes...))
		for _, step := range [][]byte{{1, 2}, {2, 1}, {2}} {
			for i, g := range nodes {
				keyFile(t, files[i], step...)
				if err := g.ReloadKeys(); err != nil {
					t.Fatal(err)
				}
				gossiptest.Pass(5 * time.Minute)
			}
		}
		if n := w.log.count("a node is silent"); n != 0 || !sees(nodes...)() {
			t.Errorf("%d times a node fell silent", n)
		}
		for _, g := range nodes {
			if len(g.Problems()) != 0 {
				t.Errorf("problems: %v", g.Problems())
			}
		}
		foreign := w.config(4, 1)
		foreign.KeyFile = keyFile(t, "", 1) // the key that was taken out
		g := w.run(foreign)
		gossiptest.Pass(time.Minute)
		if len(g.Members()) != 0 {
			t.Errorf("the old key still opens: %v", g.Members())
		}
		keyFile(t, files[0])
		if err := nodes[0].ReloadKeys(); err == nil {
			t.Error("an empty key file was taken")
		}
		gossiptest.Pass(time.Minute)
		if !sees(nodes...)() {
			t.Error("a key file that is not in order changed the keys")
		}
	})
}

func TestNameClash(t *testing.T) {
	for _, tt := range []struct {
		name, serverID, clash string
		unaware               int // the node that cannot know, from 1
	}{
		{"two incarnations", "n2.b", "n2", 0},
		// All others go on believing the first process, so it never learns of the second.
		{"one data directory twice", "n2.a", "n2.a", 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				nodes := w.runAll(3)
				w.await("all see all", 10*time.Second, sees(nodes...))
				second := w.config(2, 1)
				second.Self.ServerID, second.Listen = tt.serverID, at(4)
				nodes = append(nodes, w.run(second))
				gossiptest.Pass(10 * time.Minute)
				for i, g := range nodes {
					got := problems(g, gossip.NameClash)
					if i+1 == tt.unaware {
						continue
					}
					if len(got) != 1 {
						t.Errorf("node %d: problems %+v", i+1, got)
						continue
					}
					for _, want := range []string{"called " + tt.clash + ",", at(2), at(4)} {
						if !strings.Contains(got[0].Text, want) {
							t.Errorf("%q does not say %q", got[0].Text, want)
						}
					}
				}
			})
		})
	}
}

func TestAllowFrom(t *testing.T) {
	inWorld(t, func(w *world) {
		cfg := w.config(1)
		cfg.AllowFrom = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/31")}
		guarded := w.run(cfg)
		w.run(w.config(2, 1))
		gossiptest.Pass(time.Hour)
		if got := guarded.Members(); len(got) != 0 {
			t.Errorf("members from elsewhere: %v", got)
		}
	})
}
