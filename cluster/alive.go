package cluster

import (
	"context"
	"sync"
)

// pathHeard asks a node whether another one answers it.
const pathHeard = "/heard"

// answerHeard says whether a node answers this one.
func (m *members) answerHeard(ctx context.Context, _, serverID string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	_, err := m.report(ctx, serverID)
	return err == nil, nil
}

// heardBy returns a node that hears another one, empty if none does that answers. What is decided by it is for good, and this node alone may be cut off
// from a node that all others hear.
func (m *members) heardBy(ctx context.Context, serverID string) string {
	ctx, cancel := context.WithTimeout(ctx, 2*askWait)
	defer cancel()
	all := m.catalog.Nodes()
	heard := make([]bool, len(all))
	var asking sync.WaitGroup
	for i, n := range all {
		switch n.ServerID {
		case serverID:
		case m.catalog.self.ServerID:
			asking.Go(func() { heard[i], _ = m.answerHeard(ctx, "", serverID) })
		default:
			asking.Go(func() { heard[i], _ = callPeer[bool](ctx, m.peers, n.ServerID, pathHeard, serverID) })
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
