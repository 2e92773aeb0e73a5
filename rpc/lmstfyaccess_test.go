package rpc

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/lmstfy"
)

// TestLmstfyTokens: tokens and scopes are those of Belfry, and a token of POST /token may do
// everything in its namespace and nothing elsewhere.
func TestLmstfyTokens(t *testing.T) {
	store := newTokenMemory()
	s := serveLmstfy(t, func(cfg *Config) { cfg.Authenticator, cfg.Catalog = store, store })
	root, _ := store.make(t, "admin:*")
	least, leastID := store.make(t, "put:ns/q")
	store.all[leastID].About = "puts"
	s.ask(nil,
		asked{"GET", "/api/ns/q/size", "", 401, `{"error":"token not found"}`},
		asked{"PUT", "/api/ns/q?token=x", "", 401, `{"error":"invalid token"}`},
		asked{"PUT", "/api/ns/q?token=" + least, "", 201, `{"job_id":{},"msg":"published"}`},
		asked{"PUT", "/api/ns/q?token=default:" + least, "", 201, `{"job_id":{},"msg":"published"}`},
		asked{"GET", "/version", "", 401, `{"error":"token not found"}`})
	if got := s.send("GET", "/api/ns/q?token="+least, ""); got.status != 401 ||
		!strings.Contains(got.body, "invalid token: token ") || !strings.Contains(got.body, "consume:ns/q") ||
		got.header.Get("Belfry-Reason") != "FORBIDDEN" {
		t.Errorf("consume with a token for puts: %d %s", got.status, got.body)
	}
	if got := s.send("POST", "/token/ns?description=x", "", "X-Token", least); got.status != 403 {
		t.Errorf("a token by a caller who may not: %d %s", got.status, got.body)
	}
	var made struct{ Token string }
	got := s.send("POST", "/token/ns?description=of+ns", "", "X-Token", root)
	if err := json.Unmarshal([]byte(got.body), &made); err != nil || got.status != 201 {
		t.Fatalf("making a token: %d %s", got.status, got.body)
	}
	mine := []string{"X-Token", made.Token}
	s.ask(mine,
		asked{"GET", "/api/ns/q/size", "", 200, `{"namespace":"ns","queue":"q","size":2}`},
		asked{"PUT", "/api/ns/q/deadletter", "", 200, `{"count":0,"msg":"respawned"}`},
		asked{"DELETE", "/api/ns/q", "", 204, ""},
		asked{"GET", "/api/ns/q", "", 404, `{"msg":"no job available"}`})
	if got := s.send("PUT", "/api/nsx/q", "", mine...); got.status != 401 {
		t.Errorf("another namespace: %d %s", got.status, got.body)
	}
	id := strings.Split(made.Token, "_")[1]
	listed := []string{`"` + id + `": "of ns"`, `"` + leastID + `": "puts"`}
	slices.Sort(listed)
	s.ask([]string{"X-Token", root},
		asked{"GET", "/token/ns", "", 200, `{ "tokens": { ` + strings.Join(listed, ", ") + ` } }`},
		asked{"DELETE", "/token/other/" + id, "", 204, ""})
	s.ask(mine, asked{"PUT", "/api/ns/q", "", 201, `{"job_id":{},"msg":"published"}`})
	s.ask([]string{"X-Token", root}, asked{"DELETE", "/token/ns/" + made.Token, "", 204, ""})
	s.ask(mine, asked{"PUT", "/api/ns/q", "", 401, `{"error":"invalid token"}`})
	log := s.log.String()
	for _, want := range []string{"AdminService/CreateToken", "QueueService/Redrive", "AdminService/PurgeQueue"} {
		if !strings.Contains(log, want) {
			t.Errorf("%s is not in the audit log:\n%s", want, log)
		}
	}
	if strings.Contains(log, made.Token) || strings.Contains(log, root) {
		t.Errorf("a token is in the log:\n%s", log)
	}
}

// TestLmstfyWithoutTokens: calls need no token, and accept any. Nobody can make one.
func TestLmstfyWithoutTokens(t *testing.T) {
	s := serveLmstfy(t)
	s.ask([]string{"X-Token", "whatever"},
		asked{"PUT", "/api/ns/q", "", 201, `{"job_id":{},"msg":"published"}`})
	if got := s.send("POST", "/token/ns?description=x", ""); got.status != 403 ||
		!strings.Contains(got.body, "--root-tokens") {
		t.Errorf("a token of an open server: %d %s", got.status, got.body)
	}
}

