package server

import (
	"slices"
	"testing"
	"time"

	"github.com/belfrydb/belfry/cluster"
	"github.com/belfrydb/belfry/cluster/gossip"
)

// TestReplacedNodeIsFoundAtOnce: gossip shows two incarnations of a node as alive at one address.
// The directory has the later one, whichever id sorts first.
func TestReplacedNodeIsFoundAtOnce(t *testing.T) {
	began := time.Unix(1_800_000_000, 0)
	incarnation := func(serverID string, since time.Time) gossip.Member {
		return gossip.Member{
			Info: gossip.Info{Cluster: "c", ServerID: serverID, PeerAddr: "10.0.0.2:7401"}, Alive: true, Since: since,
		}
	}
	for _, test := range []struct{ before, after string }{{"n2.a", "n2.b"}, {"n2.b", "n2.a"}} {
		m := &bootstrap{directory: cluster.NewDirectory(), self: gossip.Info{Cluster: "c"}}
		first, second := incarnation(test.before, began), incarnation(test.after, began.Add(time.Minute))
		members := []gossip.Member{first, second}
		if test.after < test.before { // as gossip lists them
			members = []gossip.Member{second, first}
		}
		m.updateDirectory(members)
		if addrs, err := m.directory.Resolve(test.after); !slices.Equal(addrs, []string{"10.0.0.2:7401"}) {
			t.Errorf("%s after %s: %q, %v", test.after, test.before, addrs, err)
		}
		if addr, err := m.directory.Resolve(test.before); err == nil {
			t.Errorf("the earlier incarnation %s is looked for at %s", test.before, addr)
		}
	}
}
