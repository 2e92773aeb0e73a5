package server

import (
	"slices"
	"testing"
	"time"

	"github.com/belfrydb/belfry/cluster"
	"github.com/belfrydb/belfry/cluster/gossip"
)

// TestReplacedNodeIsHeardAtOnce: of two lives of a node that gossip takes for alive, at one address, the later one is there, whichever id comes first.
func TestReplacedNodeIsHeardAtOnce(t *testing.T) {
	began := time.Unix(1_800_000_000, 0)
	life := func(serverID string, since time.Time) gossip.Member {
		return gossip.Member{Info: gossip.Info{Cluster: "c", ServerID: serverID, PeerAddr: "10.0.0.2:7401"}, Alive: true, Since: since}
	}
	for _, test := range []struct{ before, after string }{{"n2.a", "n2.b"}, {"n2.b", "n2.a"}} {
		m := &meeting{directory: cluster.NewDirectory(), self: gossip.Info{Cluster: "c"}}
		first, second := life(test.before, began), life(test.after, began.Add(time.Minute))
		members := []gossip.Member{first, second}
		if test.after < test.before { // as gossip lists them
			members = []gossip.Member{second, first}
		}
		m.hear(members)
		if addrs, err := m.directory.Resolve(test.after); !slices.Equal(addrs, []string{"10.0.0.2:7401"}) {
			t.Errorf("%s after %s: %q, %v", test.after, test.before, addrs, err)
		}
		if addr, err := m.directory.Resolve(test.before); err == nil {
			t.Errorf("the earlier life %s is looked for at %s", test.before, addr)
		}
	}
}
