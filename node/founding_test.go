package node

import (
	"encoding/json"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/belfrydb/belfry/node/peer"
)

func testFounding(servers ...string) *Founding {
	return &Founding{Servers: servers, Shards: [][]int{{0, 1}, {2, 1}}, Groups: []int{0, 1, 2},
		Settings: json.RawMessage(`{"a":1}`)}
}

func TestFoundingNamesVoters(t *testing.T) {
	f := testFounding("a.1", "b.1", "c.1")
	id := &identity{Name: "b", Incarnation: "1", Founding: f}
	for group, want := range map[string][]string{
		"shard-0": {"a.1", "b.1"}, "shard-1": {"c.1", "b.1"}, "catalog": {"a.1", "b.1", "c.1"}, "shard-2": nil,
		"shard-x": nil,
	} {
		if got := id.firstVoters(group); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", group, got, want)
		}
	}
	id.Name = "a"
	if got := id.firstVoters("shard-1"); got != nil {
		t.Errorf("a node founds a shard with the voters %v", got)
	}
}

// TestIdentityOfAFounder: what a node founds is in its data directory, and a node that the founding
// does not name makes none.
func TestIdentityOfAFounder(t *testing.T) {
	incarnation := NewIncarnation()
	f := testFounding("a."+incarnation, "b.1", "c.1")
	cfg := Config{Dir: t.TempDir(), Name: "a", Incarnation: incarnation, Shards: 2, Founding: f}.withDefaults()
	id, err := loadIdentity(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if id.Founder || len(id.ClusterID) != 32 {
		t.Errorf("the identity is %+v", id)
	}
	again, err := loadIdentity(Config{Dir: cfg.Dir}.withDefaults())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(id.firstVoters("shard-0"), again.firstVoters("shard-0")); diff != "" ||
		len(again.firstVoters("shard-0")) != 2 {
		t.Errorf("the next start founds with other voters:\n%s", diff)
	}
	cfg.Dir, cfg.Incarnation = t.TempDir(), NewIncarnation()
	if _, err := loadIdentity(cfg); err == nil || !strings.Contains(err.Error(),
		"none of the nodes that found the cluster") {
		t.Errorf("a stranger makes an identity: %v", err)
	}
}

// TestFoundingIsTold: who asks a node hears how its cluster was founded, together with the rest.
func TestFoundingIsTold(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	incarnation := NewIncarnation()
	cfg := testConfig(t, t.TempDir())
	cfg.Name, cfg.Incarnation, cfg.Shards, cfg.Peers = "a", incarnation, 2, l
	cfg.Founding = testFounding("a."+incarnation, "b.1", "c.1")
	n, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := n.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	got, err := peer.Hello(t.Context(), nil, l.Addr().String())
	if diff := cmp.Diff(cfg.Founding, got.Founding); err != nil || diff != "" || got.Shards != 2 {
		t.Errorf("%+v, %v (-want +got):\n%s", got, err, diff)
	}
}
