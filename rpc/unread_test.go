package rpc

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"github.com/belfrydb/belfry/fsm"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
	"github.com/belfrydb/belfry/rpc/check"
	"github.com/belfrydb/belfry/rpc/inbound"
)

// pipes is a listener of connections in memory, for bubbles of synctest.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	close(p.closed)
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// DialContext connects to the server, whatever the address.
func (p *pipes) DialContext(context.Context, string, string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	p.conns <- theirs
	return ours, nil
}

// servePipes serves in memory.
func servePipes(t *testing.T, change ...func(*Config)) (*served, *pipes) {
	t.Helper()
	s, p := newServed(t, change...), &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	s.on(p)
	s.url = "http://belfry"
	return s, p
}

// h2c returns a client of a server in memory that speaks HTTP/2 only.
func (p *pipes) h2c(t *testing.T) *http.Client {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols, DialContext: p.DialContext}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// The parts of HTTP/2 that readers are made of.
const (
	http2Data         = 0
	http2Headers      = 1
	http2Reset        = 3
	http2Settings     = 4
	http2Ping         = 6
	http2WindowUpdate = 8

	http2End        = 1 // the flag of the last frame of a stream, and of an answer to a ping
	http2EndHeaders = 4
)

// windowed is the client's side of an HTTP/2 connection whose windows are the test's.
type windowed struct {
	t    *testing.T
	conn net.Conn
	// data gets what came of the first stream's data, ended how it ended: "whole", "reset", or that
	// the connection was closed.
	data  bytes.Buffer
	ended chan string
}

// read connects, and lets so many bytes of each stream be sent. What is read of the first stream is
// there when it has ended.
func (p *pipes) read(t *testing.T, window uint32) *windowed {
	t.Helper()
	conn, err := p.DialContext(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	r := &windowed{t: t, conn: conn, ended: make(chan string, 1)}
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		r.ended <- r.take()
		_, _ = io.Copy(io.Discard, conn)
	}()
	t.Cleanup(func() {
		conn.Close()
		<-finished
	})
	if _, err := io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	r.frame(http2Settings, 0, 0, string(binary.BigEndian.AppendUint32([]byte{0, 4}, window))) // INITIAL_WINDOW_SIZE
	return r
}

// frame sends a frame; the server may have closed.
func (r *windowed) frame(kind, flags byte, stream uint32, payload string) {
	b := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, flags}
	_, _ = r.conn.Write(append(binary.BigEndian.AppendUint32(b, stream), payload...))
}

// allow lets so many more bytes of the first stream be sent.
func (r *windowed) allow(n uint32) {
	update := string(binary.BigEndian.AppendUint32(nil, n))
	r.frame(http2WindowUpdate, 0, 0, update)
	r.frame(http2WindowUpdate, 0, 1, update)
}

// ask makes the first request. A field is a name and a value.
func (r *windowed) ask(method, path, body string, fields ...string) {
	var block strings.Builder
	for all := append([]string{":method", method, ":scheme", "http", ":authority", "x", ":path", path},
		fields...); len(all) > 0; all = all[2:] {
		block.WriteByte(0) // literal, not indexed
		for _, text := range all[:2] {
			block.WriteByte(byte(len(text)))
			block.WriteString(text)
		}
	}
	r.frame(http2Headers, http2EndHeaders, 1, block.String())
	end := byte(http2End)
	if strings.HasSuffix(path, "/Work") {
		end = 0 // there may be more to ask for
	}
	r.frame(http2Data, end, 1, body)
}

// take takes frames until the first stream has ended.
func (r *windowed) take() string {
	for head := make([]byte, 9); ; {
		if _, err := io.ReadFull(r.conn, head); err != nil {
			return "the connection is closed"
		}
		payload := make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
		if _, err := io.ReadFull(r.conn, payload); err != nil {
			return "the connection is closed"
		}
		switch kind, flags, stream := head[3], head[4], binary.BigEndian.Uint32(head[5:]); {
		case kind == http2Ping && flags == 0:
			go r.frame(http2Ping, http2End, 0, string(payload)) // the server may not read while it writes
		case stream == 1 && kind == http2Reset:
			return "reset"
		case stream == 1 && kind == http2Data:
			r.data.Write(payload)
			fallthrough
		case stream == 1 && kind == http2Headers:
			if flags&http2End != 0 {
				return "whole"
			}
		}
	}
}

