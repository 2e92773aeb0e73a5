package admin

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/belfrydb/belfry/rpc/backend"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
)

// raiseable returns nil if every shard has so many voters: else it would take no puts from then on.
func (v *clusterView) raiseable(least int) *fault.Error {
	for i := range v.shards {
		g := &v.shards[i]
		if have := len(g.Voters); have < least {
			return fault.Invalid("minVoters",
				"have %d, and shard %d has %d voter%s, so that it would take no puts any more: raise it when the shards have "+
					"their voters", least, g.Shard, have, plural(have))
		}
	}
	return nil
}

// plural returns the end of a word for so many things.
func plural(n int) string {
	if n == 1 {
		return ""
	}
	return "s"
}

// short returns the shards that have fewer voters than they must have to take mutations.
func (v *clusterView) short() (shards []string) {
	for i := range v.shards {
		if g := &v.shards[i]; g.leader != nil && len(g.Voters) < v.settings.MinVoters {
			shards = append(shards, strconv.Itoa(i))
		}
	}
	return shards
}

// tooFewVoters says which shards refuse mutations because they have too few voters; empty if none
// does.
func (v *clusterView) tooFewVoters() string {
	shards := v.short()
	if len(shards) == 0 {
		return ""
	}
	return fmt.Sprintf("%s with fewer than the %d voters that min-voters asks for, and taking only what makes room: %s",
		fault.ReasonName(belfryv1.Reason_REASON_TOO_FEW_VOTERS), v.settings.MinVoters, shardList(shards))
}

// advice returns what would make the cluster safer, for people: min-voters could be a majority of
// the voters, once three nodes are there to be them.
func (v *clusterView) advice() (all []string) {
	const nodesMin = 3
	there := 0
	for i := range v.members {
		if m := &v.members[i]; m.Answers && !m.Draining {
			there++
		}
	}
	safe := min(v.factor, there)/2 + 1
	short := slices.ContainsFunc(v.shards, func(g groupView) bool { return len(g.Voters) < safe })
	if there >= nodesMin && v.settings.MinVoters > 0 && v.settings.MinVoters < safe && !short {
		all = append(all, fmt.Sprintf(
			"min-voters is %d: shards take puts even with that many copies; 'belfry cluster settings --min-voters %d' has "+
				"them wait for a majority of their voters",
			v.settings.MinVoters, safe))
	}
	return append(all, v.zoneDataAdvice()...)
}

// zoneDataAdvice says that nodes have different time-zone data, if they do. It is no problem, as it is so
// during each upgrade that brings new data.
func (v *clusterView) zoneDataAdvice() []string {
	nodes := map[string][]string{} // by the version that they have
	for i := range v.members {
		if m := &v.members[i]; m.ZoneData != "" {
			nodes[m.ZoneData] = append(nodes[m.ZoneData], v.label(m))
		}
	}
	if len(nodes) < 2 {
		return nil
	}
	var parts []string
	for _, version := range slices.Sorted(maps.Keys(nodes)) {
		parts = append(parts, version+" on "+list(nodes[version]))
	}
	return []string{"time-zone data differ: " + strings.Join(parts, "; ") + ": schedules fire by the data of the node " +
		"that leads their shard, so run the same version of belfry or the same --zoneinfo everywhere"}
}

// changeMinVoters carries out what an UpdateCluster asks for beside what Configure does.
func (s *Service) changeMinVoters(ctx context.Context, raise, lower int) (backend.ClusterSettings, error) {
	if lower > 0 {
		return s.cluster.LowerMinVoters(ctx, lower)
	}
	if raise > s.cluster.Settings().MinVoters {
		if f := s.look(ctx).raiseable(raise); f != nil {
			return backend.ClusterSettings{}, f
		}
	}
	return s.cluster.Configure(ctx, backend.ClusterSettings{MinVoters: raise})
}
