package findings

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

func noon() time.Time { return time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC) }

func TestOf(t *testing.T) {
	three := []string{"n1", "n2", "n3"}
	healthy := &belfryv1.Shard{
		Leader: "n1", Voters: three, VotersWanted: 3,
		Replicas: []*belfryv1.Replica{
			{Node: "n1", AppliedIndex: 7, Digest: "aa"},
			{Node: "n2", AppliedIndex: 6, Digest: "bb"},
			{Node: "n3", Silent: true},
		},
	}
	for name, test := range map[string]struct {
		cluster *belfryv1.GetClusterResponse
		want    []string
	}{
		"healthy": {&belfryv1.GetClusterResponse{
			Shards: []*belfryv1.Shard{healthy}, Nodes: []*belfryv1.Node{{Name: "n1", Version: "v1"}, {Name: "n2"}},
		}, nil},
		"no leader": {&belfryv1.GetClusterResponse{
			Shards:   []*belfryv1.Shard{healthy, {Shard: 4, Voters: three, VotersWanted: 3}},
			Problems: []string{"shard 4 has no leader"},
		}, []string{"without a leader: 4 (voters n1, n2, n3)"}},
		"not seen": {&belfryv1.GetClusterResponse{Shards: []*belfryv1.Shard{{
			Shard: 5, VotersWanted: 3,
		}}}, []string{"without a leader: 5 (voters not known)"}},
		"too few": {&belfryv1.GetClusterResponse{Shards: []*belfryv1.Shard{{
			Shard: 2, Leader: "n1", Voters: three[:2], VotersWanted: 3,
		}}}, []string{"under-replicated: 2 (2 of 3)"}},
		"silent": {&belfryv1.GetClusterResponse{Nodes: []*belfryv1.Node{{
			Name: "n3", State: belfryv1.NodeState_NODE_STATE_SILENT, SilentSince: timestamppb.New(noon()),
		}}}, []string{"node n3 does not answer since 2026-11-21T12:00:00Z"}},
		"clock": {&belfryv1.GetClusterResponse{Shards: []*belfryv1.Shard{{
			Shard: 1, Leader: "n1", ClockAhead: durationpb.New(time.Hour),
		}}}, []string{"CLOCK_AHEAD: the time of shard 1 is 1h0m0s ahead"}},
		"digests": {&belfryv1.GetClusterResponse{Shards: []*belfryv1.Shard{{
			Leader: "n1",
			Replicas: []*belfryv1.Replica{
				{Node: "n1", AppliedIndex: 7, Digest: "aa"},
				{Node: "n2", AppliedIndex: 7, Digest: "ab"},
			},
		}}}, []string{"shard 0 differs between n1 and n2 at index 7"}},
		"versions": {&belfryv1.GetClusterResponse{Nodes: []*belfryv1.Node{
			{Name: "n1", Version: "v1"},
			{Name: "n2", Version: "v2"},
		}}, []string{"the nodes run 2 versions"}},
		"conditions": {&belfryv1.GetClusterResponse{
			Problems: []string{"said already"},
			Nodes: []*belfryv1.Node{{
				Name: "n2",
				Conditions: []*belfryv1.NodeCondition{{
					Kind: "DISK_PRESSURE", Message: "3 MiB are free", Since: timestamppb.New(noon()),
				}},
			}},
		}, []string{"node n2 has DISK_PRESSURE since 2026-11-21T12:00:00Z: 3 MiB are free"}},
		"other words": {&belfryv1.GetClusterResponse{Problems: []string{"the catalog is late"}},
			[]string{"the catalog is late"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := Of(test.cluster)
			if len(got) != len(test.want) {
				t.Fatalf("found %+v, want %q", got, test.want)
			}
			for i, f := range got {
				if !strings.Contains(f.What, test.want[i]) || f.Do == "" {
					t.Errorf("found %+v, want %q", f, test.want[i])
				}
			}
		})
	}
}

// TestAdvice: advice comes last, is named as such, and hides no problem.
func TestAdvice(t *testing.T) {
	got := Of(&belfryv1.GetClusterResponse{
		Problems: []string{"the catalog is late"}, Advice: []string{"min-voters is 1"},
	})
	if len(got) != 2 || got[0].Advice || got[0].What != "the catalog is late" || !got[1].Advice ||
		got[1].What != "min-voters is 1" || got[1].Do == "" {
		t.Errorf("found %+v, want a problem and then an advice", got)
	}
}
