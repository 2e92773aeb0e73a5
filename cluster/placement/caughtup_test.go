package placement

import (
	"slices"
	"testing"

	"github.com/belfrydb/belfry/cluster/catalog"
)

// TestCommitsOfTheNewestLeader are not hidden by one that was replaced.
func TestCommitsOfTheNewestLeader(t *testing.T) {
	reports := map[string]*Report{}
	for server, g := range map[string]GroupReport{
		"a": {Term: 3, Commit: 7, Serving: true}, "b": {Term: 5, Commit: 90, Serving: true},
		"c": {Term: 4, Commit: 8, Serving: true}, "d": {Term: 9, Commit: 1},
	} {
		g.Group = "shard-0"
		reports[server] = &Report{ServerID: server, Groups: []GroupReport{g}}
	}
	for range 20 { // whatever the order of the map
		if got := commits(reports)["shard-0"]; got != 90 {
			t.Fatalf("the leader has committed %d", got)
		}
	}
}

// TestCaughtUp: a follower is level if it has applied what the leader had committed one round
// before. In the first round none is known to be.
func TestCaughtUp(t *testing.T) {
	reports := map[string]*Report{}
	for server, g := range map[string]GroupReport{
		"a": {Applied: 60, Commit: 60, Term: 2, Serving: true, Voters: []string{"a", "b"},
			Nonvoters: []string{"c", "d", "e"}},
		"b": {Applied: 50, Term: 2}, "c": {Applied: 49, Term: 2}, "d": {Applied: 51, Term: 2}, "x": {Applied: 60, Term: 2},
	} {
		g.Group = catalog.ShardGroup(0)
		reports[server] = &Report{ServerID: server, Groups: []GroupReport{g}}
	}
	p := newFakeCluster(1, "a").placer()
	if got := p.group(catalog.ShardGroup(0), reports).caughtUp; len(got) != 0 {
		t.Errorf("at the first look %v are level", got)
	}
	p.commits = map[string]uint64{catalog.ShardGroup(0): 50}
	if got, want := p.group(catalog.ShardGroup(0), reports).caughtUp, []string{"a", "b", "d"}; !slices.Equal(got, want) {
		t.Errorf("%v are level, want %v", got, want)
	}
}
