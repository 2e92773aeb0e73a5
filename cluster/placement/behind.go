package placement

import (
	"slices"
	"strings"
	"time"

	"github.com/belfrydb/belfry/cluster/catalog"
)

// behindAfter is how long a voter must have been behind its leader in every round before the
// status reports it.
const behindAfter = 4 * time.Second

// Behind is a voter of a group that answers but does not receive its leader's entries: its leader
// does not reach it, or it is too slow.
type Behind struct {
	ServerID string `json:"serverId"`
	Group    string `json:"group"`
	// Applied is the voter's position, and Commit the position that its leader has committed.
	Applied uint64 `json:"applied"`
	Commit  uint64 `json:"commit"`
	// Since is when the voter was first seen not to be caught up.
	Since time.Time `json:"since"`
}

// noteBehind records in each round which voters are not caught up. It returns those that have not
// been for behindAfter.
func (p *Placer) noteBehind(w *world, catalogGroup *worldShard, reports map[string]*Report) (all []Behind) {
	since := map[Behind]time.Time{} // by server and group
	look := func(group string, s *worldShard) {
		for _, voter := range s.voters {
			own, leads := reports[voter].Group(group), reports[s.leader].Group(group)
			// Without a caught-up member there is no position to compare with yet.
			if own == nil || leads == nil || len(s.caughtUp) == 0 || slices.Contains(s.caughtUp, voter) {
				continue
			}
			key := Behind{ServerID: voter, Group: group}
			if since[key] = p.behind[key]; since[key].IsZero() {
				since[key] = p.now()
			}
			if p.now().Sub(since[key]) >= behindAfter {
				all = append(all, Behind{ServerID: voter, Group: group, Applied: own.Applied, Commit: leads.Commit,
					Since: since[key]})
			}
		}
	}
	for i := range w.shards {
		look(catalog.ShardGroup(w.shards[i].shard), &w.shards[i])
	}
	look(catalog.GroupName, catalogGroup)
	p.behind = since
	slices.SortFunc(all, func(a, b Behind) int { return strings.Compare(a.Group+" "+a.ServerID, b.Group+" "+b.ServerID) })
	return all
}
