package cluster

import (
	"context"
	"slices"
	"sync"
	"time"
)

// reliefInterval is the time between two looks of a node with a condition at what it leads.
const reliefInterval = 250 * time.Millisecond

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
// about to stop, follow closely and are linked with a majority of the voters, the one that leads the fewest groups. A group without such a voter is left out.
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
			if reports[id].relieves(g) && linked(g.Voters, id, own, reports) && (best == "" || leads[id] < leads[best]) {
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

// linked reports whether a voter and a majority of the voters, itself included, reach each other.
func linked(voters []string, id string, own *Report, reports map[string]*Report) bool {
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
