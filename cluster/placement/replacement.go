package placement

import (
	"context"
	"slices"
	"time"

	"github.com/belfrydb/belfry/cluster/catalog"
)

// replacementAfter is how long a node must be silent before another incarnation of its name takes
// its replicas. Placement does not wait for the grace period: starting a node under the same name
// says that the old one is gone.
const replacementAfter = 10 * time.Second

// findReplacements finds the silent nodes that have a newer incarnation which answers. Of two
// incarnations that answer, neither is the replacement: an operator must choose. One that has just
// arrived is not the replacement yet: its replicas would go to other nodes.
func (p *Placer) findReplacements(nodes []worldNode, recorded []catalog.Node) {
	answering := map[string][]*worldNode{} // by name
	for i, n := range recorded {
		if !nodes[i].silent {
			answering[n.Name] = append(answering[n.Name], &nodes[i])
		}
	}
	for i, n := range recorded {
		newer := answering[n.Name]
		if !nodes[i].silent || len(newer) != 1 {
			continue
		}
		nodes[i].nextReplacement = newer[0].server
		if !newer[0].fresh && p.now().Sub(p.lastReport[n.ServerID]) >= replacementAfter {
			nodes[i].replacement = newer[0].server
		}
	}
}

// retire removes the record of one node whose replacement has caught up: it has all replicas of the
// old node and the catalog.
func (p *Placer) retire(ctx context.Context, w *world, catalogGroup *worldShard) {
	for i := range w.nodes {
		n := &w.nodes[i]
		if n.replacement == "" || catalogGroup.leader == "" || !slices.Contains(catalogGroup.caughtUp, n.replacement) ||
			w.holds(n.server) {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, ChangeWait)
		defer cancel()
		if _, err := p.nodes.Report(ctx, n.server); err == nil {
			return // it has come back, and a removal is final
		}
		if _, err := p.record.RemoveNode(ctx, catalog.Departure{ServerID: n.server, Replacement: n.replacement}); err != nil {
			p.logger.Warn("forgetting the old incarnation of a node", "server", n.server, "new", n.replacement, "error", err)
			return
		}
		p.logger.Info("a new incarnation of a node has taken the place of the old one", "server", n.replacement,
			"old", n.server)
		return
	}
}

// holds reports whether a server is, or may be, a member of a shard.
func (w *world) holds(server string) bool {
	return slices.ContainsFunc(w.shards, func(s worldShard) bool {
		return s.leader == "" || slices.Contains(slices.Concat(s.voters, s.nonvoters, s.recorded), server)
	})
}
