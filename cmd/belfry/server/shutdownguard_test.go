package server

import (
	"errors"
	"io"
	"net"
	"testing"
)

// TestShutdownGuard: before fatal is called, every connection is closed and no new one is accepted.
func TestShutdownGuard(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := newShutdownGuard()
	l := g.wrap(inner)
	clients, servers := connectTwo(t, l)
	if err := servers[0].Close(); err != nil {
		t.Fatal(err)
	}
	if len(g.open) != 2 { // the listener and one connection
		t.Errorf("the guard has %d things after one of two connections was closed", len(g.open))
	}
	cause := errors.New("the disk hangs")
	g.beforeFatal(func(err error) {
		if !errors.Is(err, cause) {
			t.Errorf("ended because of %v", err)
		}
		if n, err := clients[1].Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
			t.Errorf("a client reads %d bytes, %v", n, err)
		}
		if _, err := servers[1].Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("the server writes: %v", err)
		}
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("accepting: %v", err)
		}
	})(cause)
	if g.add(inner) {
		t.Error("the guard takes more after closeAll")
	}
}

// connectTwo makes two connections to a listener.
func connectTwo(t *testing.T, l net.Listener) (clients, servers []net.Conn) {
	t.Helper()
	for range 2 {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		accepted, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		clients, servers = append(clients, conn), append(servers, accepted)
	}
	return clients, servers
}

// TestGuardWithoutListener: a server without a listener for peers stays without one.
func TestGuardWithoutListener(t *testing.T) {
	if l := newShutdownGuard().wrap(nil); l != nil {
		t.Errorf("nil became %v", l)
	}
}
