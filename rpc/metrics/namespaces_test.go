package metrics

import (
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/rpc/backend"
)

// spacedNode is a node with figures of namespaces.
type spacedNode struct {
	Node
	shards []node.ShardStats
}

func (n *spacedNode) Stats() node.Stats { return node.Stats{Shards: n.shards} }

// expectNamespaces compares what a collector shows with the samples of want, in any order.
func expectNamespaces(t *testing.T, c *namespaceCollector, want string) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(c); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			got.WriteString(strings.TrimPrefix(f.GetName(), "belfry_namespace_") + " " + strings.Join(labels, " ") + " " +
				strconv.FormatFloat(m.GetGauge().GetValue()+m.GetCounter().GetValue(), 'g', -1, 64) + "\n")
		}
	}
	if diff := cmp.Diff(strings.TrimLeft(want, "\n"), got.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if flaws, err := promlint.NewWithMetricFamilies(families).Lint(); err != nil || len(flaws) > 0 {
		t.Errorf("%v, %v", flaws, err)
	}
}

// TestMetricsOfNamespaces: the limits that are set, what is used of them in the shards that are
// led, and the refusals. Of too many namespaces those that were there first keep their series, and
// the rest are added up.
func TestMetricsOfNamespaces(t *testing.T) {
	var all []backend.Namespace
	n := &spacedNode{shards: []node.ShardStats{
		{Shard: 0, Spaces: map[string]node.Amounts{"b": {3, 30, 1, 500}, "c": {1, 1, 1, 1000}, "_other": {1, 1, 1, 0}},
			QuotaRefusals: map[string]node.Amounts{"b": {2, 0, 0, 1}, "c": {4}, "_other": {8}}},
		{Shard: 1, QuotaRefusals: map[string]node.Amounts{"b": {5, 0, 0, 0}, "gone": {16}}},
	}}
	c := NewNamespaceCollector(n, func() []backend.Namespace { return all })
	c.most = 1
	expectNamespaces(t, c, "")
	all = []backend.Namespace{{Name: "b", Quota: node.Amounts{10, 0, 0, 2500}}}
	want := `
limit jobs b 10
limit puts_per_second b 2.5
refused_total bytes _other 0
refused_total in_flight _other 0
refused_total jobs _other 28
refused_total jobs b 7
refused_total puts_per_second _other 0
refused_total puts_per_second b 1
used bytes _other 0 2
used in_flight _other 0 2
used jobs _other 0 2
used jobs b 0 3
used puts_per_second _other 0 1
used puts_per_second b 0 0.5
`
	expectNamespaces(t, c, want)
	all = []backend.Namespace{{Name: "_other", Quota: node.Amounts{1}}, {Name: "a", Quota: node.Amounts{1}}, all[0],
		{Name: "c", Quota: node.Amounts{1}}}
	expectNamespaces(t, c, want)
	all = all[:2]
	n.shards = nil
	const rest = `
refused_total bytes _other 0
refused_total in_flight _other 0
refused_total jobs _other 28
refused_total jobs a 0
refused_total puts_per_second _other 0
`
	expectNamespaces(t, c, "limit jobs a 1"+rest)
}

// TestRefusalsOfNamespacesNeverFall: a namespace that loses its quota and gets it back, a replica
// that goes and comes, and a node that starts it anew take nothing from what was counted.
func TestRefusalsOfNamespacesNeverFall(t *testing.T) {
	var all []backend.Namespace
	a, b := backend.Namespace{Name: "a", Quota: node.Amounts{1}}, backend.Namespace{Name: "b", Quota: node.Amounts{1}}
	n := &spacedNode{}
	c := NewNamespaceCollector(n, func() []backend.Namespace { return all })
	for i, step := range []struct {
		all                []backend.Namespace
		shards             map[string]node.Amounts // of shard 0; nil if it is not here
		ofA, ofB, ofOthers string
	}{
		{[]backend.Namespace{a, b}, map[string]node.Amounts{"a": {5}, "b": {1}}, "5", "1", ""},
		{[]backend.Namespace{b}, map[string]node.Amounts{"a": {7}, "b": {1}}, "", "1", "2"},
		{[]backend.Namespace{a, b}, map[string]node.Amounts{"a": {7}, "b": {2}}, "5", "2", "2"},
		{[]backend.Namespace{a, b}, map[string]node.Amounts{"a": {8}, "b": {2}}, "6", "2", "2"},
		{[]backend.Namespace{a, b}, nil, "6", "2", "2"},
		{[]backend.Namespace{a, b}, map[string]node.Amounts{"a": {3}}, "9", "2", "2"},
		{nil, map[string]node.Amounts{"a": {3}}, "", "", ""},
		{[]backend.Namespace{a}, map[string]node.Amounts{"a": {4}}, "10", "", "2"},
	} {
		if all, n.shards = step.all, nil; step.shards != nil {
			n.shards = []node.ShardStats{{QuotaRefusals: step.shards}}
		}
		registry := prometheus.NewPedanticRegistry()
		if err := registry.Register(c); err != nil {
			t.Fatal(err)
		}
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if f.GetName() == "belfry_namespace_refused_total" && m.GetLabel()[0].GetValue() == "jobs" {
					got[m.GetLabel()[1].GetValue()] = strconv.FormatFloat(m.GetCounter().GetValue(), 'g', -1, 64)
				}
			}
		}
		want := map[string]string{"a": step.ofA, "b": step.ofB, node.OtherQueues: step.ofOthers}
		for name, count := range want {
			if got[name] != count {
				t.Errorf("step %d: of %s %q were refused, want %q", i, name, got[name], count)
			}
		}
	}
}
