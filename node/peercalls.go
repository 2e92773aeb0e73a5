package node

import (
	"context"
	"fmt"
	"net"

	"github.com/belfrydb/belfry/node/outcome"
)

// PeerListener returns the listener for calls of other nodes. Its connections are *peer.Conn: the
// greeting named this cluster and this server. There is one listener a node. It ends with the node,
// or by its Close, and cannot be opened again. Before the first call of PeerListener, calls of
// other nodes are refused.
func (n *Node) PeerListener() net.Listener {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.calls == nil {
		n.calls = n.mux.Listen()
	}
	return n.calls
}

// DialPeer connects to the node with the given server id, for calls. ctx bounds the dialling and
// the greeting. The connection is a *peer.Conn and ends with the node.
func (n *Node) DialPeer(ctx context.Context, serverID string) (net.Conn, error) {
	conn, err := n.mux.DialPeer(ctx, serverID)
	if err != nil {
		return nil, err
	}
	return conn, nil
}

// Abstain keeps this node from elections in a group for AbstainFor: it does not stand, and refuses
// a transfer of the leadership. A leadership that it has goes on.
//
// It is for a node that other nodes cannot connect to while its own connections work. Raft would
// elect it and keep it, because a leader sends and followers answer.
func (n *Node) Abstain(group string) error {
	if g := n.groupNamed(group); g != nil {
		g.Abstain()
		return nil
	}
	return fmt.Errorf("abstaining in %s: %w", group, outcome.ErrNotHere)
}

// CloseStale closes the connections to other nodes whose address Resolve does not return any more.
// A connection to the address that a node left lasts as long as the node also listens there. It
// would hide that no node can connect to the new address.
func (n *Node) CloseStale() { n.mux.CloseStale() }
