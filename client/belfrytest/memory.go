package belfrytest

import (
	"context"
	"net"
	"strings"
	"sync"
)

// memoryAddr is the address of every server in memory. No server can listen there, so a client
// without the server's dialer reaches none.
const memoryAddr = "127.0.0.1:0"

// A pipeListener takes connections that are pipes in memory.
type pipeListener struct {
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

// Accept implements net.Listener.
func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (*pipeListener) Addr() net.Addr { return pipeAddr{} }

// dial connects to the server that accepts.
func (l *pipeListener) dial(ctx context.Context) (net.Conn, error) {
	ours, theirs := net.Pipe()
	var err error
	select {
	case l.conns <- theirs:
		return ours, nil
	case <-l.closed:
		err = net.ErrClosed
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	return nil, &net.OpError{Op: "dial", Net: pipeAddr{}.Network(), Addr: pipeAddr{}, Err: err}
}

// pipeAddr is a pipe's address.
type pipeAddr struct{}

// Network implements net.Addr.
func (pipeAddr) Network() string { return "pipe" }

// String implements net.Addr.
func (pipeAddr) String() string { return memoryAddr }

// Dial connects to the server, whatever network and address say. It is for client.WithDialer and
// for other clients.
func (s *Server) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	if pipes, ok := s.listener.(*pipeListener); ok {
		return pipes.dial(ctx)
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", strings.TrimPrefix(s.URL, "http://"))
}
