package rpc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/check"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/inbound"
)

// TestAbuseOverGRPC: the errors that Connect makes itself carry their reason in the other protocols
// too.
func TestAbuseOverGRPC(t *testing.T) {
	s := serve(t)
	two := h2c(t)
	for _, kind := range []string{"application/grpc+json", "application/grpc-web+json", "application/grpc+proto"} {
		message := `{"queue":"a","dealy":"5m"}`
		if strings.HasSuffix(kind, "proto") {
			message = "\xff\xff"
		}
		frame := append([]byte{0, 0, 0, 0, byte(len(message))}, message...)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/belfry.v1.QueueService/Put",
			bytes.NewReader(frame))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", kind)
		res, err := two.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(res.Body); err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		all := res.Header.Clone()
		for k, v := range res.Trailer {
			all[k] = v
		}
		if all.Get("Grpc-Status") != "3" || all.Get("Grpc-Status-Details-Bin") == "" {
			t.Errorf("%s: %v", kind, all)
		}
		if strings.HasSuffix(kind, "json") && !strings.Contains(all.Get("Grpc-Message"), "dealy: unknown field") {
			t.Errorf("%s: %v", kind, all)
		}
	}
	for name, c := range s.clients() {
		_, err := c.Put(t.Context(), &belfryv1.PutRequest{
			Queue: "a", Body: &belfryv1.PutRequest_Data{Data: make([]byte, 9<<20)},
		})
		if f, ok := fault.FromConnect(err); !ok || f.Reason != belfryv1.Reason_REASON_TOO_LARGE ||
			connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("%s: 9 MiB: %v", name, err)
		}
	}
}

// TestBombsTogether sets off many bombs at once: they share the few places where requests are
// decompressed.
func TestBombsTogether(t *testing.T) {
	s := serve(t)
	bomb := zeros(t, 4)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var group sync.WaitGroup
	for range floodSize {
		group.Go(func() {
			got := s.send(http.MethodPost, "/v1/put", bomb, "Content-Encoding", "gzip", "Content-Type", "application/json")
			if got.status != 400 {
				t.Errorf("%d %s", got.status, got.body)
			}
		})
	}
	group.Wait()
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 256<<20 {
		t.Errorf("%d bytes are still held", grown)
	}
	if s.server.handler.bodyBytesInFlight.Load() != 0 {
		t.Errorf("%d bytes are still counted", s.server.handler.bodyBytesInFlight.Load())
	}
}

// awaitMax bounds waits: only what hangs takes that long, however busy the machine is.
const awaitMax = 2 * time.Minute

// raw opens a connection and writes to it.
func (s *served) raw(text string) net.Conn {
	s.t.Helper()
	var d net.Dialer
	conn, err := d.DialContext(s.t.Context(), "tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(awaitMax)); err != nil {
		s.t.Fatal(err)
	}
	if _, err := io.WriteString(conn, text); err != nil {
		s.t.Fatal(err)
	}
	return conn
}

// TestSlowSenders sends bodies that do not arrive. Each gets an answer when the time is over, also
// if it drips.
func TestSlowSenders(t *testing.T) {
	s := serve(t, func(c *Config) {
		c.Limits = check.DefaultLimits()
		c.Limits.BodyWait = 50 * time.Millisecond
	})
	for name, text := range map[string]string{
		"a call":     "POST /v1/put HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{",
		"a raw body": "POST /q/a HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{",
		"in chunks":  "POST /v1/put HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
	} {
		conn := s.raw(text)
		answer, err := io.ReadAll(conn)
		if err != nil || !strings.Contains(string(answer), " 400 ") ||
			!strings.Contains(string(answer), "the body did not arrive within 50ms, which is the limit") {
			t.Errorf("%s: %v %s", name, err, answer)
		}
	}
	body, w := io.Pipe()
	defer w.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/v1/put", body)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.do(h2c(t), req); got.status != 400 || !strings.Contains(got.body, "did not arrive within") {
		t.Errorf("HTTP/2: %d %s", got.status, got.body)
	}
}

