package rpc

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
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
)

// zeros is a gzip stream of n zero bytes.
func zeros(t *testing.T, n int64) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := io.CopyN(w, zeroReader{}, n); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// zeroReader reads zeros for ever.
type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// jobsJSON is a batch of n copies of a put.
func jobsJSON(n int, put string) string {
	return `{"jobs":[` + strings.TrimSuffix(strings.Repeat(put+",", n), ",") + `]}`
}

// TestAbuse is the table of malformed and abusive requests. Each is answered with the code of its reason, in words that
// name the field and, where there is one, the limit; and none leaves anything behind.
func TestAbuse(t *testing.T) {
	s := serve(t)
	lease := formatLease(leaseOfNothing())
	for _, c := range []struct {
		name, path, body string
		headers          []string
		status           int
		want             string
	}{
		// Form.
		{"not JSON", "/v1/put", `queue=a`, nil, 400, "request: not valid JSON"},
		{"cut off", "/v1/put", `{"queue":"a"`, nil, 400, "request: not valid JSON: it ends too early"},
		{"an array", "/v1/put", `[{"queue":"a"}]`, nil, 400, "request: want a JSON object"},
		{"a null", "/v1/put", `null`, nil, 400, "request: want a JSON object"},
		{"two values", "/v1/put", `{"queue":"a"}{"queue":"b"}`, nil, 400, "request: more than one JSON value"},
		{"invalid UTF-8", "/v1/put", "{\"queue\":\"a\",\"text\":\"\xff\"}", nil, 400, "request: not valid UTF-8"},
		{"half a surrogate", "/v1/put", `{"queue":"a","text":"\ud800"}`, nil, 400, "request: "},
		{"10,000 brackets", "/v1/put", strings.Repeat(`{"queue":`, 10_000), nil, 400, "request: "},
		{"1,000,000 brackets in a field", "/v1/put", `{"headers":` + strings.Repeat(`[`, 1_000_000), nil, 400, "not valid JSON"},
		{"an unknown field", "/v1/put", `{"queue":"a","prio":1}`, nil, 400, `prio: unknown field; did you mean \"priority\"`},
		{"an unknown field in a batch", "/v1/put-batch", `{"jobs":[{"queue":"a","body":"x"}]}`, nil, 400, `jobs[0].body: unknown field`},
		{"a field twice", "/v1/put", `{"queue":"a","queue":"b"}`, nil, 400, `duplicate field \"queue\"`},
		{"text and data", "/v1/put", `{"queue":"a","text":"a","data":"YQ=="}`, nil, 400, `\"data\", oneof belfry.v1.PutRequest.body is already set`},
		{"delay and dueAt", "/v1/put", `{"queue":"a","delay":"1s","dueAt":"2026-11-21T09:30:00Z"}`, nil, 400, `\"dueAt\", oneof belfry.v1.PutRequest.when is already set`},
		{"protobuf that is none", "/v1/put", "\xff\xff\xff", []string{"Content-Type", "application/proto"}, 400, "request: "},
		{"protobuf with invalid UTF-8", "/v1/put", "\x0a\x01\xff", []string{"Content-Type", "application/proto"}, 400, "invalid UTF-8"},
		{"an encoding nobody knows", "/v1/put", `{}`, []string{"Content-Encoding", "br"}, 501, `unknown compression \"br\"`},
		{"gzip that is none", "/v1/put", `{"queue":"a"}`, []string{"Content-Encoding", "gzip"}, 400, "gzip: invalid header"},
		{"a protocol version from the future", "/v1/put", `{}`, []string{"Connect-Protocol-Version", "9"}, 400, "Connect-Protocol-Version"},
		{"a timeout that is none", "/v1/put", `{}`, []string{"Connect-Timeout-Ms", "soon"}, 400, "request: "},
		// Wrong types.
		{"a number for a queue", "/v1/put", `{"queue":7}`, nil, 400, "queue: want a string, not 7"},
		{"an object for a text", "/v1/put", `{"queue":"a","text":{"a":1}}`, nil, 400, `text: want a string`},
		{"text for base64", "/v1/put", `{"queue":"a","data":"hello world!"}`, nil, 400, "bytes field data"},
		{"a word for a delay", "/v1/put", `{"queue":"a","delay":"soon"}`, nil, 400, "delay: want a duration"},
		{"a word for a time", "/v1/put", `{"queue":"a","dueAt":"tomorrow"}`, nil, 400, "dueAt: want a time"},
		{"a fraction for a priority", "/v1/put", `{"queue":"a","priority":0.5}`, nil, 400, "priority: want a whole number"},
		{"a number for a header", "/v1/put", `{"queue":"a","headers":{"n":1}}`, nil, 400, `headers[\"n\"]: want a string`},
		{"a string for queues", "/v1/reserve", `{"queues":"a"}`, nil, 400, "queues: want a JSON array"},
		{"a word for a state", "/v1/list", `{"queue":"a","state":"LATE"}`, nil, 400, "state: want one of DELAYED"},
		{"a number for a state", "/v1/list", `{"queue":"a","state":77}`, nil, 400, "state: want one of DELAYED"},
		{"an ended state", "/v1/list", `{"queue":"a","state":"ACKED"}`, nil, 400, "state: want one of DELAYED, READY, RESERVED, DEAD, not"},
		// Names and ids.
		{"no queue", "/v1/put", `{"text":"x"}`, nil, 400, "queue: a queue's name is required"},
		{"a queue of 257 bytes", "/v1/put", `{"queue":"` + strings.Repeat("q", 257) + `"}`, nil, 400, "queue: 257 bytes; the limit is 256"},
		{"a queue with a space", "/v1/put", `{"queue":"a b"}`, nil, 400, "queue: only letters"},
		{"a queue in Cyrillic", "/v1/put", `{"queue":"очередь"}`, nil, 400, "queue: only letters"},
		{"a queue of three parts", "/v1/put", `{"queue":"a/b/c"}`, nil, 400, "queue: want `name` or `namespace/name`"},
		{"a queue that climbs", "/v1/put", `{"queue":"../etc"}`, nil, 400, `queue: want \"name\" or \"namespace/name\"; a part is empty`},
		{"a queue with an empty part", "/v1/put", `{"queue":"/a"}`, nil, 400, "a part is empty"},
		{"a queue with a NUL", "/v1/put", `{"queue":"a\u0000"}`, nil, 400, "queue: only letters"},
		{"an id of 257 bytes", "/v1/put", `{"queue":"a","id":"` + strings.Repeat("i", 257) + `"}`, nil, 400, "id: 257 bytes; the limit is 256"},
		{"an id of the server's form", "/v1/put", `{"queue":"a","id":"0-17"}`, nil, 400, "id: ids of the form"},
		{"again without an id", "/v1/put", `{"queue":"a","again":true}`, nil, 400, "again: it needs an id"},
		{"a requestId of 65 bytes", "/v1/put", `{"queue":"a","requestId":"` + strings.Repeat("r", 65) + `"}`, nil, 400, "requestId: 65 bytes; the limit is 64"},
		{"a get without an id", "/v1/get", `{"queue":"a"}`, nil, 400, "id: a job's id is required"},
		// Times.
		{"a negative delay", "/v1/put", `{"queue":"a","delay":"-1s"}`, nil, 400, "delay: -1s is out of range: 0s to 100y"},
		{"a delay of 101 years", "/v1/put", `{"queue":"a","delay":"885000h"}`, nil, 400, "delay: 885000h is out of range: 0s to 100y"},
		{"a delay of 10,000 years", "/v1/put", `{"queue":"a","delay":"315576000000s"}`, nil, 400, "out of range: 0s to 100y"},
		{"a delay beyond protobuf", "/v1/put", `{"queue":"a","delay":"999999999999s"}`, nil, 400, "delay: want a duration"},
		{"a due time in the year 9999", "/v1/put", `{"queue":"a","dueAt":"9999-12-31T23:59:59Z"}`, nil, 400, "dueAt: 9999-12-31T23:59:59Z is out of range: at most 100y from now"},
		{"a TTR of zero", "/v1/put", `{"queue":"a","ttr":"0s"}`, nil, 400, "ttr: 0s is out of range: 1ms to 24h"},
		{"a TTR of two days", "/v1/reserve", `{"queues":["a"],"ttr":"48h"}`, nil, 400, "ttr: 48h is out of range: 1ms to 24h"},
		{"a TTL of zero", "/v1/put", `{"queue":"a","ttl":"0s"}`, nil, 400, "ttl: 0s is out of range: 1ms to 100y"},
		{"a wait of an hour", "/v1/reserve", `{"queues":["a"],"wait":"1h"}`, nil, 400, "wait: 1h is out of range: 0s to 1m"},
		{"a negative wait", "/v1/reserve", `{"queues":["a"],"wait":-1}`, nil, 400, "wait: -1s is out of range: 0s to 1m"},
		{"a negative retry delay", "/v1/put", `{"queue":"a","retryDelays":["0s","-5s"]}`, nil, 400, "retryDelays[1]: -5s is out of range: 0s to 100y"},
		// Sizes and counts.
		{"a body above 1 MiB", "/v1/put", `{"queue":"a","text":"` + strings.Repeat("x", 1<<20+1) + `"}`, nil, 400, "text: 1048577 bytes; the limit is 1048576"},
		{"data above 1 MiB", "/v1/put", `{"queue":"a","data":"` + base64.StdEncoding.EncodeToString(make([]byte, 1<<20+1)) + `"}`, nil, 400, "data: 1048577 bytes; the limit is 1048576"},
		{"a message above 8 MiB", "/v1/put", `{"queue":"a","text":"` + strings.Repeat("x", 9<<20) + `"}`, nil, 400, "request: more than 8388608 bytes"},
		{"headers above 16 KiB", "/v1/put", `{"queue":"a","headers":{"h":"` + strings.Repeat("x", 16<<10) + `"}}`, nil, 400, "headers: 16385 bytes; the limit is 16384"},
		{"a header without a name", "/v1/put", `{"queue":"a","headers":{"":"x"}}`, nil, 400, "headers: a header without a name"},
		{"a priority of 128", "/v1/put", `{"queue":"a","priority":128}`, nil, 400, "priority: 128 is out of range: -128 to 127"},
		{"2,000,000 attempts", "/v1/put", `{"queue":"a","maxAttempts":2000000}`, nil, 400, "maxAttempts: 2000000 is out of range: 0 to 1000000"},
		{"65 retry delays", "/v1/put", `{"queue":"a","retryDelays":[` + strings.Repeat(`"1s",`, 64) + `"1s"]}`, nil, 400, "retryDelays: 65 entries; the limit is 64"},
		{"an empty batch", "/v1/put-batch", `{}`, nil, 400, "jobs: at least one is required; the limit is 1000"},
		{"a batch of 1,001", "/v1/put-batch", jobsJSON(1001, `{"queue":"a"}`), nil, 400, "jobs: 1001 entries; the limit is 1000"},
		{"a batch above 4 MiB", "/v1/put-batch", jobsJSON(5, `{"queue":"a","text":"`+strings.Repeat("x", 1<<20)+`"}`), nil, 400, "bytes; the limit is 4194304"},
		{"no queues", "/v1/reserve", `{}`, nil, 400, "queues: at least one is required; the limit is 64"},
		{"a queue twice", "/v1/reserve", `{"queues":["a","b","a"]}`, nil, 400, "queues[2]: the queue is named twice"},
		{"1,001 jobs", "/v1/reserve", `{"queues":["a"],"maxJobs":1001}`, nil, 400, "maxJobs: 1001 is out of range: 1 to 1000"},
		{"a negative page", "/v1/list", `{"queue":"a","pageSize":-1}`, nil, 400, "pageSize: -1 is out of range: 1 to 1000"},
		{"a forged page token", "/v1/list", `{"queue":"a","pageToken":"AAAA"}`, nil, 400, "pageToken: not a token of this list"},
		{"a forged page token of queues", "/v1/list-queues", `{"pageToken":"%%%"}`, nil, 400, "pageToken: not a token of this list"},
		{"redrive of nothing", "/v1/redrive", `{"queue":"a"}`, nil, 400, "ids: ids or max is required"},
		{"redrive of both", "/v1/redrive", `{"queue":"a","ids":["x"],"max":1}`, nil, 400, "max: give either ids or max"},
		{"redrive of a million", "/v1/redrive", `{"queue":"a","max":1000000}`, nil, 400, "max: 1000000 is out of range: 1 to 100000"},
		// Leases.
		{"no lease", "/v1/ack", `{}`, nil, 400, "lease: a lease is required"},
		{"a lease of one's own", "/v1/ack", `{"lease":"let me in"}`, nil, 400, "lease: not a lease"},
		{"a lease cut short", "/v1/extend", `{"lease":"` + lease[:len(lease)-2] + `"}`, nil, 400, "lease: not a lease"},
		{"a lease of 1 MiB", "/v1/ack", `{"lease":"` + strings.Repeat("A", 1<<20) + `"}`, nil, 400, "lease: not a lease"},
		{"a lease of a job that never was", "/v1/ack", `{"lease":"` + lease + `"}`, nil, 400, `"reason":"STALE_LEASE"`},
		{"dead and a delay", "/v1/nack", `{"lease":"` + lease + `","dead":true,"delay":"1s"}`, nil, 400, "delay: a job that is to be dead has no delay"},
		// Settings.
		{"a queue of 99 partitions", "/v1/create-queue", `{"queue":"p","partitions":99}`, nil, 400, "partitions: 99 is out of range: 1 to 3"},
		{"a limit below the partitions", "/v1/create-queue", `{"queue":"p","partitions":3,"settings":{"maxJobs":2}}`, nil, 400, "settings.maxJobs: 2 is below the number of partitions, 3"},
		{"a policy without a mode", "/v1/create-queue", `{"queue":"p","settings":{"overdue":{}}}`, nil, 400, "settings.overdue.mode: want one of FIRE, SPREAD, DROP"},
		{"spread without a period", "/v1/create-queue", `{"queue":"p","settings":{"overdue":{"mode":"SPREAD"}}}`, nil, 400, "settings.overdue.period: it goes with SPREAD"},
		{"an update of nothing", "/v1/update-queue", `{"queue":"a"}`, nil, 400, "settings: at least one setting is required"},
		{"an update of no queue", "/v1/update-queue", `{"queue":"nix","settings":{"ttr":"1m"}}`, nil, 404, `"reason":"QUEUE_NOT_FOUND"`},
		{"purge of an ended state", "/v1/purge-queue", `{"queue":"a","states":["ACKED"]}`, nil, 400, "states[0]: want one of DELAYED"},
		// Bombs.
		{"a bomb of 1 GiB", "/v1/put", zeros(t, 1<<30), []string{"Content-Encoding", "gzip", "Content-Type", "application/json"}, 400, "request: more than 8388608 bytes when decompressed"},
		{"a bomb in protobuf", "/v1/put", zeros(t, 1<<28), []string{"Content-Encoding", "gzip", "Content-Type", "application/proto"}, 400, "request: more than 8388608 bytes when decompressed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s.t = t
			headers := c.headers
			if len(headers) == 0 {
				headers = []string{"Content-Type", "application/json"}
			}
			got := s.send(http.MethodPost, c.path, c.body, headers...)
			if got.status != c.status || !strings.Contains(got.body, c.want) {
				t.Errorf("%d %s\nwant %d and %s", got.status, got.body, c.status, c.want)
			}
			if !strings.Contains(got.body, `"type":"google.rpc.ErrorInfo"`) || !strings.Contains(got.body, `"outcome":"NOT_APPLIED"`) {
				t.Errorf("no reason in %s", got.body)
			}
			if len(got.body) > 2500 {
				t.Errorf("the answer has %d bytes", len(got.body))
			}
		})
	}
	s.t = t
	if got := s.post("/v1/list-queues", ""); got.body != `{"queues":[],"nextPageToken":""}`+"\n" {
		t.Errorf("something was left behind: %s", got.body)
	}
}

