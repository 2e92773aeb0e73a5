package server_test

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/belfrydb/belfry/cmd/belfry/server"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
)

// waiter is a server that is being started and looks for its cluster.
type waiter struct {
	log     *logbook
	url     string
	stop    context.CancelFunc
	started chan error // what the start ended with; the server is stopped with the test
	server  *server.Server
}

// startWaiting begins to start a server, and returns when it listens.
func startWaiting(t *testing.T, cfg server.Config) *waiter {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &waiter{log: &logbook{}, stop: cancel, started: make(chan error, 1)}
	cfg.Logger = w.log.logger()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		var err error
		w.server, err = server.Start(ctx, cfg)
		w.started <- err
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		if w.server != nil {
			stop(t, w.server)
		}
	})
	w.url = "http://" + w.log.await(t, `clients=(\S+)`)
	return w
}

// get asks a waiter, once it answers at all.
func (w *waiter) get(t *testing.T, path string) (status int, body string) {
	t.Helper()
	response, err := http.Get(w.url + path) //nolint:noctx // the test has a time limit of its own
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// TestWaitingJoinerAnswers: while a node looks for its cluster every call is answered at once with
// what it waits for, in the protocol of the call; once the cluster is there the same port serves.
func TestWaitingJoinerAnswers(t *testing.T) {
	t.Parallel()
	gossip := addresses.Free(t)
	cfg := config(t, t.TempDir())
	cfg.NodeID, cfg.Join = "n2", []string{gossip}
	w := startWaiting(t, cfg)
	reason := "node n2 has waited for a cluster since "
	for _, call := range []struct {
		path, kind, body string
	}{
		{"/v1/put", "", `{"queue":"orders","text":"x"}`},
		{"/belfry.v1.QueueService/Put", "application/json", `{"queue":"orders","text":"x"}`},
		{"/belfry.v1.AdminService/GetCluster", "application/json", `{}`},
		{"/q/orders?delay=1s", "image/png", "x"},
		{"/nowhere", "", "x"},
	} {
		response, err := http.Post(w.url+call.path, call.kind, //nolint:noctx // the test has a time limit of its own
			strings.NewReader(call.body))
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if got := string(text); response.StatusCode != http.StatusServiceUnavailable || !strings.Contains(got, reason) ||
			!strings.Contains(got, `"unavailable"`) || !strings.Contains(got, "NO_LEADER") {
			t.Errorf("%s: %s %s", call.path, response.Status, got)
		}
	}
	plain := &http.Transport{Protocols: new(http.Protocols)}
	plain.Protocols.SetUnencryptedHTTP2(true)
	defer plain.CloseIdleConnections()
	for name, client := range map[string]belfryv1connect.QueueServiceClient{
		"connect": belfryv1connect.NewQueueServiceClient(http.DefaultClient, w.url),
		"grpc":    belfryv1connect.NewQueueServiceClient(&http.Client{Transport: plain}, w.url, connect.WithGRPC()),
	} {
		_, err := client.Put(t.Context(), &belfryv1.PutRequest{Queue: "orders"})
		if connect.CodeOf(err) != connect.CodeUnavailable || !strings.Contains(err.Error(), reason) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if status, body := w.get(t, "/livez"); status != http.StatusOK || body != "ok\n" {
		t.Errorf("alive: %d %s", status, body)
	}
	await(t, "what is at the join address", func() bool {
		status, body := w.get(t, "/readyz")
		if status != http.StatusServiceUnavailable || !strings.Contains(body, reason) ||
			!strings.HasSuffix(body, "not ready\n") {
			t.Fatalf("ready: %d %s", status, body)
		}
		return strings.Contains(body, "nobody answers at join address "+gossip) &&
			strings.Contains(body, "if this is to be a new cluster, start it with --bootstrap-expect N")
	})

	seed := config(t, t.TempDir())
	seed.NodeID, seed.GossipListen = "n1", gossip
	start(t, seed)
	if err := <-w.started; err != nil {
		t.Fatal(err)
	}
	await(t, "the node to be ready", func() bool { status, _ := w.get(t, "/readyz"); return status == http.StatusOK })
}

// TestWaitingFounderAnswers as a joiner does; it founds nothing alone, and joins the cluster that
// calls it, as its earlier life's does.
func TestWaitingFounderAnswers(t *testing.T) {
	t.Parallel()
	cfg := config(t, t.TempDir())
	cfg.NodeID, cfg.BootstrapExpect = "n1", 3
	w := startWaiting(t, cfg)
	if status, body := w.get(t, "/readyz"); status != http.StatusServiceUnavailable ||
		!strings.Contains(body, "1 of 3 nodes are there: n1; nobody can be found by this node: --join is empty") {
		t.Errorf("ready: %d %s", status, body)
	}
	w.log.await(t, `level=WARN msg="waiting for a cluster".*(--join is empty)`)
	other := config(t, t.TempDir())
	other.NodeID = "n2"
	first, err := server.Start(t.Context(), other)
	if err != nil {
		t.Fatal(err)
	}
	cluster := first.Status().ClusterID
	stop(t, first)
	other.Join = []string{w.log.await(t, `gossip=(\S+)`)} // as it is remembered
	start(t, other)
	if err := <-w.started; err != nil {
		t.Fatal(err)
	}
	if got := w.server.Status().ClusterID; got != cluster {
		t.Errorf("it is in cluster %s, want %s", got, cluster)
	}
}

// TestWrongGossipKeyIsSaidByTheJoiner who can do something about it.
func TestWrongGossipKeyIsSaidByTheJoiner(t *testing.T) {
	t.Parallel()
	key := func(fill string) string {
		path := filepath.Join(t.TempDir(), "keys")
		if err := os.WriteFile(path, []byte(base64.StdEncoding.EncodeToString([]byte(strings.Repeat(fill, 32)))+"\n"),
			0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	seed := config(t, t.TempDir())
	seed.NodeID, seed.GossipKeys = "n1", key("a")
	gossip := start(t, seed).GossipAddress()
	for _, test := range []struct{ name, keys, says string }{
		{"another key", key("b"), "compare the files of --gossip-keys"},
		{"no key", "", "give this node the cluster's gossip keys with --gossip-keys"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			cfg := config(t, t.TempDir())
			cfg.NodeID, cfg.Join, cfg.GossipKeys, cfg.BootstrapExpect = "n2", []string{gossip}, test.keys, 1
			w := startWaiting(t, cfg)
			await(t, "what is wrong", func() bool {
				_, body := w.get(t, "/readyz")
				return strings.Contains(body, "join address "+gossip) && strings.Contains(body, test.says)
			})
			w.log.await(t, `level=WARN msg="waiting for a cluster".*`+test.says)
			w.stop() // it must not have founded a cluster of its own either
			if err := <-w.started; err == nil || !strings.Contains(err.Error(), test.says) || !errors.Is(err, context.Canceled) {
				t.Errorf("the start ended with %v", err)
			}
		})
	}
}

// TestFoundingWithoutAStranger: a join address at which another program answers can be no
// cluster's, and holds up no founding for which all are there.
func TestFoundingWithoutAStranger(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	cfg := config(t, t.TempDir())
	cfg.NodeID, cfg.Join, cfg.BootstrapExpect = "n1", []string{web.Listener.Addr().String()}, 1
	w := startWaiting(t, cfg)
	w.log.await(t, `level=WARN msg="founding without a join address" why="at join address `+
		cfg.Join[0]+` there is (a web server)`)
	if err := <-w.started; err != nil {
		t.Error(err)
	}
}

// TestNameOfANewNode is what it is told, else the default; a directory keeps the name that it has.
func TestNameOfANewNode(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, test := range []struct {
		name, dir, id, byDefault, want string
		alone                          bool
	}{
		{"told", t.TempDir(), "n1", "host", "n1", false},
		{"the default", t.TempDir(), "", "host", "host", false},
		{"nothing is known", t.TempDir(), "", "", "node", false},
		{"alone", dir, "", "host", "host", true},
		{"the directory has one", dir, "", "renamed", "host", false},
	} {
		cfg := config(t, test.dir)
		cfg.NodeID, cfg.DefaultName, cfg.Alone = test.id, test.byDefault, test.alone
		s, err := server.Start(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Status().Name; got != test.want {
			t.Errorf("%s: the node is named %s, want %s", test.name, got, test.want)
		}
		stop(t, s)
	}
}
