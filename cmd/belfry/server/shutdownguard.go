package server

import (
	"errors"
	"io"
	"net"
	"sync"
)

// shutdownGuard closes every connection of a server before the process ends because its disk hangs.
// The end of the process would close them too. But while a write waits for the disk, the kernel
// keeps the process and everything that it has open. Its clients and peers would wait for answers
// that long.
type shutdownGuard struct {
	mu     sync.Mutex
	closed bool
	open   map[io.Closer]struct{}
}

func newShutdownGuard() *shutdownGuard { return &shutdownGuard{open: map[io.Closer]struct{}{}} }

// wrap returns a listener that the guard closes with all its connections. It returns nil for nil.
func (g *shutdownGuard) wrap(l net.Listener) net.Listener {
	if l == nil {
		return nil
	}
	g.add(l)
	return &guardedListener{l, g}
}

// beforeFatal returns a function that closes everything and then calls fatal.
func (g *shutdownGuard) beforeFatal(fatal func(error)) func(error) {
	return func(err error) {
		g.closeAll()
		fatal(err)
	}
}

// closeAll closes everything. Every later add is refused.
func (g *shutdownGuard) closeAll() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	for c := range g.open {
		_ = c.Close() // the process ends in any case
	}
}

// add has closeAll close c. It reports false if closeAll was called before.
func (g *shutdownGuard) add(c io.Closer) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.open[c] = struct{}{}
	}
	return !g.closed
}

// remove forgets a connection that was closed.
func (g *shutdownGuard) remove(c io.Closer) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.open, c)
}

// guardedListener is a listener whose connections a shutdownGuard closes.
type guardedListener struct {
	net.Listener
	guard *shutdownGuard
}

// Accept implements net.Listener.
func (l *guardedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &guardedConn{conn, l.guard}
	if !l.guard.add(c.Conn) {
		return nil, errors.Join(net.ErrClosed, conn.Close())
	}
	return c, nil
}

// guardedConn is a connection that a shutdownGuard closes.
type guardedConn struct {
	net.Conn
	guard *shutdownGuard
}

// NetConn returns the connection that is guarded.
func (c *guardedConn) NetConn() net.Conn { return c.Conn }

// Close implements net.Conn.
func (c *guardedConn) Close() error {
	c.guard.remove(c.Conn)
	return c.Conn.Close()
}