// TestAbuseOverGRPC: the errors that Connect makes itself carry their reason in the other protocols too.
func TestAbuseOverGRPC(t *testing.T) {
	s := serve(t)
	two := h2c(t)
	for _, kind := range []string{"application/grpc+json", "application/grpc-web+json", "application/grpc+proto"} {
		message := `{"queue":"a","dealy":"5m"}`
		if strings.HasSuffix(kind, "proto") {
			message = "\xff\xff"
		}
		frame := append([]byte{0, 0, 0, 0, byte(len(message))}, message...)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/belfry.v1.QueueService/Put", bytes.NewReader(frame))
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
		_, err := c.Put(t.Context(), &belfryv1.PutRequest{Queue: "a", Body: &belfryv1.PutRequest_Data{Data: make([]byte, 9<<20)}})
		if f, ok := FaultOf(err); !ok || f.Reason != belfryv1.Reason_REASON_TOO_LARGE || connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("%s: 9 MiB: %v", name, err)
		}
	}
}

// TestBombsTogether sets off many bombs at once: they share the few places where requests are decompressed.
func TestBombsTogether(t *testing.T) {
	s := serve(t)
	bomb := zeros(t, 64<<20)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var group sync.WaitGroup
	for range 64 {
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

// raw opens a connection and writes to it.
func (s *served) raw(text string) net.Conn {
	s.t.Helper()
	var d net.Dialer
	conn, err := d.DialContext(s.t.Context(), "tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		s.t.Fatal(err)
	}
	if _, err := io.WriteString(conn, text); err != nil {
		s.t.Fatal(err)
	}
	return conn
}

// TestSlowSenders sends bodies that do not arrive. Each gets an answer when the time is over, also if it drips.
func TestSlowSenders(t *testing.T) {
	s := serve(t, func(c *Config) {
		c.Limits = DefaultLimits()
		c.Limits.BodyWait = 50 * time.Millisecond
	})
	for name, text := range map[string]string{
		"a call":     "POST /v1/put HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{",
		"a raw body": "POST /q/a HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{",
		"in chunks":  "POST /v1/put HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
	} {
		conn := s.raw(text)
		answer, err := io.ReadAll(conn)
		if err != nil || !strings.Contains(string(answer), " 400 ") || !strings.Contains(string(answer), "the body did not arrive within 50ms, which is the limit") {
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

// TestRestOfBodyIsNoRequest: what is left of a body that was refused must not be read as the next request.
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

// TestSlowBodyDoesNotEndLongPoll: the time for a body ends with the body; the wait of a poll may be longer.
func TestSlowBodyDoesNotEndLongPoll(t *testing.T) {
	s := serve(t, func(c *Config) {
		c.Limits = DefaultLimits()
		c.Limits.BodyWait = 20 * time.Millisecond
	})
	started := time.Now()
	got := s.post("/v1/reserve", `{"queues":["a"],"wait":"200ms"}`)
	if got.status != 200 || time.Since(started) < 200*time.Millisecond {
		t.Errorf("%d after %v: %s", got.status, time.Since(started), got.body)
	}
}

// TestHalfOpenConnections: connections that say nothing, or half of a header, do not disturb anybody.
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
	if got := s.send(http.MethodPost, "/v1/put", `{"queue":"a"}`, "X-Big", strings.Repeat("x", 80<<10)); got.status != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("%d %s", got.status, got.body)
	}
}

// TestClientThatLeaves ends the poll of a client whose connection is gone.
func TestClientThatLeaves(t *testing.T) {
	s := serve(t)
	text := `{"queues":["a"],"wait":"60s"}`
	conn := s.raw(fmt.Sprintf("POST /v1/reserve HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(text), text))
	s.await("a parked poll", func() bool { return s.node.parkedPolls() == 1 })
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	s.await("no parked poll", func() bool { return s.node.parkedPolls() == 0 })
}

// await yields until a condition holds.
func (s *served) await(what string, ok func() bool) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 30*time.Second)
	defer cancel()
	for !ok() {
		if ctx.Err() != nil {
			s.t.Fatalf("there never was %s", what)
		}
		runtime.Gosched()
	}
}

// TestBodiesTogetherAreBounded: when all bodies together hold too much, the next byte is refused.
func TestBodiesTogetherAreBounded(t *testing.T) {
	s := serve(t)
	s.server.handler.bodyBytesInFlight.Store(bodyBytesInFlightMax)
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

func (brokenResponse) Header() http.Header       { return http.Header{} }
func (brokenResponse) WriteHeader(int)           {}
func (brokenResponse) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
