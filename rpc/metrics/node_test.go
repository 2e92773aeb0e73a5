package metrics

import (
	"reflect"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/rpc/backend"
)

// wholeNode is a node that leads one shard and the catalog, and of which everything is known.
type wholeNode struct{ Node }

func (wholeNode) Status() node.Status {
	return node.Status{
		ClusterID: "c", Name: "a", ServerID: "a.1", DiskLowInodes: 1, MinVoters: 1,
		Groups: []node.GroupStatus{{RaftStatus: node.RaftStatus{Group: backend.CatalogGroup, Serving: true}}},
		Shards: []node.GroupStatus{{RaftStatus: node.RaftStatus{Serving: true}}},
	}
}

func (wholeNode) Stats() node.Stats {
	s := node.Stats{Shards: []node.ShardStats{{
		Leading: true, NextFiring: 1,
		Followers: []node.FollowerStats{{Server: "b.1", Heard: time.Unix(1, 0)}},
		Snapshot:  node.SnapshotStats{Taken: 1, At: time.Unix(1, 0)},
	}}}
	s.Clocks = append(s.Clocks, struct {
		Server string
		Ahead  time.Duration
	}{Server: "b.1"})
	return s
}

// TestEveryMetricOfANodeIsCollected: each metric that the collector describes comes out of a scrape.
// One that Collect leaves out would be described and never shown.
func TestEveryMetricOfANodeIsCollected(t *testing.T) {
	c := NewNodeCollector(wholeNode{}, func() int { return 3 }, "v1")
	collected := map[*prometheus.Desc]bool{}
	out := make(chan prometheus.Metric)
	go func() {
		defer close(out)
		c.Collect(out)
	}()
	for m := range out {
		collected[m.Desc()] = true
	}
	fields := reflect.ValueOf(c).Elem()
	described := 0
	for i := range fields.NumField() {
		name, field := fields.Type().Field(i).Name, fields.Field(i)
		if field.Type() != reflect.TypeFor[*prometheus.Desc]() {
			continue
		}
		described++
		if d := (*prometheus.Desc)(field.UnsafePointer()); d == nil {
			t.Errorf("%s is not described", name)
		} else if !collected[d] {
			t.Errorf("%s is described and not collected: %v", name, d)
		}
	}
	if described == 0 {
		t.Error("the collector has no descriptions in fields")
	}
}
