package rpc

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
)

// lenientCall is a call as people and libraries make it, and the answer.
type lenientCall struct {
	name, method, path, body, contentType string
	status                                int
	want                                  []string
}

// lenientCalls are made in this order to one server.
func lenientCalls() []lenientCall {
	return []lenientCall{
		{"curl -d without a header", "POST", "/v1/put", `{"queue":"a","text":"hi"}`, "application/x-www-form-urlencoded", 200,
			[]string{`"created":true`}},
		{"no content type", "POST", "/v1/put", `{"queue":"a","text":"hi"}`, "", 200, []string{`"created":true`}},
		{"curl --json", "POST", "/v1/put", `{"queue":"a"}`, "application/json", 200, []string{`"state":"READY"`}},
		{"charset", "POST", "/v1/put", `{"queue":"a"}`, "application/json; charset=utf-8", 200, []string{`"created":true`}},
		{"charset in capitals", "POST", "/v1/put", `{"queue":"a"}`, "application/json; charset=UTF-8", 200,
			[]string{`"created":true`}},
		{"fetch with a string", "POST", "/v1/put", `{"queue":"a"}`, "text/plain;charset=UTF-8", 200,
			[]string{`"created":true`}},
		{"the long path", "POST", "/belfry.v1.QueueService/Put", `{"queue":"a"}`, "application/x-www-form-urlencoded", 200,
			[]string{`"created":true`}},
		{"a typo", "POST", "/v1/put", `{"queue":"a","dealy":"300s"}`, "", 400,
			[]string{`"code":"invalid_argument"`, `dealy: unknown field; did you mean \"delay\"?`, `"reason":"INVALID"`,
				`"field":"dealy"`}},
		{"5m", "POST", "/v1/put", `{"queue":"a","delay":"5m"}`, "", 200, []string{`"state":"DELAYED"`}},
		{"5", "POST", "/v1/put", `{"queue":"a","delay":5}`, "", 200, []string{`"state":"DELAYED"`}},
		{"1h30m", "POST", "/v1/put", `{"queue":"a","delay":"1h30m"}`, "", 200, []string{`"state":"DELAYED"`}},
		{"text that looks like base64", "POST", "/v1/put", `{"queue":"b64","text":"order123"}`, "", 200,
			[]string{`"created":true`}},
		{"and comes back as text", "POST", "/v1/reserve", `{"queues":["b64"]}`, "", 200,
			[]string{`"text":"order123"`, `"attempt":1`, `"fence":"`}},
		{"JSON in text keeps its bytes", "POST", "/v1/put", `{"queue":"json","text":"{\"b\":9007199254740993, \"a\":1}"}`, "",
			200, nil},
		{"and comes back the same", "POST", "/v1/reserve", `{"queues":["json"]}`, "", 200,
			[]string{`"text":"{\"b\":9007199254740993, \"a\":1}"`}},
		{"bytes", "POST", "/v1/put", `{"queue":"bin","data":"//4="}`, "", 200, nil},
		{"come back as data", "POST", "/v1/reserve", `{"queues":["bin"]}`, "", 200, []string{`"data":"//4="`}},
		{"an empty reserve has its zero values", "POST", "/v1/reserve", `{"queues":["none"]}`, "", 200,
			[]string{`"jobs":[]`}},
		{"an empty POST is {}", "POST", "/v1/list-queues", "", "", 200, []string{`"queues":[`}},
		{"an empty POST with a form type is {}", "POST", "/v1/get-cluster", "", "application/x-www-form-urlencoded", 200,
			[]string{`"clusterId":"c1"`}},
		{"an empty POST misses its field", "POST", "/v1/put", "", "", 400, []string{`queue: a queue's name is required`}},
		{"an enum without prefix", "POST", "/v1/list", `{"queue":"a","state":"DELAYED"}`, "", 200,
			[]string{`"state":"DELAYED"`}},
		{"an enum with prefix", "POST", "/v1/list", `{"queue":"a","state":"JOB_STATE_READY"}`, "", 200,
			[]string{`"state":"READY"`}},
		{"a wrong method", "POST", "/belfry.v1.QueueService/Putt", `{}`, "", 501,
			[]string{`"code":"unimplemented"`, "/v1/put", "/v1/reserve", `"reason":"UNIMPLEMENTED"`}},
		{"a wrong short path", "POST", "/v1/putt", `{}`, "", 501, []string{`did you mean /v1/put?`}},
		{"the word of another queue", "POST", "/v1/pop", `{}`, "", 501, []string{`did you mean /v1/reserve?`}},
		{"another word of another queue", "POST", "/v1/Enqueue", `{}`, "", 501, []string{`did you mean /v1/put?`}},
		{"no body is an empty one", "POST", "/v1/put", `{"queue":"nobody","id":"n"}`, "", 200, []string{`"created":true`}},
		{"as is an empty text", "POST", "/v1/put", `{"queue":"nobody","id":"n","text":""}`, "", 200,
			[]string{`"created":false`}},
		{"an id like the server's", "POST", "/v1/put", `{"queue":"a","id":"2026-11"}`, "", 400,
			[]string{`id: ids of the form DIGITS-DIGITS are the server's own`, `\"job-2026-11\"`}},
		{"a wrong service", "POST", "/belfry.v2.QueueService/Put", `{}`, "", 501, []string{`unimplemented`}},
		{"the root", "GET", "/", "", "", 501, []string{`unimplemented`}},
		{"PUT", "PUT", "/v1/put", `{}`, "", 405, []string{`PUT is not allowed here; use POST`}},
		{"GET of a change", "GET", "/v1/put", "", "", 405, []string{`GET is not allowed here`}},
		{"GET of a read", "GET", "/v1/list-queues", "", "", 200, []string{`"queues":[`}},
		{"GET with a message", "GET", "/v1/get-queue?encoding=json&message=" + url.QueryEscape(`{"queue":"a"}`), "", "", 200,
			[]string{`"name":"a"`}},
		{"XML", "POST", "/v1/put", "<put/>", "application/xml", 415,
			[]string{`Content-Type: application/xml is not taken here`, `"reason":"INVALID"`}},
		{"a stream over HTTP/1", "POST", "/belfry.v1.QueueService/Work", "", "application/connect+json", 505,
			[]string{"needs HTTP/2"}},
	}
}