// wantEnd waits until the first stream has ended in some way, and wants that to be so long after
// the beginning.
func (r *windowed) wantEnd(began time.Time, how string, after time.Duration) {
	r.t.Helper()
	select {
	case got := <-r.ended:
		if took := time.Since(began); got != how || took != after {
			r.t.Errorf("%s after %v, want %s after %v", got, took, how, after)
		}
	case <-time.After(25 * time.Hour):
		r.t.Errorf("it is still open after %v, want %s after %v", time.Since(began), how, after)
	}
}

// TestUnreadAnswersEnd: a client that reads nothing of an answer over HTTP/2 has as long as over
// HTTP/1, counted from where the answer begins. A client that has shown no token has less.
func TestUnreadAnswersEnd(t *testing.T) {
	const (
		put, health = belfryv1connect.QueueServicePutProcedure, "/grpc.health.v1.Health/Check"
		empty, a    = "\x00\x00\x00\x00\x00", "\x00\x00\x00\x00\x03\x0a\x01q"
	)
	credits := func(t *testing.T) string { return string(framed(t, credits(1))) }
	plain := func(text string) func(*testing.T) string { return func(*testing.T) string { return text } }
	const limit = time.Minute
	for name, tt := range map[string]struct {
		unauthenticated    bool
		method, path, kind string
		body               func(t *testing.T) string
		after              time.Duration
	}{
		"JSON":     {false, "POST", "/v1/put", "application/json", plain(`{"queue":"q"}`), limit},
		"protobuf": {false, "POST", put, "application/proto", plain("\x0a\x01q"), limit},
		"gRPC":     {false, "POST", put, "application/grpc", plain(a), limit},
		"gRPC-Web": {false, "POST", put, "application/grpc-web", plain(a), limit},
		"an error": {false, "POST", "/v1/put", "application/json", plain(`{"dealy":1}`), limit},
		// it is in headers
		"an error of gRPC-Web": {false, "POST", put, "application/grpc-web+json", plain("\x00\x00\x00\x00\x01{"), 0},
		"no such path":         {false, "POST", "/v1/nothing", "application/json", plain("{}"), limit},
		"a poll": {false, "POST", "/v1/reserve", "application/json",
			plain(`{"queues":["nothing"],"wait":"40s"}`), 40*time.Second + limit},
		"a raw put":                  {false, "POST", "/q/a", "text/plain", plain("x"), limit},
		"a raw job":                  {false, "GET", "/q/jobs", "", plain(""), limit},
		"metrics":                    {false, "GET", "/metrics", "", plain(""), limit},
		"a stream that is refused":   {false, "POST", "/v1/work", "text/html", plain(""), limit},
		"a stream that has no queue": {false, "POST", "/v1/work", "application/connect+proto", plain(empty), limit},
		"a stream with a job": {false, "POST", belfryv1connect.QueueServiceWorkProcedure, "application/grpc", credits,
			check.DefaultLimits().TTRMax},
		"a backup": {false, "POST", belfryv1connect.AdminServiceBackupProcedure, "application/grpc", plain(empty), limit},
		"a backup by Connect": {false, "POST", belfryv1connect.AdminServiceBackupProcedure, "application/connect+proto",
			plain(empty), limit},
		"a put without a token": {true, "POST", "/v1/put", "application/json", plain(`{"queue":"q"}`), strangerWait},
		"a backup without a token": {true, "POST", belfryv1connect.AdminServiceBackupProcedure, "application/connect+proto",
			plain(empty), strangerWait},
		"a path without a token": {true, "GET", "/nothing", "", plain(""), strangerWait},
		"livez":                  {true, "GET", "/livez", "", plain(""), strangerWait},
		"readyz":                 {true, "GET", "/readyz?verbose", "", plain(""), strangerWait},
		"health":                 {true, "POST", health, "application/json", plain("{}"), strangerWait},
		"health over gRPC":       {true, "POST", health, "application/grpc", plain(empty), strangerWait},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tokenStore := newTokenMemory()
				s, port := servePipes(t, func(cfg *Config) {
					cfg.Authenticator, cfg.Catalog = tokenStore, &listingCatalog{Catalog: cfg.Catalog}
					cfg.Node = &exportingNode{Node: cfg.Node, queues: []fsm.QueueRecord{{Name: "a", Partitions: 1}}}
				})
				token, _ := tokenStore.make(t, "admin,consume,put:*")
				for _, queue := range []string{"a", "jobs"} {
					if _, err := s.server.handler.queues.Put(rootOf(t, s, token), &belfryv1.PutRequest{
						Queue: queue, Body: &belfryv1.PutRequest_Text{Text: "x"},
					}); err != nil {
						t.Fatal(err)
					}
				}
				fields := []string{"content-type", tt.kind}
				if !tt.unauthenticated {
					fields = append(fields, "authorization", "Bearer "+token)
				}
				r, began, how := port.read(t, 0), time.Now(), "reset"
				if tt.after == 0 {
					how = "whole"
				}
				r.ask(tt.method, tt.path, tt.body(t), fields...)
				r.wantEnd(began, how, tt.after)
			})
		})
	}
}

