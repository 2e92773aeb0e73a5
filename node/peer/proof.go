package peer

import (
	"fmt"
	"net"
	"strings"
)

// ProvenConn is a connection whose other end has proved which node it is, as with mutual TLS.
// Proven is called at once on a dialled connection, and after the first read on an accepted one.
type ProvenConn interface {
	net.Conn
	// Proven returns the name of the node at the other end.
	Proven() string
}

// disproved returns an error if the other end of a connection cannot be the server that it claims
// to be. A connection without proof is believed.
func disproved(conn net.Conn, serverID string) error {
	proven, ok := conn.(ProvenConn)
	if !ok {
		return nil
	}
	said, _, _ := strings.Cut(serverID, ".")
	if name := proven.Proven(); name != said {
		return fmt.Errorf("it says that it is %q, and its certificate is that of node %q", serverID, name)
	}
	return nil
}
