package rpc

import (
	"errors"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// serveLmstfy starts a server that also speaks lmstfy's protocol, and returns it with requests going
// to that listener.
func serveLmstfy(t *testing.T, change ...func(*Config)) *served {
	t.Helper()
	s := newServed(t, append(change, func(cfg *Config) { cfg.Lmstfy = true })...)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.server.ServeLmstfy(l) }()
	t.Cleanup(func() {
		if err := s.server.closeAll(); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	s.addr = l.Addr().String()
	s.url = "http://" + s.addr
	return s
}

// asked is one request of a test and its answer. {} in want stands for any number and any id.
type asked struct {
	method, path, body string
	status             int
	want               string
}

// ask makes requests in turn, each with the headers.
func (s *served) ask(headers []string, all ...asked) {
	s.t.Helper()
	varies := regexp.MustCompile(`("job_ids?":)("[0-9]+-[0-9]+"|\["[^]]*\])|("elapsed_ms":)\d+`)
	for _, a := range all {
		got := s.send(a.method, a.path, a.body, headers...)
		text := varies.ReplaceAllString(got.body, "$1$3{}")
		if got.status != a.status || strings.Join(strings.Fields(text), " ") != a.want {
			s.t.Errorf("%s %s: %d %s, want %d %s", a.method, a.path, got.status, text, a.status, a.want)
		}
		if got.header.Get("X-Request-Id") == "" {
			s.t.Errorf("%s %s: no X-Request-Id", a.method, a.path)
		}
	}
}

// jobID returns the id in an answer.
func jobID(t *testing.T, got answered) string {
	t.Helper()
	found := regexp.MustCompile(`"job_id":"([^"]*)"`).FindStringSubmatch(got.body)
	if found == nil {
		t.Fatalf("no job id in %d %s", got.status, got.body)
	}
	return found[1]
}

// TestLmstfyLife publishes a job, consumes it and deletes it.
func TestLmstfyLife(t *testing.T) {
	s := serveLmstfy(t)
	const one = `{"attributes":null,"data":"aGVsbG8=","elapsed_ms":{},"job_id":{},"msg":"new job","namespace":"ns",` +
		`"queue":"q","remain_tries":2,"ttl":60}`
	s.ask(nil,
		asked{"GET", "/api/ns/q", "", 404, `{"msg":"no job available"}`},
		asked{"PUT", "/api/ns/q?ttl=60&tries=3", "hello", 201, `{"job_id":{},"msg":"published"}`},
		asked{"GET", "/api/ns/q/size", "", 200, `{"namespace":"ns","queue":"q","size":1}`})
	got := s.send("GET", "/api/ns/q?ttr=30&timeout=5", "")
	id := jobID(t, got)
	s.ask(nil,
		asked{"GET", "/api/ns/q", "", 404, `{"msg":"no job available"}`},
		asked{"GET", "/api/ns/q/job/" + id, "", 200, strings.Replace(one, `"msg":"new job",`, "", 1)},
		asked{"DELETE", "/api/ns/q/job/" + id, "", 204, ""},
		asked{"DELETE", "/api/ns/q/job/" + id, "", 204, ""},
		asked{"GET", "/api/ns/q/job/" + id, "", 404, `{"error":"job not found"}`})
	got.body = strings.Replace(got.body, `"`+id+`"`, "{}", 1)
	if text := regexp.MustCompile(`("elapsed_ms":)\d+`).ReplaceAllString(got.body, "$1{}"); text != one {
		t.Errorf("consumed %s, want %s", text, one)
	}
}
