package rpc

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/codec"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/wire"
)

// TestRawKeepsBytes puts all sorts of bytes and takes them out again.
func TestRawKeepsBytes(t *testing.T) {
	s := serve(t)
	for name, body := range map[string]string{
		"nothing": "", "text": "hello", "a form": "a=b&c=%20", "JSON": "{\"a\": 9007199254740993}\n",
		"binary": "\x00\xff\xfe\r\n\x80",
		"large":  strings.Repeat("x", 1<<20),
	} {
		put := s.post("/q/ns/raw?id="+url.QueryEscape("id of "+name), body)
		if put.status != 200 || !strings.Contains(put.body, `"created":true`) ||
			!json.Valid([]byte(put.header.Get("Belfry-Witness"))) {
			t.Fatalf("%s: %d %s", name, put.status, put.body)
		}
		got := s.send(http.MethodGet, "/q/ns/raw?wait=1s&ttr=60s", "")
		if got.status != 200 || got.body != body {
			t.Errorf("%s: %d, %d bytes became %d", name, got.status, len(body), len(got.body))
		}
		want := map[string]string{
			"Belfry-Id": "id%20of%20" + name, "Belfry-Attempt": "1", "Belfry-Queue": "ns/raw",
			"Content-Type":           "application/octet-stream",
			"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store",
		}
		if name == "a form" {
			want["Belfry-Id"] = "id%20of%20a%20form"
		}
		for k, v := range want {
			if got.header.Get(k) != v {
				t.Errorf("%s: %s is %q; want %q", name, k, got.header.Get(k), v)
			}
		}
		lease := got.header.Get("Belfry-Lease")
		if _, err := wire.ParseLease(lease); err != nil || got.header.Get("Belfry-Fence") == "" ||
			got.header.Get("Belfry-Lease-Until") == "" {
			t.Errorf("%s: %v", name, got.header)
		}
		if ack := s.post("/v1/ack", `{"lease":"`+lease+`"}`); ack.status != 200 {
			t.Errorf("%s: ack: %s", name, ack.body)
		}
	}
	if got := s.send(http.MethodGet, "/q/ns/raw", ""); got.status != http.StatusNoContent || got.body != "" {
		t.Errorf("an empty queue: %d %q", got.status, got.body)
	}
}

