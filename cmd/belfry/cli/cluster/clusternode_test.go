package cluster

import (
	"testing"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

func TestFindNode(t *testing.T) {
	cluster := &belfryv1.GetClusterResponse{Nodes: []*belfryv1.Node{
		{Name: "n1", Incarnation: "a"},
		{Name: "n1", Incarnation: "b"},
		{Name: "n2", Incarnation: "c"},
	}}
	for _, test := range []struct{ name, incarnation, want string }{
		{"n2", "", "c"}, {"n1", "b", "b"}, {"n1", "", ""}, {"n3", "", ""}, {"n2", "a", ""},
	} {
		if got := findNode(cluster, test.name, test.incarnation).GetIncarnation(); got != test.want {
			t.Errorf("findNode(%s, %s) = %s, want %s", test.name, test.incarnation, got, test.want)
		}
	}
}
