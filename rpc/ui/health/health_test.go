package health

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/timestamppb"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// TestNeeded: a node is needed while a shard would have no majority without it.
func TestNeeded(t *testing.T) {
	replica := func(node string) *belfryv1.Replica { return &belfryv1.Replica{Node: node, Voter: true} }
	shard := func(change func(a, b, c *belfryv1.Replica)) []*belfryv1.Shard {
		a, b, c := replica("a"), replica("b"), replica("c")
		change(a, b, c)
		return []*belfryv1.Shard{{Shard: 3, Voters: []string{"a", "b", "c"}, Replicas: []*belfryv1.Replica{a, b, c}}}
	}
	for what, tt := range map[string]struct {
		shards []*belfryv1.Shard
		want   string
	}{
		"all are well":   {shard(func(_, _, _ *belfryv1.Replica) {}), ""},
		"one is silent":  {shard(func(_, _, c *belfryv1.Replica) { c.Silent = true }), "ab"},
		"one is behind":  {shard(func(_, b, _ *belfryv1.Replica) { b.BehindSince = timestamppb.Now() }), "ac"},
		"two are silent": {shard(func(a, b, _ *belfryv1.Replica) { a.Silent, b.Silent = true, true }), "c"},
		"alone":          {[]*belfryv1.Shard{{Voters: []string{"a"}, Replicas: []*belfryv1.Replica{replica("a")}}}, ""},
	} {
		got := ""
		for _, node := range []string{"a", "b", "c"} {
			if len(Needed(&belfryv1.GetClusterResponse{Shards: tt.shards})[node]) > 0 {
				got += node
			}
		}
		if got != tt.want {
			t.Errorf("%s: %q are needed, want %q", what, got, tt.want)
		}
	}
	// Four nodes vote in the catalog and one is silent: it needs each other one, also those without a shard.
	catalog := &belfryv1.Catalog{}
	for _, node := range []string{"a", "b", "c", "d"} {
		catalog.Voters, catalog.Replicas = append(catalog.Voters, node), append(catalog.Replicas, replica(node))
	}
	catalog.Replicas[3].Silent = true
	all := Needed(&belfryv1.GetClusterResponse{Catalog: catalog,
		Shards: shard(func(_, _, c *belfryv1.Replica) { c.Silent = true })})
	for node, want := range map[string]string{"a": "shard 3, the catalog", "c": "the catalog", "d": ""} {
		if got := strings.Join(all[node], ", "); got != want {
			t.Errorf("%s is needed by %q, want %q", node, got, want)
		}
	}
}

// TestRestart: a "no" has its reason, and of a silent node nothing is said that only a running one
// does.
func TestRestart(t *testing.T) {
	live, silent := &belfryv1.Node{}, &belfryv1.Node{State: belfryv1.NodeState_NODE_STATE_SILENT}
	for what, tt := range map[string]struct {
		node      *belfryv1.Node
		needed    []string
		word, why string
	}{
		"it is not needed":   {live, nil, "yes", ""},
		"one shard needs it": {live, []string{"shard 2"}, "no", "without it there would be no majority of shard 2"},
		"two groups need it": {live, []string{"shard 0", "the catalog"}, "no",
			"without it there would be no majority of shard 0, the catalog"},
		"it is silent": {silent, nil, "it does not answer", ""},
	} {
		if word, why := Restart(tt.node, tt.needed); word != tt.word || why != tt.why {
			t.Errorf("%s: %q, %q, want %q, %q", what, word, why, tt.word, tt.why)
		}
	}
	if text := Drain(live); !strings.Contains(text, "goes on serving") {
		t.Errorf("a node that runs: %s", text)
	}
	if text := Drain(silent); strings.Contains(text, "goes on serving") || !strings.Contains(text, "does not answer") {
		t.Errorf("a silent node: %s", text)
	}
}

// TestSummary: problems are counted as they are listed, and advice is no problem.
func TestSummary(t *testing.T) {
	silent := []*belfryv1.Node{{Name: "n3", State: belfryv1.NodeState_NODE_STATE_SILENT}}
	for what, tt := range map[string]struct {
		cluster     *belfryv1.GetClusterResponse
		want, never string
	}{
		"healthy": {&belfryv1.GetClusterResponse{}, ": healthy</p>", "problem"},
		"advice":  {&belfryv1.GetClusterResponse{Advice: []string{"a", "b"}}, ": healthy, 2 pieces of advice</p>", "problem"},
		"both": {&belfryv1.GetClusterResponse{Nodes: silent, Problems: []string{"n3", "shard 0"}, Advice: []string{"a"}},
			`<strong class="bad">1 problem</strong>, 1 piece of advice</p>`, "2 problems"},
		"not shown": {nil, "Your token", "healthy"},
	} {
		var page strings.Builder
		if err := Summary(tt.cluster).Render(&page); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(page.String(), tt.want) || strings.Contains(page.String(), tt.never) {
			t.Errorf("%s: want %q and not %q: %s", what, tt.want, tt.never, &page)
		}
		wrong, advice, _ := strings.Cut(page.String(), `<th scope="col">Advice</th>`)
		tables := strings.Count(advice, "<tbody>")
		if tables != strings.Count(tt.want, "advice") || strings.Contains(wrong, ">a</th>") {
			t.Errorf("%s: advice is not in a table of its own: %s", what, &page)
		}
	}
}
