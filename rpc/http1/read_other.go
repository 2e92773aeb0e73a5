//go:build !unix

package http1

import (
	"net"
	"syscall"
)

// rawOf returns nil: connections are read with their Read.
func rawOf(net.Conn) syscall.RawConn { return nil }

// tryRead is not called without a raw connection.
func (c *Conn) tryRead(uintptr) bool { return true }
