package node

import (
	"fmt"
	"net"
	"strings"
)

// ProvenConn is a connection whose other end has proved which node it is, as with mutual TLS. A dialled one is asked at once, an
// accepted one after the first read.
type ProvenConn interface {
	net.Conn
	// Proven returns the name of the node at the other end.
	Proven() string
}

// disproved says why whoever is at the other end of a connection cannot be the server that it says it is; nil if it can be: a connection without
// proof leaves it to be believed.
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
