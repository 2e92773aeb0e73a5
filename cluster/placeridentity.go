package cluster

import (
	"context"
	"slices"
	"time"
)

// heirAfter is how long a node must be silent before another incarnation of its name takes its places. Nobody waits for the grace period then:
// whoever started a node under the same name says that the old one is gone.
const heirAfter = 10 * time.Second

// findHeirs notes which silent nodes have a newer incarnation that answers. Of two that answer neither is the heir: they clash, and an operator
// must say which of them is meant. One that has only just come is not the heir yet: others would be given the places.
func (p *placer) findHeirs(nodes []worldNode, recorded []Node) {
	answering := map[string][]*worldNode{} // by name
	for i, n := range recorded {
		if !nodes[i].silent {
			answering[n.Name] = append(answering[n.Name], &nodes[i])
		}
	}
	for i, n := range recorded {
		heirs := answering[n.Name]
		if !nodes[i].silent || len(heirs) != 1 {
			continue
		}
		nodes[i].awaitedHeir = heirs[0].server
		if !heirs[0].fresh && p.now().Sub(p.heard[n.ServerID]) >= heirAfter {
			nodes[i].heir = heirs[0].server
		}
	}
}

// retire forgets one node whose new incarnation has caught up: it has every place in a shard that the old one had, and has what the catalog
// has.
func (p *placer) retire(ctx context.Context, w *world, catalog *worldShard) {
	for i := range w.nodes {
		n := &w.nodes[i]
		if n.heir == "" || catalog.leader == "" || !slices.Contains(catalog.caughtUp, n.heir) || w.holds(n.server) {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, changeWait)
		defer cancel()
		if _, err := p.nodes.report(ctx, n.server); err == nil {
			return // it has come back, and forgetting is for good
		}
		if err := p.record.leave(ctx, departure{ServerID: n.server, Heir: n.heir}); err != nil {
			p.logger.Warn("forgetting the old incarnation of a node", "server", n.server, "new", n.heir, "error", err)
			return
		}
		p.logger.Info("a new incarnation of a node has taken the place of the old one", "server", n.heir, "old", n.server)
		return
	}
}

// holds reports whether a server is, or may be, a member of a shard.
func (w *world) holds(server string) bool {
	return slices.ContainsFunc(w.shards, func(s worldShard) bool {
		return s.leader == "" || slices.Contains(slices.Concat(s.voters, s.nonvoters, s.recorded), server)
	})
}
