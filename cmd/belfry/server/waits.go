package server

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/belfrydb/belfry/node"
)

// Waits returns a function that says, for people, why this node of a cluster hears of no leader,
// and what to do. Its text names the recorded nodes that gossip does not show, and what was found
// at each join address. The function is not safe for concurrent use.
func (s *Server) Waits() func(ctx context.Context) string {
	joins := newJoinReporter(s.cfg)
	return func(ctx context.Context) string {
		var found []string
		heard := map[string]bool{}
		if g := s.bootstrap.gossip; g != nil {
			for _, m := range g.Members() {
				heard[m.ServerID] = heard[m.ServerID] || m.Alive
			}
			for _, report := range joins.reports(ctx, g.JoinAttempts()) {
				found = append(found, report.text)
			}
		}
		for _, c := range s.node.Conditions() {
			if c.Kind == node.Unreachable {
				return strings.Join(append([]string{"no leader gets here: " + c.Message}, found...), "; ")
			}
		}
		addresses := map[string]string{}
		for _, n := range s.cluster.Nodes() {
			addresses[n.ServerID] = n.PeerAddr
		}
		return waitText(s.cfg.Join, s.missing(heard, addresses), found)
	}
}

// missing names the other members of this node's groups that gossip does not show, with their
// recorded addresses.
func (s *Server) missing(heard map[string]bool, addresses map[string]string) (all []string) {
	status, seen := s.node.Status(), map[string]bool{}
	for _, g := range status.Groups {
		for _, id := range slices.Concat(g.Voters, g.Nonvoters) {
			name, _, _ := strings.Cut(id, ".")
			switch {
			case id == status.ServerID || heard[id] || seen[id]:
			case addresses[id] != "":
				all = append(all, fmt.Sprintf("%s (last at %s)", name, addresses[id]))
			default:
				all = append(all, name)
			}
			seen[id] = true
		}
	}
	return all
}

// waitText combines the findings of Waits into one text.
func waitText(join, missing, found []string) string {
	if len(missing) == 0 {
		return "all nodes that this data directory knows are heard of; the catalog's voters have no leader yet: see their " +
			"logs"
	}
	text := "this data directory belongs to a cluster, and these of its nodes are not heard of: " +
		strings.Join(missing, ", ")
	if len(join) == 0 {
		text += "; --join is empty"
	} else {
		text += "; tried --join " + strings.Join(join, ",")
	}
	for _, f := range found {
		text += "; " + f
	}
	return text + ". Start the nodes that are missing. If they have new addresses, start this node again with --join " +
		"and the gossip address that one of them has now " +
		"(its --gossip-listen, by default port 7402); the data stays as it is"
}
