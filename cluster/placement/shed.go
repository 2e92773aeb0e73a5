package placement

import (
	"slices"
)

// TransferTargets returns the new leader of each group that this node leads. It is the voter that
// leads the fewest groups, among those that answer, have no condition, are not about to stop,
// follow closely and reach a majority of the voters. A group without such a voter is left out.
func TransferTargets(own *Report, reports map[string]*Report) map[string]string {
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
	own := r.Group(g.Group)
	return own != nil && own.Applied+takeOverLagMax >= g.Commit
}

// impaired reports whether a node has a condition. It is false for a node that does not answer.
func (r *Report) impaired() bool { return r != nil && len(r.Conditions) > 0 }
