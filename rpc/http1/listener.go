package http1

import (
	"crypto/tls"
	"net"
	"sync"
)

// listener accepts the connections that net/http must serve.
type listener struct {
	inner  net.Listener
	left   chan net.Conn
	failed chan error // errors of inner

	closing  sync.Once
	closed   chan struct{}
	endInner func() error // closes inner, once
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.left:
		return conn, nil
	case err := <-l.failed:
		return nil, err
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.closing.Do(func() { close(l.closed) })
	return l.endInner()
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return l.inner.Addr() }

// resumed is a connection of which some bytes were read before.
type resumed struct {
	net.Conn
	unread []byte
}

// resumedTLS is a resumed TLS connection. net/http takes its state for that of the request.
type resumedTLS struct {
	resumed
	state tls.ConnectionState
}

// resume returns conn with some bytes before its own.
func resume(conn net.Conn, unread []byte) net.Conn {
	if secure, ok := conn.(*tls.Conn); ok {
		return &resumedTLS{resumed{conn, unread}, secure.ConnectionState()}
	}
	return &resumed{conn, unread}
}

// ConnectionState is what net/http looks for.
func (r *resumedTLS) ConnectionState() tls.ConnectionState { return r.state }

// Read implements net.Conn.
func (r *resumed) Read(p []byte) (int, error) {
	if len(r.unread) == 0 {
		return r.Conn.Read(p)
	}
	n := copy(p, r.unread)
	if r.unread = r.unread[n:]; len(r.unread) == 0 {
		r.unread = nil
	}
	return n, nil
}

// NetConn returns the connection below.
func (r *resumed) NetConn() net.Conn { return r.Conn }

// CloseWrite ends the bytes to the client, if the connection below can. net/http does so before it
// closes a connection with unread bytes, so that the client gets the answer.
func (r *resumed) CloseWrite() error {
	if half, ok := r.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
