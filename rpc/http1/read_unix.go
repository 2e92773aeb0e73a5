//go:build unix

package http1

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"syscall"
)

// rawOf returns the raw connection below conn, nil if bytes of conn pass through anything else.
func rawOf(conn net.Conn) syscall.RawConn {
	for {
		if _, ok := conn.(*tls.Conn); ok {
			return nil
		}
		if socket, ok := conn.(syscall.Conn); ok {
			raw, err := socket.SyscallConn()
			if err != nil {
				return nil
			}
			return raw
		}
		inner, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			return nil
		}
		conn = inner.NetConn()
	}
}

// tryRead reads what has arrived, and reports whether anything has, or the end of the connection.
// While a connection without unread bytes waits, it has no buffer.
func (c *Conn) tryRead(fd uintptr) bool {
	c.needBuffer()
	in := *c.in
	for {
		n, err := syscall.Read(int(fd), in[len(in):cap(in)]) //nolint:gosec // a descriptor
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EAGAIN):
			c.dropEmptyBuffer()
			return false
		case err != nil:
			c.readErr = err
			c.dropEmptyBuffer()
		case n == 0:
			c.readErr = io.EOF
			c.dropEmptyBuffer()
		default:
			*c.in = in[:len(in)+n]
		}
		return true
	}
}
