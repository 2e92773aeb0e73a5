package rpc

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/belfrydb/belfry/rpc/backend"
)

// TestReachProblems: a node that cannot connect to another is named with the address that was
// tried, and a node that is gone is only gone.
func TestReachProblems(t *testing.T) {
	for _, test := range []struct {
		name  string
		spoil func(*fakeCluster)
		want  []string
	}{
		{"two nodes do not reach each other", func(f *fakeCluster) {
			f.members[1].Unreached = []backend.UnreachedNode{{ServerID: serverID(3), Address: "10.0.0.3:7401", Calls: true}}
			f.members[2].Unreached = []backend.UnreachedNode{{ServerID: serverID(2), Address: "10.0.0.2:7401"}}
			f.members[2].Behind = []backend.BehindReplica{{Group: "shard-1", Applied: 92, Commit: 585}}
		}, []string{
			"nodes n2 and n3 cannot reach each other (n2 at 10.0.0.2:7401, n3 at 10.0.0.3:7401): look at the network and " +
				"firewalls between them",
			"replicas on node n3 are behind their leaders, and count for nothing until they have caught up: shard-1 (92 of " +
				"585 entries)",
		}},
		{"a node that runs is not reached", func(f *fakeCluster) {
			f.silence(3)
			for i := range 2 {
				f.members[i].Unreached = []backend.UnreachedNode{{ServerID: serverID(3), Address: "10.0.0.3:7401", Calls: i == 0}}
			}
		}, []string{
			"node n3 cannot be reached by n1, n2 at 10.0.0.3:7401: look at its --advertise and firewalls",
			"with fewer than 3 voters that answer: shards 0, 1, 2",
		}},
		{"a node that is gone is not reached", func(f *fakeCluster) {
			f.silence(3)
			f.members[0].Unreached = []backend.UnreachedNode{{ServerID: serverID(3), Address: "10.0.0.3:7401"}}
		}, []string{"node n3 does not answer", "with fewer than 3 voters that answer: shards 0, 1, 2"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := healthyCluster()
			test.spoil(f)
			if diff := cmp.Diff(test.want, problemsOf(t, f)); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}