// TestLenientInput checks the input of people with curl: requests that stock Connect answers badly
// get a good answer.
func TestLenientInput(t *testing.T) {
	s := serve(t)
	for _, c := range lenientCalls() {
		t.Run(c.name, func(t *testing.T) {
			s.t = t
			var headers []string
			if c.contentType != "" {
				headers = []string{"Content-Type", c.contentType}
			}
			got := s.send(c.method, c.path, c.body, headers...)
			if got.status != c.status {
				t.Errorf("status %d; want %d: %s", got.status, c.status, got.body)
			}
			for _, want := range c.want {
				if !strings.Contains(got.body, want) {
					t.Errorf("%s is not in %s", want, got.body)
				}
			}
			if !json.Valid([]byte(got.body)) || !strings.HasSuffix(got.body, "\n") || strings.Contains(got.body, `": `) &&
				got.status == 200 {
				t.Errorf("not compact JSON that ends in a newline: %q", got.body)
			}
			if got.header.Get("Belfry-Served-By") != "n1" || got.header.Get("X-Request-Id") == "" {
				t.Errorf("headers: %v", got.header)
			}
		})
	}
}

// TestDateIsTheServersTime: clients make their request ids by it, and shards hold those against a
// clock that need not be the machine's.
func TestDateIsTheServersTime(t *testing.T) {
	s := serve(t, func(cfg *Config) { cfg.Now = noon })
	if got := s.send("GET", "/livez", "").header.Values("Date"); len(got) != 1 ||
		got[0] != "Sat, 21 Nov 2026 12:00:00 GMT" {
		t.Errorf("at noon the Date is %q", got)
	}
}

func TestOutputIsDeterministic(t *testing.T) {
	s := serve(t)
	s.post("/v1/put", `{"queue":"a","id":"x","delay":"1h","headers":{"b":"2","a":"1","c":"3"}}`)
	first := s.post("/v1/list", `{"queue":"a"}`)
	job, _, _ := strings.Cut(first.body, `"witnesses"`)
	for range 20 {
		again, _, _ := strings.Cut(s.post("/v1/list", `{"queue":"a"}`).body, `"witnesses"`)
		if again != job {
			t.Fatalf("%s\n%s", job, again)
		}
	}
	if !strings.Contains(job, `"headers":{"a":"1","b":"2","c":"3"}`) {
		t.Error(job)
	}
}

func TestCorrelationHeader(t *testing.T) {
	s := serve(t)
	if got := s.send("GET", "/livez", "", "X-Request-Id", "abc-1").header.Get("X-Request-Id"); got != "abc-1" {
		t.Errorf("the caller's id became %q", got)
	}
	for _, bad := range []string{strings.Repeat("a", 200), "a b", "é"} {
		if got := s.send("GET", "/livez", "", "X-Request-Id", bad).header.Get("X-Request-Id"); got == bad || len(got) != 16 {
			t.Errorf("%q became %q", bad, got)
		}
	}
}

