package gossip

import (
	"context"
	"io"
	"net"
)

// Answers reports whether a node gossips at addr, HOST:PORT. It needs no key, and neither side
// learns more. It asks until ctx ends.
func Answers(ctx context.Context, addr string) bool {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return false
	}
	defer closeQuietly(conn)
	stop := context.AfterFunc(ctx, func() { closeQuietly(conn) })
	defer stop()
	if _, err := conn.Write(frameHead(frameHello)); err != nil {
		return false
	}
	head := make([]byte, headBytes)
	if _, err := io.ReadFull(conn, head); err != nil {
		return false
	}
	kind, err := checkHead(head)
	return err == nil && kind == frameHello
}
