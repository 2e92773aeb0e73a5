package cluster

import (
	"context"
	"slices"
	"sync"
	"time"
)

// shedInterval is the time between two checks of a node with a condition.
const shedInterval = 250 * time.Millisecond

// shedLeaderships transfers the leaderships of this node, the catalog's included, to voters
// without a condition while this node has one. The node does so itself: the leader of the catalog
// may not reach it, may be this node, or may be missing.
func (m *members) shedLeaderships(ctx context.Context) {
	tick := time.NewTicker(shedInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if len(m.host.Conditions()) > 0 {
			m.transferLeaderships(ctx)
		}
	}
}

// transferLeaderships transfers what can be transferred now. The next round retries what fails.
func (m *members) transferLeaderships(ctx context.Context) {
	own := m.self()
	if !slices.ContainsFunc(own.Groups, func(g GroupReport) bool { return g.Serving && len(g.Voters) > 1 }) {
		return
	}
	reports := askAll(ctx, m.catalog.Nodes(), m)
	delete(reports, own.ServerID)
	ctx, cancel := context.WithTimeout(ctx, changeWait)
	defer cancel()
	var transfers sync.WaitGroup
	defer transfers.Wait()
	for group, to := range transferTargets(&own, reports) {
		transfers.Go(func() {
			if err := m.host.TransferLeader(ctx, group, to); err != nil {
				m.config.Logger.Warn("transferring a leadership because of a condition",
					"group", group, "to", to, "error", err)
				return
			}
			m.config.Logger.Info("transferred a leadership because of a condition", "group", group, "to", to)
		})
	}
}

// transferTargets returns the new leader of each group that this node leads. It is the voter that
// leads the fewest groups, among those that answer, have no condition, are not about to stop,
// follow closely and reach a majority of the voters. A group without such a voter is left out.
func transferTargets(own *Report, reports map[string]*Report) map[string]string {
	leads := map[string]int{}
	for id, r := range reports {
		for i := range r.Groups {
			if r.Groups[i].Serving {
				leads[id]++
			}
		}
	}
	to := map[string]string{}
	for i := range own.Groups {
		g := &own.Groups[i]
		if !g.Serving {
			continue
		}
		var best string
		for _, id := range slices.Sorted(slices.Values(g.Voters)) {
			better := best == "" || leads[id] < leads[best]
			if better && reports[id].canTakeOver(g) && reachesMajority(g.Voters, id, own, reports) {
				best = id
			}
		}
		if best != "" {
			to[g.Group] = best
			leads[best]++
		}
	}
	return to
}

// reachesMajority reports whether a voter and a majority of the voters, itself included, reach
// each other.
func reachesMajority(voters []string, id string, own *Report, reports map[string]*Report) bool {
	n := 0
	for _, voter := range voters {
		other := reports[voter]
		if voter == own.ServerID {
			other = own
		}
		if voter == id || other != nil && other.reaches(id) && reports[id].reaches(voter) {
			n++
		}
	}
	return n > len(voters)/2
}

// reaches reports whether a node has not said that it does not reach another one.
func (r *Report) reaches(serverID string) bool {
	return !slices.ContainsFunc(r.Unreached, func(u Unreached) bool { return u.ServerID == serverID })
}

// takeOverLagMax is how many entries a voter that takes over may be behind. The leader sends the
// missing entries before it transfers its leadership, and accepts no new ones meanwhile.
const takeOverLagMax = 1024

// canTakeOver reports whether a node can take over a group from its leader.
func (r *Report) canTakeOver(g *GroupReport) bool {
	if r == nil || r.Leaving || r.impaired() || slices.Contains(r.Quarantined, g.Group) {
		return false
	}
	own := r.group(g.Group)
	return own != nil && own.Applied+takeOverLagMax >= g.Commit
}

// impaired reports whether a node has a condition. It is false for a node that does not answer.
func (r *Report) impaired() bool { return r != nil && len(r.Conditions) > 0 }
