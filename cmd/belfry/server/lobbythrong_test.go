package server

import (
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"testing"
)

// TestLobbyIsBounded: who says nothing to a process that looks for its cluster keeps nobody out. That those who do are closed is
// shown in rpc.
func TestLobbyIsBounded(t *testing.T) {
	t.Parallel()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	l := newLobby(listener, Config{Logger: slog.New(slog.DiscardHandler)}, (*tls.Config)(nil))
	l.enter("n1")
	defer func() {
		if err := l.leave(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	for range lobbyMost + 1 {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
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
	if response.StatusCode != http.StatusOK {
		t.Errorf("whoever comes last is answered %s", response.Status)
	}
	if l.server.ConnState == nil {
		t.Error("nobody looks who of those in the lobby has a call")
	}
}
