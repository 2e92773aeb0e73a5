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

// TestNotReadyServerIsBounded: silent connections do not keep a client out. A test of rpc shows
// that they are closed.
func TestNotReadyServerIsBounded(t *testing.T) {
	t.Parallel()
	l, listener := startNotReady(t)
	for range notReadyConnsMax + 1 {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	if status := askLiveness(t, listener); status != http.StatusOK {
		t.Errorf("the last client is answered %d", status)
	}
	if l.server.ConnState == nil {
		t.Error("the connections with calls are not known")
	}
}

// startNotReady answers on loopback until the test ends.
func startNotReady(t *testing.T) (*notReadyServer, net.Listener) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := newNotReadyServer(listener, Config{Logger: slog.New(slog.DiscardHandler)}, (*tls.Config)(nil))
	l.start("n1")
	t.Cleanup(func() {
		if err := l.stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		_ = listener.Close()
	})
	return l, listener
}

// askLiveness calls /livez on a new connection.
func askLiveness(t *testing.T, listener net.Listener) int {
	t.Helper()
	own := &http.Transport{}
	defer own.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+listener.Addr().String()+"/livez",
		nil)
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

// TestNotReadyServerIsNotHeld: clients that let no answer be sent, which HTTP/2 allows, do not keep
// others out and do not delay stop.
func TestNotReadyServerIsNotHeld(t *testing.T) {
	t.Parallel()
	l, listener := startNotReady(t)
	if l.server.WriteTimeout != helloWait { // what that does is net/http's
		t.Errorf("an answer may take %v, want %v", l.server.WriteTimeout, helloWait)
	}
	const (
		window0 = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x04\x00\x00\x00\x00"
		livez   = "\x00\x00\x0d\x01\x05\x00\x00\x00\x01\x82\x86\x04\x06/livez\x41\x01x"
	)
	for i := range notReadyConnsMax {
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
	if status := askLiveness(t, listener); status != http.StatusOK {
		t.Errorf("the last client is answered %d", status)
	}
}
