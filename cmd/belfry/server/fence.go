package server

import (
	"errors"
	"io"
	"net"
	"sync"
)

// fence ends every connection that a server took before the process ends because its disk hangs. The end of the process would do
// it, were it not for writes that wait in the kernel: a process that has one stays, with all that it has open, until the disk
// goes on, and who waits for an answer would wait as long.
type fence struct {
	mu     sync.Mutex
	fallen bool
	open   map[io.Closer]struct{}
}

func newFence() *fence { return &fence{open: map[io.Closer]struct{}{}} }

// around returns a listener whose connections, and itself, end with the fence. Nil stays nil.
func (f *fence) around(l net.Listener) net.Listener {
	if l == nil {
		return nil
	}
	f.add(l)
	return &fencedListener{l, f}
}

// before returns fatal with everything ended before it.
func (f *fence) before(fatal func(error)) func(error) {
	return func(err error) {
		f.fall()
		fatal(err)
	}
}

// fall ends everything.
func (f *fence) fall() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fallen = true
	for c := range f.open {
		_ = c.Close() // the process ends whatever comes of it
	}
}

// add has c end with the fence. It reports false if that has fallen.
func (f *fence) add(c io.Closer) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.fallen {
		f.open[c] = struct{}{}
	}
	return !f.fallen
}

func (f *fence) forget(c io.Closer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.open, c)
}

// fencedListener is a listener inside a fence.
type fencedListener struct {
	net.Listener
	fence *fence
}

// Accept implements net.Listener.
func (l *fencedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &fencedConn{conn, l.fence}
	if !l.fence.add(c.Conn) {
		return nil, errors.Join(net.ErrClosed, conn.Close())
	}
	return c, nil
}

// fencedConn is a connection inside a fence.
type fencedConn struct {
	net.Conn
	fence *fence
}

// Close implements net.Conn.
func (c *fencedConn) Close() error {
	c.fence.forget(c.Conn)
	return c.Conn.Close()
}
