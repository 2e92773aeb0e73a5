package ui

import (
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
			if len(needed(tt.shards)[node]) > 0 {
				got += node
			}
		}
		if got != tt.want {
			t.Errorf("%s: %q are needed, want %q", what, got, tt.want)
		}
	}
}
