package rpc

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/http1"
)

// directPort serves only the direct calls of a server. The test fails if net/http is needed.
func directPort(t *testing.T, s *served) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	direct := http1.New(directConfig(s.server.handler, slog.New(slog.DiscardHandler), nil))
	others := direct.Listen(l)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for conn, err := others.Accept(); err == nil; conn, err = others.Accept() {
			t.Error("net/http is needed")
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		direct.Close()
		_ = others.Close()
		<-ended
	})
	return l.Addr().String()
}

// rawAnswer sends a request in one piece and returns the answer, with all that differs from call to
// call replaced.
func rawAnswer(t *testing.T, addr, request string) string {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	reader := bufio.NewReader(conn)
	var head strings.Builder
	for line := ""; line != "\r\n"; head.WriteString(line) {
		if line, err = reader.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	res, err := http.ReadResponse(bufio.NewReader(io.MultiReader(strings.NewReader(head.String()), reader)), nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	text := regexp.MustCompile("Date: [^\r]*").ReplaceAllString(head.String(), "Date: ")
	text = regexp.MustCompile("(Content-Length: [0-9]+|Transfer-Encoding: chunked)").ReplaceAllString(text, "length")
	if res.Header.Get("Content-Type") == "application/proto" {
		return text // the body has times
	}
	body = regexp.MustCompile(`"value":"[^"]*"`).ReplaceAll(body, nil) // a map in any order
	return text + strings.Join(regexp.MustCompile("[0-9]+").Split(string(body), -1), "N")
}

// directRequest returns a request. headers are lines without their ends.
func directRequest(path, body string, headers ...string) string {
	lines := append([]string{"POST " + path + " HTTP/1.1", "Host: 127.0.0.1:7400", "X-Request-Id: call"}, headers...)
	return strings.Join(append(lines, fmt.Sprint("Content-Length: ", len(body)), "", body), "\r\n")
}

// TestDirectAnswers: a direct call has the answer that net/http and Connect give, to the byte: head,
// body, errors, compression.
func TestDirectAnswers(t *testing.T) {
	s := serve(t)
	direct := directPort(t, s)
	const service = "/belfry.v1.QueueService/"
	isProto, isJSON := "Content-Type: application/proto", "Content-Type: application/json"
	put := &belfryv1.PutRequest{Queue: "a", Body: &belfryv1.PutRequest_Text{Text: "x"}}
	puts := &belfryv1.PutBatchRequest{Jobs: []*belfryv1.PutRequest{put, {}}}
	long := strings.Repeat("long ", 1000)
	for name, request := range map[string][]string{
		"put":                {"/v1/put", `{"queue":"a","text":"x","delay":"5m"}`},
		"put by curl":        {"/v1/put", `{"queue":"a","text":"x"}`, "Content-Type: application/x-www-form-urlencoded"},
		"put of Connect":     {service + "Put", `{"queue":"a"}`, isJSON, "Connect-Protocol-Version: 1"},
		"charset":            {"/v1/put", `{"queue":"a"}`, isJSON + "; charset=utf-8"},
		"binary put":         {service + "Put", string(encode(t, put)), isProto},
		"binary batch":       {service + "PutBatch", string(encode(t, puts)), isProto},
		"its request id":     {service + "PutBatch", string(encode(t, puts)), isProto, "Belfry-Request-Id: a"},
		"batch":              {"/v1/put-batch", `{"jobs":[{"queue":"a"},{"queue":"!"}]}`},
		"a field is wrong":   {"/v1/put", `{"queue":"!"}`, isJSON},
		"likewise, binary":   {service + "Put", string(encode(t, &belfryv1.PutRequest{})), isProto},
		"two request ids":    {"/v1/put", `{"queue":"a","requestId":"b"}`, "Belfry-Request-Id: a"},
		"ack of no lease":    {"/v1/ack", `{"lease":"x"}`},
		"acks":               {"/v1/ack-batch", `{"leases":["x"]}`},
		"nack":               {"/v1/nack", `{"lease":"x"}`},
		"release":            {"/v1/release", `{"lease":"x"}`},
		"extend":             {"/v1/extend", `{"lease":"x"}`},
		"reserve":            {"/v1/reserve", `{"queues":["none"]}`, "Belfry-Client: me"},
		"reserve that waits": {"/v1/reserve", `{"queues":["none"],"wait":"0.01s"}`, "Connect-Timeout-Ms: 60000"},
		"binary reserve": {service + "Reserve", string(encode(t, &belfryv1.ReserveRequest{
			Queues: []string{"none"}, Wait: durationpb.New(time.Millisecond),
		})), isProto},
		"a long answer":  {"/v1/put-batch", `{"jobs":[` + strings.Repeat(`{"queue":"!"},`, 99) + `{"queue":"a"}]}`},
		"no time":        {"/v1/reserve", `{"queues":["none"],"wait":"20s"}`, "Connect-Timeout-Ms: 1"},
		"a long id":      {"/v1/put", `{"queue":"a","requestId":"` + long + `"}`},
		"accepts gzip":   {"/v1/put", `{"queue":"a"}`, "Accept-Encoding: gzip, br"},
		"a page's proxy": {"/v1/put", `{"queue":"a"}`, "X-Forwarded-For: 10.0.0.1", "Via: 1.1 proxy", "Accept: */*"},
	} {
		got := rawAnswer(t, direct, directRequest(request[0], request[1], request[2:]...))
		want := rawAnswer(t, s.addr, directRequest(request[0], request[1], append(request[2:], "X-Other: 1")...))
		if got != want {
			t.Errorf("%s: the direct answer is\n%s\nand that of net/http\n%s", name, got, want)
		}
	}
}

// TestDirectJobs: jobs are put, reserved, compressed and acked directly.
func TestDirectJobs(t *testing.T) {
	s := serve(t)
	direct := directPort(t, s)
	call := func(path, body string, headers ...string) string {
		t.Helper()
		answer := rawAnswer(t, direct, directRequest(path, body, headers...))
		if !strings.HasPrefix(answer, "HTTP/1.1 200 OK\r\n") {
			t.Fatalf("%s: %s", path, answer)
		}
		return answer
	}
	call("/v1/put", `{"queue":"a","text":"`+strings.Repeat("x", 5000)+`"}`)
	if got := call("/v1/reserve", `{"queues":["a"]}`, "Accept-Encoding: gzip"); !strings.Contains(got,
		"Content-Encoding: gzip\r\n") || len(got) > 2500 {
		t.Errorf("%d bytes: %s", len(got), got)
	}
	call("/v1/put", `{"queue":"b","text":"y"}`)
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", direct)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	reader := bufio.NewReader(conn)
	var lease struct {
		Jobs []struct{ Lease string }
	}
	for _, step := range []struct{ path, body string }{{"/v1/reserve", `{"queues":["b"]}`}, {"/v1/ack", ""}} {
		if step.body == "" {
			step.body = `{"lease":"` + lease.Jobs[0].Lease + `"}`
		}
		if _, err := io.WriteString(conn, directRequest(step.path, step.body)); err != nil {
			t.Fatal(err)
		}
		res, err := http.ReadResponse(reader, nil)
		if err != nil || res.StatusCode != http.StatusOK {
			t.Fatal(res, err)
		}
		if step.path == "/v1/ack" {
			break
		}
		if err := json.NewDecoder(res.Body).Decode(&lease); err != nil || len(lease.Jobs) != 1 {
			t.Fatal(lease, err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
	}
}

// TestDirectRefusals: what must be refused before the method is net/http's to refuse.
func TestDirectRefusals(t *testing.T) {
	s := serve(t, func(cfg *Config) { cfg.Local = true })
	for name, request := range map[string]string{
		"bad JSON":      directRequest("/v1/put", `{"queue":`),
		"no number":     directRequest("/v1/put", `{}`, "Connect-Timeout-Ms: 1s"),
		"version":       directRequest("/v1/put", `{}`, "Connect-Protocol-Version: 2"),
		"content type":  directRequest("/v1/put", `{}`, "Content-Type: text/xml"),
		"a page's Host": strings.Replace(directRequest("/v1/put", `{"queue":"a"}`), "127.0.0.1", "page.example", 1),
		"a page":        directRequest("/v1/put", `{"queue":"a"}`, "Origin: http://page.example"),
		"a client":      directRequest("/v1/reserve", `{"queues":["a"]}`, "Belfry-Client: "+strings.Repeat("x", 65)),
		"a bad message": directRequest("/v1/put", "\xff", "Content-Type: application/proto"),
	} {
		got := rawAnswer(t, s.addr, request)
		if !strings.HasPrefix(got, "HTTP/1.1 4") || !strings.Contains(got, `"reason"`) {
			t.Errorf("%s: %s", name, got)
		}
	}
	if s.server.handler.bodyBytesInFlight.Load() != 0 {
		t.Error("bytes of bodies are in flight after all calls")
	}
}

// TestAcceptsGzip follows Connect: no weights, and names between commas and blanks.
func TestAcceptsGzip(t *testing.T) {
	for text, want := range map[string]bool{
		"": false, "gzip": true, "br, gzip": true, "deflate,gzip": true, "gzip;q=1": false, "x-gzip": false, " gzip ": true,
	} {
		if got := acceptsGzip([]byte(text)); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}
