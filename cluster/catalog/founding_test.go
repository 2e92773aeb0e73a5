package catalog

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/belfrydb/belfry/fsm"

	"github.com/google/go-cmp/cmp"
)

// TestFounderIsWipedBeforeTheRecord: a founder that lost its disk before the cluster was recorded
// is admitted as a new node first. The record is made nevertheless, and has the lost founder in its
// places.
func TestFounderIsWipedBeforeTheRecord(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n, _ := openNode(t, dir)
		c := openOver(t, n, n)
		if err := c.Admit(t.Context(), c.self); err != nil {
			t.Fatal(err)
		}
		self := n.Status().ServerID
		again := Node{Name: "a", ServerID: "a.2", Format: fsm.LatestFormat}
		if err := c.Admit(t.Context(), again); err != nil {
			t.Fatal(err)
		}
		f, err := NewFounding(FoundingConfig{Shards: n.ShardCount(),
			Founders: []Founder{{ServerID: "a.1"}, {ServerID: self}}})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // also when it is done again
			if err := c.recordFounded(t.Context(), f, unknownAddress); err != nil {
				t.Errorf("recording the cluster: %v", err)
			}
		}
		var servers []string
		for _, n := range c.Nodes() {
			servers = append(servers, n.ServerID)
		}
		if want := []string{"a.1", "a.2", self}; !slices.Equal(servers, want) {
			t.Errorf("recorded are %q, want %q", servers, want)
		}
	})
}

func TestNewFounding(t *testing.T) {
	for _, tt := range []struct {
		name   string
		zones  []string
		factor int
		shards [][]int
		groups []int
	}{
		{"three nodes", []string{"", "", ""}, 0, [][]int{{0, 1, 2}, {1, 2, 0}, {2, 0, 1}, {0, 1, 2}, {1, 2, 0}, {2, 0, 1}},
			[]int{0, 1, 2}},
		{"two nodes", []string{"", ""}, 0, [][]int{{0, 1}, {1, 0}, {0, 1}, {1, 0}, {0, 1}, {1, 0}}, []int{0, 1}},
		{"one copy", []string{"", "", ""}, 1, [][]int{{0}, {1}, {2}, {0}, {1}, {2}}, []int{0, 1, 2}},
		{"five nodes", []string{"", "", "", "", ""}, 0,
			[][]int{{0, 1, 2}, {3, 4, 0}, {1, 2, 3}, {4, 0, 1}, {2, 3, 4}, {0, 1, 2}}, []int{0, 1, 2, 3, 4}},
		{"three zones", []string{"x", "x", "x", "y", "z"},
			0, [][]int{{0, 3, 4}, {1, 3, 4}, {2, 3, 4}, {3, 4, 0}, {4, 1, 3}, {2, 3, 4}}, []int{0, 1, 2, 3, 4}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := FoundingConfig{Shards: 6, Settings: Settings{Factor: tt.factor}}
			for i, zone := range tt.zones {
				cfg.Founders = append(cfg.Founders, Founder{ServerID: fmt.Sprintf("n%d.1", i), Zone: zone})
			}
			got, err := NewFounding(cfg)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.shards, got.Shards); diff != "" {
				t.Errorf("voters (-want +got):\n%s", diff)
			}
			if !slices.Equal(got.Groups, tt.groups) {
				t.Errorf("the catalog has %v", got.Groups)
			}
		})
	}
}

// unknownAddress knows no address of any server.
func unknownAddress(server string) ([]string, error) {
	return nil, fmt.Errorf("no address is known for server %q", server)
}