// rootOf returns the context of a caller with a token.
func rootOf(t *testing.T, s *served, token string) context.Context {
	t.Helper()
	known, f := s.server.handler.authorizer.Authenticate(
		&http.Request{Header: http.Header{"Authorization": {"Bearer " + token}}})
	if f != nil {
		t.Fatal(f)
	}
	return known.Context()
}

// TestSlowReaders get their answers whole, as long as they are done in time.
func TestSlowReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, port := servePipes(t)
		if _, err := s.server.handler.queues.Put(t.Context(), &belfryv1.PutRequest{
			Queue: "q", Body: &belfryv1.PutRequest_Data{Data: make([]byte, 500_000)},
		}); err != nil {
			t.Fatal(err)
		}
		r, began := port.read(t, 0), time.Now()
		r.ask("GET", "/q/q", "")
		for range 5 {
			time.Sleep(11 * time.Second)
			r.allow(100_000)
		}
		if r.wantEnd(began, "whole", 55*time.Second); r.data.Len() != 500_000 {
			t.Errorf("%d bytes have come", r.data.Len())
		}
		r, began = port.read(t, 0), time.Now()
		r.ask("GET", "/livez", "")
		time.Sleep(strangerWait - time.Second)
		r.allow(100)
		if r.wantEnd(began, "whole", strangerWait-time.Second); r.data.String() != "ok\n" {
			t.Errorf("%q", r.data.String())
		}
	})
}

// TestStreamsMayBeSilent for any time between two messages: a Work stream without jobs, and a
// backup of shards that take long to be captured.
func TestStreamsMayBeSilent(t *testing.T) {
	for _, protocol := range [][]connect.ClientOption{nil, {connect.WithGRPC()}, {connect.WithGRPCWeb()}} {
		synctest.Test(t, func(t *testing.T) {
			s, port := servePipes(t, func(cfg *Config) {
				cfg.Node = &exportingNode{Node: cfg.Node, slow: time.Hour, queues: []fsm.QueueRecord{{Name: "a", Partitions: 1}}}
				cfg.Catalog = &listingCatalog{Catalog: cfg.Catalog}
			})
			two := port.h2c(t)
			w := s.work(belfryv1connect.NewQueueServiceClient(two, s.url, protocol...), 2, "a")
			for range 2 {
				if _, err := s.server.handler.queues.Put(t.Context(), &belfryv1.PutRequest{Queue: "a"}); err != nil {
					t.Fatal(err)
				}
				if got := w.receive(); len(got.GetJobs()) != 1 {
					t.Errorf("%v", got)
				}
				time.Sleep(time.Hour)
			}
			if err := w.end(); err != nil {
				t.Errorf("the stream ended with %v", err)
			}
			if _, err := receiveBackup(t, belfryv1connect.NewAdminServiceClient(two, s.url, protocol...)); err != nil {
				t.Errorf("the backup ended with %v", err)
			}
		})
	}
}

// TestAStopHurriesWhoeverDoesNotRead: a backup that is being made has no more than a second for
// what it sends, at its beginning and later.
func TestAStopHurriesWhoeverDoesNotRead(t *testing.T) {
	for name, window := range map[string]uint32{"at the beginning": 0, "in the middle": 10_000} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := &endlessNode{began: make(chan struct{}), ended: make(chan error, 1), record: largeTombstone()}
				s, port := servePipes(t, func(cfg *Config) {
					n.Node = cfg.Node
					cfg.Node, cfg.Catalog = n, &listingCatalog{Catalog: cfg.Catalog}
				})
				r := port.read(t, window)
				r.ask("POST", belfryv1connect.AdminServiceBackupProcedure, "\x00\x00\x00\x00\x00", "content-type",
					"application/connect+proto")
				synctest.Wait()
				select {
				case <-n.began:
				default:
					if window > 0 {
						t.Error("it has not begun")
					}
				}
				began := time.Now()
				s.server.Drain()
				r.wantEnd(began, "reset", inbound.EndWait)
			})
		})
	}
}