func TestRawRefusals(t *testing.T) {
	s := serve(t)
	for _, c := range []struct {
		method, path, body string
		headers            []string
		status             int
		want               string
	}{
		{"POST", "/q/a?dealy=5m", "x", nil, 400, `dealy: unknown parameter; did you mean \"delay\"?`},
		{"POST", "/q/a?zzzzzzzzzzzzzz=1", "x", nil, 400, "unknown parameter; the parameters here are id, delay"},
		{"POST", "/q/a?delay=5m&delay=6m", "x", nil, 400, "delay: given 2 times; the limit is 1"},
		{"POST", "/q/a?delay=5m&dueAt=2026-11-21T09:30:00Z", "x", nil, 400, "dueAt: give either delay or dueAt"},
		{"POST", "/q/a?delay=soon", "x", nil, 400, "delay: want a duration"},
		{"POST", "/q/a?delay=-5", "x", nil, 400, "delay: -5s is out of range"},
		{"POST", "/q/a?delay=%zz", "x", nil, 400, "query: cannot be read"},
		{"POST", "/q/a?id=%ff", "x", nil, 400, "id: not valid UTF-8"},
		{"POST", "/q/a?id=0-1", "x", nil, 400, "id: ids of the form"},
		{"POST", "/q/a?dueAt=now", "x", nil, 400, "dueAt: want a time"},
		{"POST", "/q/a?priority=4294967296", "x", nil, 400, "priority: want a whole number from -128 to 4294967295"},
		{"POST", "/q/a?maxAttempts=-1", "x", nil, 400, "maxAttempts: want a whole number"},
		{"POST", "/q/a?retryDelays=1s,x", "x", nil, 400, "retryDelays[1]: want a duration"},
		{"POST", "/q/a?again=1", "x", nil, 400, "again: want true or false"},
		{"POST", "/q/a?requestId=a", "x", []string{"Belfry-Request-Id", "b"}, 400, "requestId: it differs from the header"},
		{"POST", "/q/a;b", "x", nil, 400, "queue: only letters"},
		{"POST", "/q/", "x", nil, 400, "queue: a queue's name is required"},
		{"POST", "/q/a/b/c", "x", nil, 400, "queue: want `name` or `namespace/name`"},
		{"POST", "/q/a%2F..", "x", nil, 400, "queue: want"},
		{"POST", "/q/a", strings.Repeat("x", 1<<20+1), nil, 400, "data: 1048577 bytes; the limit is 1048576"},
		{"POST", "/q/a", strings.Repeat("x", 9<<20), nil, 400, "request: more than 8388608 bytes, which is the limit"},
		{"POST", "/q/a", "x", []string{"Content-Encoding", "gzip"}, 400, "Content-Encoding: gzip is not taken here"},
		{"GET", "/q/a?wait=2m", "", nil, 400, "wait: 2m is out of range: 0s to 1m"},
		{"GET", "/q/a?delay=1s", "", nil, 400, "delay: unknown parameter"},
		{"GET", "/q/a?ttr=0", "", nil, 400, "ttr: 0s is out of range"},
		{"DELETE", "/q/a", "", nil, 405, "DELETE is not allowed here; use GET, POST"},
	} {
		got := s.send(c.method, c.path, c.body, c.headers...)
		if got.status != c.status || !strings.Contains(got.body, c.want) ||
			!strings.Contains(got.body, "google.rpc.ErrorInfo") {
			t.Errorf("%s %s: %d %s\nwant %d and %s", c.method, c.path, got.status, got.body, c.status, c.want)
		}
	}
	s.post("/q/a", "still here")
	if got := s.send(http.MethodHead, "/q/a", ""); got.status != http.StatusMethodNotAllowed {
		t.Errorf("HEAD: %d", got.status)
	}
	if got := s.send(http.MethodGet, "/q/a", ""); got.body != "still here" {
		t.Errorf("HEAD took the job: %q", got.body)
	}
}

// TestTooLargeRequest is refused in the same words on every path.
func TestTooLargeRequest(t *testing.T) {
	s := serve(t)
	large := `{"queue":"a","text":"` + strings.Repeat("x", 9<<20) + `"}`
	for _, path := range []string{"/q/a", "/v1/put", "/belfry.v1.QueueService/Put"} {
		got := s.send(http.MethodPost, path, large)
		if got.status != http.StatusBadRequest ||
			!strings.Contains(got.body, `"message":"request: more than 8388608 bytes, which is the limit"`) {
			t.Errorf("%s: %d %.300s", path, got.status, got.body)
		}
	}
}

// TestDocsRawParameters: docs/clients.md names every parameter.
func TestDocsRawParameters(t *testing.T) {
	page, err := os.ReadFile("../docs/clients.md")
	if err != nil {
		t.Fatal(err)
	}
	for call, parameters := range map[string][]parameter{
		"POST": putParameters(&belfryv1.PutRequest{}), "GET": reserveParameters(&belfryv1.ReserveRequest{}),
	} {
		want := []string{"requestId"}
		for _, p := range parameters {
			want = append(want, p.name)
		}
		_, row, _ := strings.Cut(string(page), "\n| `"+call+" /q/QUEUE` |")
		row, _, _ = strings.Cut(row, "\n")
		var got []string
		for _, m := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(row, -1) {
			got = append(got, m[1])
		}
		slices.Sort(want)
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-server +page):\n%s", call, diff)
		}
	}
}

