package server_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/belfrydb/belfry/access/tokens"
	"github.com/belfrydb/belfry/cmd/belfry/server"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// TestOneNodeWithRootTokensIsEnough: a node that was started without root tokens requires tokens
// while another node of its cluster does, and accepts those of the cluster. When the last node with
// root tokens is gone, it requires none.
func TestOneNodeWithRootTokensIsEnough(t *testing.T) {
	t.Parallel()
	configs, text := oneWithRootTokens(t)
	servers := startAll(t, configs)()
	open := servers[1]
	put := func(token string) error {
		_, err := queues(open).Put(carrying(t, token), &belfryv1.PutRequest{Queue: "q"})
		return err
	}
	if err := put(""); err == nil { // if the node does not know yet, it refuses too
		t.Error("a put without a token was taken")
	}
	await(t, "the put to be refused for want of a token", func() bool {
		return connect.CodeOf(put("")) == connect.CodeUnauthenticated
	})
	await(t, "a root token that it was not given to be refused", func() bool {
		return connect.CodeOf(put(text)) == connect.CodeUnauthenticated
	})
	made, err := admin(servers[0]).CreateToken(carrying(t, text), &belfryv1.CreateTokenRequest{Scopes: []string{"put:q"}})
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the cluster's token to be good", func() bool { return put(made.Token) == nil })

	stop(t, servers[0])
	configs[0].RootTokens = ""
	start(t, configs[0])
	await(t, "no node to require tokens", func() bool { return put("") == nil })
}

// oneWithRootTokens returns the settings of two nodes of one cluster and the root token of the
// first node. The second node has none.
func oneWithRootTokens(t *testing.T) (configs []server.Config, root string) {
	root, id, hash := tokens.New()
	join := []string{addresses.Free(t), addresses.Free(t)}
	configs = make([]server.Config, len(join))
	for i, name := range []string{"n1", "n2"} {
		configs[i] = config(t, t.TempDir())
		configs[i].Shards, configs[i].SteadyAfter = 1, time.Millisecond
		configs[i].NodeID, configs[i].GossipListen, configs[i].Join, configs[i].BootstrapExpect = name, join[i], join,
			len(join)
	}
	configs[0].RootTokens = filepath.Join(t.TempDir(), "root-tokens")
	if err := os.WriteFile(configs[0].RootTokens, []byte(tokens.FormatRoot(id, hash)), 0o600); err != nil {
		t.Fatal(err)
	}
	return configs, root
}

// carrying returns a context whose calls carry a token, none if it is empty.
func carrying(t *testing.T, token string) context.Context {
	ctx, call := connect.NewClientContext(t.Context())
	if token != "" {
		call.RequestHeader().Set("Authorization", "Bearer "+token)
	}
	return ctx
}

// TestLoneNodeHasOpenAccess: a lone node without root tokens serves every caller at once, since its
// catalog is its own.
func TestLoneNodeHasOpenAccess(t *testing.T) {
	t.Parallel()
	s := start(t, config(t, t.TempDir()))
	_, err := queues(s).Put(t.Context(), &belfryv1.PutRequest{Queue: "q"})
	if err != nil {
		t.Error(err)
	}
}

// TestLoneNodeIsClosedToPages: a page in a browser whose own name leads to loopback takes no job
// there.
func TestLoneNodeIsClosedToPages(t *testing.T) {
	t.Parallel()
	s := start(t, config(t, t.TempDir()))
	for host, want := range map[string]int{"evil.example:7400": http.StatusForbidden, "localhost:7400": http.StatusOK} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL()+"/v1/put",
			strings.NewReader(`{"queue":"q"}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := answer.Body.Close(); err != nil || answer.StatusCode != want {
			t.Errorf("%s: %s, %v", host, answer.Status, err)
		}
	}
}
