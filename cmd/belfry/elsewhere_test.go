package main

import (
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/clitest"
	"github.com/belfrydb/belfry/cmd/belfry/server"
)

// wrongPortCommands are commands of all kinds of calls.
func wrongPortCommands() [][]string {
	return [][]string{{"put", "orders", "x"}, {"cluster", "status"}, {"health"}, {"health", "--live"}, {"backup", "-"}}
}

// TestWrongPortOfANode says which port it is, and which one is meant; nothing was done there.
func TestWrongPortOfANode(t *testing.T) {
	t.Parallel()
	s, err := server.Start(t.Context(), server.Config{
		Dir: t.TempDir(), Listen: addresses.FreeRow(t, 3), NodeID: "n1", Shards: 1, Logger: slog.New(slog.DiscardHandler),
		Fatal: func(err error) {
			t.Error(err)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	for address, says := range map[string]string{
		s.PeerAddress(): "belfry: " + s.PeerAddress() +
			" is the peer port of Belfry node n1, where other nodes reach it; clients use " + s.Address() + "\n",
		s.GossipAddress(): "belfry: " + s.GossipAddress() + " is the gossip port of a Belfry node; clients use " +
			s.Address() + "\n",
	} {
		for _, args := range wrongPortCommands() {
			h := newHarness(t, nil)
			if got := h.Run(append(args, "--server", address)...); got.Code != cli.CodeUnavailable || got.Err != says {
				t.Errorf("%v: %+v, want exit code 4 and %q", args, got, says)
			}
		}
	}
}

// TestWrongServer says that something else answers, if that is certain: a proxy may have lost the
// answer of a server.
func TestWrongServer(t *testing.T) {
	t.Parallel()
	greeter, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer greeter.Close()
	go func() {
		for {
			conn, err := greeter.Accept()
			if err != nil {
				return
			}
			conn.Write([]byte("SSH-2.0-x\r\n")) //nolint:errcheck // the reader sees
			conn.Read(make([]byte, 4096))       //nolint:errcheck // whatever was asked
			conn.Close()
		}
	}()
	missing, page := httptest.NewServer(http.NotFoundHandler()),
		httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			w.Write([]byte("<html>")) //nolint:errcheck // the reader sees
		}))
	defer missing.Close()
	defer page.Close()
	for _, address := range []string{greeter.Addr().String(), missing.Listener.Addr().String(),
		page.Listener.Addr().String()} {
		for _, args := range wrongPortCommands() {
			h := newHarness(t, nil)
			got := h.Run(append(args, "--server", address)...)
			if got.Code != cli.CodeUnavailable ||
				!strings.HasPrefix(got.Err, "belfry: something that is not a Belfry server answers at "+address+": ") ||
				strings.Contains(got.Err, "request-id") {
				t.Errorf("%v: %+v, want exit code 4 and that it is no Belfry", args, got)
			}
		}
	}
	// One that breaks off and falls silent may be a server that was killed when it had done what it
	// was asked.
	over := make(chan struct{})
	broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/Put") {
			w.Header().Set("Content-Type", "application/proto")
			w.Header().Set("Content-Length", "100")
			w.Write([]byte("x")) //nolint:errcheck // the reader sees
			panic(http.ErrAbortHandler)
		}
		<-over
	}))
	defer broken.Close()
	defer close(over)
	lost := newHarness(t, nil)
	if got := lost.Run("put", "orders", "x", "--server", broken.URL); got.Code != cli.CodeUnknown ||
		!strings.Contains(got.Err, "--request-id "+clitest.FirstRequestID) {
		t.Errorf("a server that was lost: %+v, want exit code 5 and the request id", got)
	}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadGateway)
	}))
	defer proxy.Close()
	h := newHarness(t, nil)
	if got := h.Run("put", "orders", "x", "--server", proxy.URL); got.Code != cli.CodeUnknown ||
		!strings.Contains(got.Err, "--request-id "+clitest.FirstRequestID) {
		t.Errorf("a proxy that lost its server: %+v, want exit code 5 and the request id", got)
	}
}
