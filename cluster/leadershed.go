package cluster

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/belfrydb/belfry/cluster/placement"
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
	if !slices.ContainsFunc(own.Groups, func(g placement.GroupReport) bool { return g.Serving && len(g.Voters) > 1 }) {
		return
	}
	reports := placement.AskAll(ctx, m.catalog.Nodes(), m)
	delete(reports, own.ServerID)
	ctx, cancel := context.WithTimeout(ctx, placement.ChangeWait)
	defer cancel()
	var transfers sync.WaitGroup
	defer transfers.Wait()
	for group, to := range placement.TransferTargets(&own, reports) {
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
