package cluster

import (
	"context"
	"slices"
	"sync"
	"time"
)

// reliefInterval is the time between two looks of a node with a condition at what it leads.
const reliefInterval = 500 * time.Millisecond

// relieve hands the leaderships of this node, that of the catalog included, to voters without a condition while this node has one. The
// node does so itself because the leader of the catalog may not reach it, may be this node, or may not be there.
func (m *members) relieve(ctx context.Context) {
	tick := time.NewTicker(reliefInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if len(m.host.Conditions()) > 0 {
			m.handOverAll(ctx)
		}
	}
}

// handOverAll hands over what can be handed over now. What fails is tried again in the next round.
func (m *members) handOverAll(ctx context.Context) {
	own := m.self()
	if !slices.ContainsFunc(own.Groups, func(g GroupReport) bool { return g.Serving && len(g.Voters) > 1 }) {
		return
	}
	reports := askAll(ctx, m.catalog.Nodes(), m)
	delete(reports, own.ServerID)
	ctx, cancel := context.WithTimeout(ctx, changeWait)
	defer cancel()
	var handing sync.WaitGroup
	defer handing.Wait()
	for group, to := range reliefs(&own, reports) {
		handing.Go(func() {
			if err := m.host.TransferLeader(ctx, group, to); err != nil {
				m.config.Logger.Warn("handing a leadership over because of a condition", "group", group, "to", to, "error", err)
				return
			}
			m.config.Logger.Info("handed a leadership over because of a condition", "group", group, "to", to)
		})
	}
}

// reliefs returns to whom each group that this node leads is to be handed: of the voters that answer, are free of conditions, are not
// about to stop and follow closely, the one that leads the fewest groups. A group without such a voter is left out.
func reliefs(own *Report, reports map[string]*Report) map[string]string {
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
			if reports[id].relieves(g) && (best == "" || leads[id] < leads[best]) {
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

// reliefLag is how many entries a voter that takes over may be behind. The leader sends what is missing before it hands over, and takes
// no new entries meanwhile.
const reliefLag = 1024

// relieves reports whether a node can take over a group from its leader.
func (r *Report) relieves(g *GroupReport) bool {
	if r == nil || r.Leaving || r.impaired() || slices.Contains(r.Quarantined, g.Group) {
		return false
	}
	own := r.group(g.Group)
	return own != nil && own.Applied+reliefLag >= g.Commit
}

// impaired reports whether a node has a condition; it is false of a node that does not answer.
func (r *Report) impaired() bool { return r != nil && len(r.Conditions) > 0 }
