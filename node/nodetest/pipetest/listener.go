// Package pipetest has a listener in memory, for tests in bubbles of testing/synctest: time does
// not pass there while a goroutine waits for a socket.
package pipetest

import (
	"context"
	"net"
	"sync"
)

// Listener takes the connections that are sent to Conns. Its methods may be called from any
// goroutine.
type Listener struct {
	name  string
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

// Listen returns a listener whose address is a name.
func Listen(name string) *Listener {
	return &Listener{name: name, conns: make(chan net.Conn), done: make(chan struct{})}
}

// Conns returns the channel that takes the far end of a connection for each Accept. A sender must
// give up when Done is closed.
func (l *Listener) Conns() chan<- net.Conn { return l.conns }

// Done returns the channel that Close closes.
func (l *Listener) Done() <-chan struct{} { return l.done }

// Dial returns the near end of a new connection, once Accept has taken the far one. After Close it
// returns net.ErrClosed.
func (l *Listener) Dial(ctx context.Context, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case l.conns <- far:
		return near, nil
	case <-l.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept waits for the next connection. After Close it returns net.ErrClosed.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close ends Accept. It may be called twice.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

// Addr returns the name.
func (l *Listener) Addr() net.Addr { return address(l.name) }

// address is a name as an address.
type address string

// Network returns "memory".
func (address) Network() string { return "memory" }

// String returns the name.
func (a address) String() string { return string(a) }