// TestLmstfyBounds: requests have the bounds of the port for Belfry's clients.
func TestLmstfyBounds(t *testing.T) {
	s := serveLmstfy(t, func(cfg *Config) { cfg.Local = true })
	if got := s.send("PUT", "/api/ns/q/bulk", "["+strings.Repeat(" ", 9<<20)+"]"); got.status != 413 {
		t.Errorf("9 MiB: %d %s", got.status, got.body)
	}
	for _, c := range [][]string{
		{"Sec-Fetch-Site", "cross-site"}, {"Origin", "https://elsewhere.example"},
	} {
		if got := s.send("GET", "/api/ns/q", "", c...); got.status != 403 || got.header.Get("Belfry-Reason") != "FORBIDDEN" {
			t.Errorf("%v: %d %s", c, got.status, got.body)
		}
	}
	r := httptest.NewRequestWithContext(t.Context(), "GET", "/api/ns/q", http.NoBody)
	r.Host = "rebound.example"
	w := httptest.NewRecorder()
	s.server.lmstfy.Handler.ServeHTTP(w, r)
	if w.Code != 403 {
		t.Errorf("for another host: %d %s", w.Code, w.Body)
	}
	if got := s.send("GET", "/api/ns/q", "", "Belfry-Client", strings.Repeat("x", 65)); got.status != 413 {
		t.Errorf("a long name of a client: %d %s", got.status, got.body)
	}
}

// lmstfyPipes serves lmstfy's protocol in memory until the test ends, for bubbles of synctest. dial
// connects, and sends the head of a request and what there is of its body.
func lmstfyPipes(t *testing.T, change ...func(*Config)) (dial func(request string) net.Conn) {
	t.Helper()
	s := newServed(t, append(change, func(cfg *Config) { cfg.Lmstfy = true })...)
	p := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	ended := make(chan error, 1)
	go func() { ended <- s.server.ServeLmstfy(p) }()
	t.Cleanup(func() {
		if err := s.server.closeAll(); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return func(request string) net.Conn {
		conn, err := p.DialContext(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		go func() { _, _ = conn.Write([]byte(request)) }() // the answer shows whether it arrived
		return conn
	}
}

// statusAfter reads an answer and returns its status, and how long it took from began.
func statusAfter(t *testing.T, conn net.Conn, began time.Time) (int, time.Duration) {
	t.Helper()
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, time.Since(began)
	}
	return response.StatusCode, time.Since(began)
}

// TestLmstfySlowSender: a body that does not arrive in time is refused.
func TestLmstfySlowSender(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dial, began := lmstfyPipes(t), time.Now()
		conn := dial("PUT /api/ns/q HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nhalf")
		status, took := statusAfter(t, conn, began)
		if status != 400 || took < 30*time.Second || took > 35*time.Second {
			t.Errorf("after %v: %d", took, status)
		}
	})
}

// TestLmstfyConnections: a connection with a call of a known caller keeps its slot.
func TestLmstfyConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dial, began := lmstfyPipes(t, func(cfg *Config) { cfg.ConnectionsMax = 1 }), time.Now()
		first := dial("GET /api/ns/q?timeout=20 HTTP/1.1\r\nHost: localhost\r\n\r\n")
		synctest.Wait()
		second := dial("GET /api/ns/q HTTP/1.1\r\nHost: localhost\r\n\r\n")
		if status, took := statusAfter(t, second, began); status != 0 || took > 0 {
			t.Errorf("the second connection had %d after %v", status, took)
		}
		if status, took := statusAfter(t, first, began); status != 404 || took != 20*time.Second {
			t.Errorf("the first connection had %d after %v", status, took)
		}
	})
}

// TestLmstfyPanics: a handler that panics answers 500 in lmstfy's form, and logs why.
func TestLmstfyPanics(t *testing.T) {
	s := serveLmstfy(t)
	h := s.server.handler
	var err error
	h.lmstfy, err = lmstfy.New(lmstfy.Config{
		Queues: lmstfy.Queues{Put: func(context.Context, *belfryv1.PutRequest) (*belfryv1.PutResponse, error) {
			panic("planted")
		}},
		Authenticate: h.authenticateForeign, Registry: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	s.ask(nil, asked{"PUT", "/api/ns/q", "x", 500, `{"error":"internal error"}`})
	if log := s.log.String(); !strings.Contains(log, "planted") {
		t.Errorf("the log: %s", log)
	}
}