func TestRequestIDHeader(t *testing.T) {
	s := serve(t)
	put := func(body string) answered {
		return s.send(http.MethodPost, "/v1/put", body, "Belfry-Request-Id", "r-1")
	}
	first := put(`{"queue":"a","text":"x"}`)
	again := put(`{"queue":"a","text":"x"}`)
	if id := field(t, first.body, "id"); id == "" || field(t, again.body, "id") != id {
		t.Errorf("a repeat made another job:\n%s%s", first.body, again.body)
	}
	if other := put(`{"queue":"a","text":"y"}`); other.status != 400 ||
		!strings.Contains(other.body, "requestId: it was used before with other content") {
		t.Errorf("%d %s", other.status, other.body)
	}
	if both := put(`{"queue":"a","text":"x","requestId":"r-2"}`); both.status != 400 ||
		!strings.Contains(both.body, "differs from the header") {
		t.Errorf("%d %s", both.status, both.body)
	}
	if read := s.send(http.MethodPost, "/v1/get", `{"queue":"a","id":"0-1"}`, "Belfry-Request-Id",
		"r-1"); read.status != 200 {
		t.Errorf("a read with the header: %d %s", read.status, read.body)
	}
}

// TestPagesWithTheirOwnNameForLoopback: a page whose name leads to this machine is of the same
// origin, and reaches nothing. A caller with a token is no page.
func TestPagesWithTheirOwnNameForLoopback(t *testing.T) {
	tokenStore := newTokenMemory()
	for _, c := range []struct {
		name    string
		change  func(*Config)
		refused bool
	}{
		{"on loopback", func(cfg *Config) { cfg.Local, cfg.LocalName = true, "Own.example" }, true},
		{"beyond", func(*Config) {}, false},
		{"with tokens", func(cfg *Config) {
			cfg.Local, cfg.Authenticator, cfg.Catalog = true, tokenStore, tokenStore
		}, false},
	} {
		s := serve(t, c.change)
		for host, page := range map[string]bool{
			"evil.example:7400": true, "evil.example": true, "localhost.evil.example": true, "xlocalhost": true,
			"own.example.evil": true, "evil.own.example": true, "127.0.0.1.evil.example:1": true, "[evil]": true,
			"127.0.0.1:7400": false, "localhost:7400": false, "LOCALHOST": false, "[::1]:7400": false, "own.example:7400": false,
			"localhost.:7400": false, "ip6-localhost": false, "host.docker.internal:7400": false, "::1": false,
			"10.0.0.5": false, "app.localhost:80": false,
		} {
			for _, path := range []string{"/v1/put", "/q/a", "/metrics"} {
				out := httptest.NewRecorder()
				r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1"+path,
					strings.NewReader(`{"queue":"a"}`))
				r.Host = host
				s.server.Handler().ServeHTTP(out, r)
				said := strings.Contains(out.Body.String(), "called by an address, as localhost, or as")
				if said != (page && c.refused) || said && out.Code != http.StatusForbidden {
					t.Errorf("%s, %s for %s: %d %s", c.name, path, host, out.Code, out.Body)
				}
			}
		}
	}
}

// field returns a member of a JSON object as a text.
func field(t *testing.T, body, name string) string {
	t.Helper()
	var members map[string]any
	if err := json.Unmarshal([]byte(body), &members); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	text, _ := members[name].(string)
	return text
}

// TestPagesOfOtherOriginsAreRefused: a form needs no permission of the browser to post, and an
// image none to get.
func TestPagesOfOtherOriginsAreRefused(t *testing.T) {
	s := serve(t)
	for _, c := range []struct {
		name, method, path string
		headers            []string
		status             int
	}{
		{"a form on another page", "POST", "/v1/put",
			[]string{"Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site"}, 403},
		{"an old browser", "POST", "/v1/put", []string{"Origin", "https://evil.example"}, 403},
		{"an image on another page", "GET", "/q/a", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"our own page", "POST", "/v1/put", []string{"Origin", s.url, "Sec-Fetch-Site", "same-origin"}, 200},
		{"the address bar", "GET", "/v1/list-queues", []string{"Sec-Fetch-Site", "none"}, 200},
		{"no browser", "POST", "/v1/put", nil, 200},
	} {
		got := s.send(c.method, c.path, `{"queue":"a"}`, c.headers...)
		if c.method == "GET" {
			got = s.send(c.method, c.path, "", c.headers...)
		}
		if got.status != c.status {
			t.Errorf("%s: %d %s", c.name, got.status, got.body)
		}
	}
	if got := s.send("GET", "/v1/get-queue?encoding=json&message=%7B%22queue%22%3A%22a%22%7D",
		""); !strings.Contains(got.body, `"reserved":0`) {
		t.Errorf("a refused page took a job: %s", got.body)
	}
}

// noon is the serving node's time in the tests that need a fixed one.
func noon() time.Time { return time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC) }
