package peer

import (
	"context"
	"net"
)

// Names in greetings that are not groups. A greeting for helloGroup is a stranger's question. One
// for callsGroup opens a connection for calls between nodes.
const (
	helloGroup = "hello"
	callsGroup = "calls"
)

// Conn is a connection for calls between two nodes of a cluster. Its deadlines are those of the
// inner connection.
type Conn struct {
	net.Conn
	peer string
}

// Peer returns the server id of the node at the other end, as the greeting gave it. A ProvenConn
// has proved that name. Over plain TCP, any program that reaches the port may claim any name.
func (c *Conn) Peer() string { return c.peer }

// Listen returns a listener for the calls of other nodes. Its connections are *Conn: the greeting
// named this cluster and this server. It ends with the mux, or by its Close. Before the first call,
// calls of other nodes are refused. It must be called once.
func (m *Mux) Listen() net.Listener { return &peerListener{m.open(callsGroup)} }

// DialPeer connects to the server with the given id, for calls. ctx bounds the dialling and the
// greeting. The connection ends with the mux.
func (m *Mux) DialPeer(ctx context.Context, serverID string) (*Conn, error) {
	conn, err := m.connect(ctx, callsGroup, serverID)
	if err != nil {
		return nil, err
	}
	return &Conn{conn, conn.peer}, nil
}

// Reserved reports whether a name in greetings stands for no group, so that no group may have it.
func Reserved(group string) bool { return group == helloGroup || group == callsGroup }

// peerListener is the listener for calls.
type peerListener struct{ *stream }

// Accept waits for the next connection.
func (l *peerListener) Accept() (net.Conn, error) {
	conn, err := l.next()
	if err != nil {
		return nil, err
	}
	return &Conn{conn, conn.peer}, nil
}

// Close ends Accept, and the node refuses greetings for calls. Connections stay until their server,
// or the node, closes them, so that calls in flight can be answered.
func (l *peerListener) Close() error {
	l.closeAccept()
	l.mux.mu.Lock()
	defer l.mux.mu.Unlock()
	l.mux.forget(l.stream)
	return nil
}
