package rpc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/belfrydb/belfry/cron"
	"github.com/belfrydb/belfry/cron/calendar"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/rpc/backend"
	"github.com/belfrydb/belfry/rpc/backend/backendtest"
)

// newTestServer is NewServer that adds the cluster of one node if there is none, and connects a
// backendtest.Catalog with the node.
func newTestServer(cfg Config) (*Server, error) {
	if cfg.Cluster == nil {
		cfg.Cluster = &backendtest.SingleNode{Node: cfg.Node, Address: cfg.Address, Version: cfg.Version}
	}
	if cfg.Calendars == nil {
		zones, err := cron.BuiltInZones()
		if err != nil {
			return nil, err
		}
		cfg.Calendars = calendar.New(zones)
	}
	if c, ok := cfg.Catalog.(interface{ SetNode(n backend.Node) }); ok {
		c.SetNode(cfg.Node)
	}
	return NewServer(cfg)
}

// served is a server on loopback over a backendtest.Node.
type served struct {
	t       *testing.T
	server  *Server
	node    *backendtest.Node
	catalog *backendtest.Catalog
	url     string
	addr    string
	log     *safeBuffer
}

// newServed makes a server; change may adjust its configuration.
func newServed(t *testing.T, change ...func(*Config)) *served {
	t.Helper()
	s := &served{t: t, node: backendtest.NewNode(3), catalog: backendtest.NewCatalog(), log: &safeBuffer{}}
	cfg := Config{
		Node: s.node, Catalog: s.catalog, Logger: slog.New(slog.NewTextHandler(s.log, nil)),
		Registry: prometheus.NewRegistry(), Name: "n1", Address: "127.0.0.1:7400", Version: "v0.0.0-test",
	}
	for _, f := range change {
		f(&cfg)
	}
	var err error
	if s.server, err = newTestServer(cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.server.Drain) // ends the goroutine that watches the catalog
	return s
}

// serve starts a server on loopback.
func serve(t *testing.T, change ...func(*Config)) *served {
	t.Helper()
	s := newServed(t, change...)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.on(l)
	s.addr = l.Addr().String()
	s.url = "http://" + s.addr
	return s
}

// on serves on a listener until the test ends.
func (s *served) on(l net.Listener) {
	t := s.t
	ended := make(chan error, 1)
	go func() { ended <- s.server.Serve(l) }()
	t.Cleanup(func() {
		s.server.http1.Close()
		if err := s.server.http.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
}

// answered is an HTTP answer that was read to its end.
type answered struct {
	status int
	header http.Header
	body   string
}

// send makes one request with the default client: HTTP/1.1, and no content type but what is given.
func (s *served) send(method, path, body string, headers ...string) answered {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	return s.do(http.DefaultClient, req)
}

// do sends a request with a client.
func (s *served) do(client *http.Client, req *http.Request) answered {
	s.t.Helper()
	res, err := client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return answered{status: res.StatusCode, header: res.Header, body: string(body)}
}

// post posts to a path as `curl -d` does.
func (s *served) post(path, body string) answered {
	s.t.Helper()
	return s.send(http.MethodPost, path, body, "Content-Type", "application/x-www-form-urlencoded")
}

// h2c returns a client that speaks HTTP/2 without TLS, and nothing else.
func h2c(t *testing.T) *http.Client {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// safeBuffer is a buffer for several goroutines.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func nodeUnknown() error { return fmt.Errorf("shard 1: %w", node.ErrUnknownOutcome) }

func nodeNoLeader() error { return fmt.Errorf("shard 1: %w", node.ErrNoLeader) }

// leaseOfNothing names a reservation that never was.
func leaseOfNothing() fsm.Ref { return fsm.Ref{Queue: "nothing", Serial: 1, Fence: 1} }

// encode returns the bytes of a message.
func encode(t testing.TB, m proto.Message) []byte {
	t.Helper()
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// bytesField appends a field of bytes.
func bytesField(dst []byte, number protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(dst, number, protowire.BytesType), value)
}
