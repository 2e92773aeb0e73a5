package node

import (
	"encoding/json"
	"net"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/belfrydb/belfry/node/identity"
	"github.com/belfrydb/belfry/node/peer"
)

func testFounding(servers ...string) *Founding {
	return &Founding{Servers: servers, Shards: [][]int{{0, 1}, {2, 1}}, Groups: []int{0, 1, 2},
		Settings: json.RawMessage(`{"a":1}`)}
}

// TestFoundingIsTold: a node's answer to a question includes how its cluster was founded.
func TestFoundingIsTold(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	incarnation := identity.NewIncarnation()
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
