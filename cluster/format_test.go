package cluster

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/belfrydb/belfry/cluster/catalog"
	"github.com/belfrydb/belfry/cluster/placement"
	"github.com/belfrydb/belfry/cluster/routing/routingtest"
	"github.com/belfrydb/belfry/fsm"
	"github.com/google/go-cmp/cmp"
)

// TestFormatThatAllRead is the lowest of what records and reports say, and the first while a node
// is silent.
func TestFormatThatAllRead(t *testing.T) {
	const last = fsm.LatestFormat
	tests := []struct {
		name    string
		records string // what each node is recorded to read
		reports string // what each says; a dash is silence
		want    fsm.Format
	}{
		{"this program", string([]byte{byte(last), byte(last)}), string([]byte{byte(last), byte(last)}), last},
		{"later ones", string([]byte{byte(last), byte(last) + 1}), string([]byte{byte(last), byte(last) + 1}), last},
		{"one of before there were formats", string([]byte{byte(last), 0}), string([]byte{byte(last), 0}), fsm.FirstFormat},
		{"one that goes back", string([]byte{byte(last), byte(last)}), string([]byte{byte(last), 1}), fsm.FirstFormat},
		{"one that is not recorded anew yet", string([]byte{byte(last), 1}), string([]byte{byte(last), byte(last)}),
			fsm.FirstFormat},
		{"a silent one", string([]byte{byte(last), byte(last)}), string([]byte{byte(last), '-'}), fsm.FirstFormat},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var nodes []catalog.Node
			reports := map[string]*placement.Report{}
			for i := range tt.records {
				id := fmt.Sprint(i)
				nodes = append(nodes, catalog.Node{ServerID: id, Format: fsm.Format(tt.records[i])})
				if tt.reports[i] != '-' {
					reports[id] = &placement.Report{Format: fsm.Format(tt.reports[i])}
				}
			}
			if got := agreed(nodes, reports); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
}

// TestClusterSpeaksTheFormatThatAllRead: nodes of this program come to speak its format by
// themselves, and an older one is not admitted any more.
func TestClusterSpeaksTheFormatThatAllRead(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		network := routingtest.NewNetwork()
		a := newMember(t, network, dir, "a", nil)
		if a.node.Format() != fsm.LatestFormat { // or its first queues had other defaults than the next ones
			t.Errorf("a new cluster begins in format %d", a.node.Format())
		}
		b := newMember(t, network, dir, "b", a)
		await(t, "two voters of each shard", func() bool { return settled(a.cluster, 2, a, b) })
		await(t, "the latest format", func() bool {
			return a.node.Format() == fsm.LatestFormat && b.node.Format() == fsm.LatestFormat
		})
		if err := put(b, "q0"); err != nil {
			t.Error(err)
		}
		want := []fsm.Format{fsm.LatestFormat, fsm.LatestFormat}
		var got []fsm.Format
		for _, n := range b.cluster.Nodes() {
			got = append(got, n.Format)
		}
		if diff := cmp.Diff(want, got); diff != "" || b.cluster.Format() != fsm.LatestFormat {
			t.Errorf("the cluster speaks %d; nodes read (-want +got):\n%s", b.cluster.Format(), diff)
		}
		old := catalog.Node{Name: "old", ServerID: "old.1", Format: fsm.LatestFormat - 1}
		if err := b.cluster.Admit(t.Context(), old); errors.Is(err,
			catalog.ErrFormat) != (fsm.LatestFormat > fsm.FirstFormat) {
			t.Errorf("a node that reads up to %d: %v", old.Reads(), err)
		}
	})
}
