package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/node/nodetest/pipetest"
	"github.com/belfrydb/belfry/node/peer"
)

// peerNode returns a node with a name whose peer port is l, part of the given cluster, or a founder
// if that is empty. Its dials reach to.
func peerNode(t *testing.T, dir, name, cluster string, l, to *pipetest.Listener) *Node {
	t.Helper()
	cfg := testConfig(t, dir)
	cfg.Name, cfg.Join, cfg.Peers, cfg.Dial = name, cluster, l, to.Dial
	cfg.Resolve = func(string) ([]string, error) { return []string{""}, nil }
	return openNode(t, cfg)
}

// twoNodes opens two nodes of one cluster whose dials reach each other.
func twoNodes(t *testing.T, dirs [2]string) (a, b *Node) {
	t.Helper()
	la, lb := pipetest.Listen("pipe"), pipetest.Listen("pipe")
	a = peerNode(t, dirs[0], "a", "", la, lb)
	return a, peerNode(t, dirs[1], "b", a.Status().ClusterID, lb, la)
}

func TestCallsOverThePeerPort(t *testing.T) {
	dirs := [2]string{t.TempDir(), t.TempDir()}
	synctest.Test(t, func(t *testing.T) {
		a, b := twoNodes(t, dirs)
		var protocols http.Protocols
		protocols.SetUnencryptedHTTP2(true)
		type peerKey struct{}
		server := &http.Server{
			Protocols: &protocols, ReadHeaderTimeout: time.Second,
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = fmt.Fprintf(w, "%s called by %v", r.Proto, r.Context().Value(peerKey{}))
			}),
			ConnContext: func(ctx context.Context, c net.Conn) context.Context {
				return context.WithValue(ctx, peerKey{}, c.(*peer.Conn).Peer())
			},
		}
		served := make(chan error, 1)
		go func() { served <- server.Serve(a.PeerListener()) }()
		if again := a.PeerListener(); again != a.PeerListener() {
			t.Error("there are two listeners")
		}
		transport := &http.Transport{Protocols: &protocols,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return b.DialPeer(ctx, a.Status().ServerID)
			}}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://a/", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if want := "HTTP/2.0 called by " + b.Status().ServerID; err != nil || string(body) != want {
			t.Errorf("the answer is %q, %v, want %q", body, err, want)
		}
		resp.Body.Close()
		transport.CloseIdleConnections()
		closeNode(t, a)
		if err := <-served; !errors.Is(err, net.ErrClosed) {
			t.Errorf("after the end of its node the server ended with %v", err)
		}
		if err := server.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
}

func TestGroupNamesThatAreTaken(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := openNode(t, testConfig(t, dir))
		for _, name := range []string{"hello", "calls", "shard-0", "shard-9"} {
			if _, err := n.StartGroup(t.Context(), GroupConfig{Name: name}); err == nil ||
				!strings.Contains(err.Error(), "is taken") {
				t.Errorf("starting a group %q gives %v", name, err)
			}
		}
	})
}
