package server

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
)

// TestLobbyIsBounded: who says nothing to a process that looks for its cluster keeps nobody out. That those who do are closed is
// shown in rpc.
func TestLobbyIsBounded(t *testing.T) {
	t.Parallel()
	l, listener := enterLobby(t)
	for range lobbyMost + 1 {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	if status := askLobby(t, listener); status != http.StatusOK {
		t.Errorf("whoever comes last is answered %d", status)
	}
	if l.server.ConnState == nil {
		t.Error("nobody looks who of those in the lobby has a call")
	}
}

// enterLobby begins to answer on loopback until the test ends.
func enterLobby(t *testing.T) (*lobby, net.Listener) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := newLobby(listener, Config{Logger: slog.New(slog.DiscardHandler)}, (*tls.Config)(nil))
	l.enter("n1")
	t.Cleanup(func() {
		if err := l.leave(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		_ = listener.Close()
	})
	return l, listener
}

// askLobby asks whether the process lives, on a connection of its own.
func askLobby(t *testing.T, listener net.Listener) int {
	t.Helper()
	own := &http.Transport{}
	defer own.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+listener.Addr().String()+"/livez", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := own.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	return response.StatusCode
}

// TestLobbyIsNotHeld: who lets no answer be sent, which HTTP/2 allows, keeps nobody out, and is not waited for.
func TestLobbyIsNotHeld(t *testing.T) {
	t.Parallel()
	l, listener := enterLobby(t)
	if l.server.WriteTimeout != helloWait { // what that does is net/http's
		t.Errorf("an answer may take %v, want %v", l.server.WriteTimeout, helloWait)
	}
	const (
		window0 = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x04\x00\x00\x00\x00"
		livez   = "\x00\x00\x0d\x01\x05\x00\x00\x00\x01\x82\x86\x04\x06/livez\x41\x01x"
	)
	for i := range lobbyMost {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, window0+livez); err != nil {
			t.Fatal(err)
		}
		for head := make([]byte, 9); head[3] != 1; { // until that of the answer
			if _, err := io.ReadFull(conn, head); err != nil {
				t.Fatalf("connection %d: %v", i, err)
			}
			if _, err := io.CopyN(io.Discard, conn, int64(head[1])<<8|int64(head[2])); err != nil {
				t.Fatal(err)
			}
		}
	}
	if status := askLobby(t, listener); status != http.StatusOK {
		t.Errorf("whoever comes last is answered %d", status)
	}
}