// TestRestOfBodyIsNoRequest: what is left of a body that was refused must not be read as the next
// request.
func TestRestOfBodyIsNoRequest(t *testing.T) {
	s := serve(t)
	hidden := "POST /v1/put HTTP/1.1\r\nHost: x\r\nContent-Length: 16\r\n\r\n{\"queue\":\"hid\"}\n"
	for name, head := range map[string]string{
		"too large":     "POST /v1/put HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n",
		"raw too large": "POST /q/a HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n",
		"a wrong type":  "POST /v1/put HTTP/1.1\r\nHost: x\r\nContent-Type: a/b\r\nContent-Length: %d\r\n\r\n",
		"a wrong query": "POST /q/a?x=1 HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n",
		"no such path":  "POST /nix HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n",
	} {
		padding := strings.Repeat("x", 8<<20+6)
		rest := strings.Repeat(hidden, 20_000)
		var d net.Dialer
		conn, err := d.DialContext(t.Context(), "tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		var group sync.WaitGroup
		group.Go(func() {
			// The server may close the connection before it has everything.
			_, _ = io.WriteString(conn, fmt.Sprintf(head, len(padding)+len(rest))+padding+rest)
		})
		answer, err := io.ReadAll(conn)
		if n := strings.Count(string(answer), "HTTP/1.1 "); n > 1 {
			t.Errorf("%s: %d answers to one request (%v)", name, n, err)
		}
		conn.Close()
		group.Wait()
	}
	if got := s.post("/v1/list-queues", ""); strings.Contains(got.body, "hid") {
		t.Errorf("a hidden request was carried out: %s", got.body)
	}
}

// TestSlowBodyDoesNotEndLongPoll: the time for a body ends with the body; the wait of a poll may be
// longer.
func TestSlowBodyDoesNotEndLongPoll(t *testing.T) {
	s := serve(t, func(c *Config) {
		c.Limits = check.DefaultLimits()
		c.Limits.BodyWait = 500 * time.Millisecond
	})
	started := time.Now()
	got := s.post("/v1/reserve", `{"queues":["a"],"wait":"700ms"}`)
	if got.status != 200 || time.Since(started) < 700*time.Millisecond {
		t.Errorf("%d after %v: %s", got.status, time.Since(started), got.body)
	}
}

// TestHalfOpenConnections: connections that say nothing, or half of a header, do not disturb
// anybody.
func TestHalfOpenConnections(t *testing.T) {
	s := serve(t, func(c *Config) {})
	for i := range 200 {
		s.raw([]string{"", "POST /v1/put HT", "GET /livez HTTP/1.1\r\nHost: x\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"}[i%4])
	}
	if got := s.post("/v1/put", `{"queue":"a"}`); got.status != 200 {
		t.Errorf("%d %s", got.status, got.body)
	}
}

// TestHugeHeadersAreRefused: the bound on the head of a request holds on both versions of HTTP.
func TestHugeHeadersAreRefused(t *testing.T) {
	s := serve(t)
	if got := s.send(http.MethodPost, "/v1/put", `{"queue":"a"}`, "X-Big",
		strings.Repeat("x", 80<<10)); got.status != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("%d %s", got.status, got.body)
	}
}

// TestClientThatLeaves ends the poll of a client whose connection is gone.
func TestClientThatLeaves(t *testing.T) {
	s := serve(t)
	text := `{"queues":["a"],"wait":"60s"}`
	conn := s.raw(fmt.Sprintf("POST /v1/reserve HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(text), text))
	s.await("a parked poll", func() bool { return s.node.ParkedPolls() == 1 })
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	s.await("no parked poll", func() bool { return s.node.ParkedPolls() == 0 })
}

// await waits until a condition holds.
func (s *served) await(what string, ok func() bool) {
	s.t.Helper()
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	deadline := time.After(awaitMax)
	for !ok() {
		select {
		case <-look.C:
		case <-deadline:
			s.t.Fatalf("there never was %s", what)
		}
	}
}

// TestBodiesTogetherAreBounded: when all bodies together hold too much, the next byte is refused.
func TestBodiesTogetherAreBounded(t *testing.T) {
	s := serve(t)
	s.server.handler.bodyBytesInFlight.Store(inbound.BytesInFlightMax)
	got := s.post("/v1/put", `{"queue":"a"}`)
	if got.status != 429 || !strings.Contains(got.body, `"reason":"OVERLOADED"`) {
		t.Errorf("%d %s", got.status, got.body)
	}
	s.server.handler.bodyBytesInFlight.Store(0)
	if got := s.post("/v1/put", `{"queue":"a"}`); got.status != 200 {
		t.Errorf("%d %s", got.status, got.body)
	}
}

func TestReplyToGoneClientIsAnError(t *testing.T) {
	o := &reply{ResponseWriter: brokenResponse{}, request: &http.Request{ProtoMajor: 2}, handler: &handler{}}
	if _, err := o.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("%v", err)
	}
}

// brokenResponse is a response to a client that is gone.
type brokenResponse struct{}

func (brokenResponse) Header() http.Header { return http.Header{} }

func (brokenResponse) WriteHeader(int) {}

func (brokenResponse) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
