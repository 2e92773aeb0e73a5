package cluster

import (
	"context"
	"sync"

	"github.com/belfrydb/belfry/cluster/placement"
	"github.com/belfrydb/belfry/cluster/routing"
)

// pathAlive asks a node whether another one answers it.
const pathAlive = "/heard"

// answerAlive reports whether a node answers this one.
func (m *members) answerAlive(ctx context.Context, _, serverID string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, placement.AskWait)
	defer cancel()
	_, err := m.Report(ctx, serverID)
	return err == nil, nil
}

// seenAliveBy returns a node that another node answers; empty if no node that can be asked gets an
// answer from it. The caller's decision is final, and this node alone may be cut off from a node
// that answers all others.
func (m *members) seenAliveBy(ctx context.Context, serverID string) string {
	ctx, cancel := context.WithTimeout(ctx, 2*placement.AskWait)
	defer cancel()
	all := m.catalog.Nodes()
	heard := make([]bool, len(all))
	var asking sync.WaitGroup
	for i, n := range all {
		switch n.ServerID {
		case serverID:
		case m.record.ServerID:
			asking.Go(func() { heard[i], _ = m.answerAlive(ctx, "", serverID) })
		default:
			asking.Go(func() { heard[i], _ = routing.Call[bool](ctx, m.peers, n.ServerID, pathAlive, serverID) })
		}
	}
	asking.Wait()
	for i, n := range all {
		if heard[i] {
			return n.ServerID
		}
	}
	return ""
}