func TestRawParameters(t *testing.T) {
	req := &belfryv1.PutRequest{}
	const query = "id=a+b&delay=30m&ttr=5&ttl=1d&priority=-3&maxAttempts=0&retryDelays=0s,+2m,10m&again=true&requestId=r"
	r := &http.Request{URL: &url.URL{RawQuery: query}}
	requestID, err := readQuery(r, putParameters(req))
	if err != nil || requestID != "r" {
		t.Fatalf("%q, %v", requestID, err)
	}
	priority, attempts := int64(-3), uint32(0)
	want := &belfryv1.PutRequest{
		Id: "a b", When: &belfryv1.PutRequest_Delay{Delay: durationpb.New(1800e9)}, Ttr: durationpb.New(5e9),
		Ttl:      durationpb.New(86400e9),
		Priority: &priority, MaxAttempts: &attempts, Again: true,
		RetryDelays: []*durationpb.Duration{durationpb.New(0), durationpb.New(120e9), durationpb.New(600e9)},
	}
	if diff := cmp.Diff(want, req, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

func TestRawRequestIDMakesRepeatsSafe(t *testing.T) {
	s := serve(t)
	first := s.send(http.MethodPost, "/q/a", "x", "Belfry-Request-Id", "r-1")
	again := s.send(http.MethodPost, "/q/a?requestId=r-1", "x")
	if field(t, first.body, "id") != field(t, again.body, "id") || again.status != 200 {
		t.Errorf("%s%s", first.body, again.body)
	}
}

// deafWriter is the way to a client that has gone.
type deafWriter struct{ *httptest.ResponseRecorder }

func (deafWriter) Write([]byte) (int, error) { return 0, net.ErrClosed }

// TestRawReserveWhoseClientHasGone: the job goes to the next, unless the client may repeat the
// call.
func TestRawReserveWhoseClientHasGone(t *testing.T) {
	for id, want := range map[string]int{"": http.StatusOK, "r-1": http.StatusNoContent} {
		t.Run("request id "+id, func(t *testing.T) {
			s := serve(t)
			s.send(http.MethodPost, "/q/a", "x")
			lost := deafWriter{httptest.NewRecorder()}
			if err := s.server.handler.rawReserve(lost,
				httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/q/a?requestId="+id, nil), "a"); err != nil {
				t.Fatal(err)
			}
			if next := s.send(http.MethodGet, "/q/a", ""); next.status != want {
				t.Errorf("the next was answered %d %s", next.status, next.body)
			}
			if id == "" {
				return
			}
			again := s.send(http.MethodGet, "/q/a?requestId="+id, "")
			if lease := lost.Header().Get("Belfry-Lease"); lease == "" || again.header.Get("Belfry-Lease") != lease {
				t.Errorf("the repeat got %v, want %s", again.header, lease)
			}
		})
	}
}

func TestHeaderText(t *testing.T) {
	for text, want := range map[string]string{
		"plain-1": "plain-1", "a b": "a%20b", "100%": "100%25", "é": "%C3%A9", "x\r\nEvil: 1": "x%0D%0AEvil:%201", "": "",
	} {
		got := headerText(text)
		if back, err := url.PathUnescape(got); got != want || err != nil || back != text {
			t.Errorf("headerText(%q) = %q, which reads back as %q, %v", text, got, back, err)
		}
	}
}

func FuzzReadQuery(f *testing.F) {
	f.Add("delay=30m&id=order-42&retryDelays=0s,2m")
	f.Add("dueAt=2026-11-21T09:30:00Z&again=true&priority=-128")
	f.Add("delay=%zz&&&=;")
	f.Add("id=%ff")
	f.Add("dueAt=0000-01-01T0:00:00Z")
	f.Fuzz(func(t *testing.T, query string) {
		req := &belfryv1.PutRequest{}
		r := &http.Request{URL: &url.URL{RawQuery: query}, Header: http.Header{}}
		requestID, err := readQuery(r, putParameters(req))
		if err != nil {
			if f := fault.Of(err); f.Reason != belfryv1.Reason_REASON_INVALID || f.Field == "" {
				t.Fatalf("%q: %v", query, err)
			}
			return
		}
		// What was read can be said in JSON too, and means the same.
		req.RequestId = requestID
		text, err := codec.JSON().Marshal(req)
		if err != nil {
			t.Fatal(err)
		}
		again := &belfryv1.PutRequest{}
		if err := codec.JSON().Unmarshal(text, again); err != nil {
			t.Fatalf("%q became %s: %v", query, text, err)
		}
		if diff := cmp.Diff(req, again, protocmp.Transform()); diff != "" {
			t.Fatalf("%q:\n%s", query, diff)
		}
	})
}
