package rpc

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"
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

// lmstfyInMemory returns a server whose requests are made without connections, for bubbles of
// synctest.
func lmstfyInMemory(t *testing.T, change ...func(*Config)) func(method, path, body string, headers ...string) answered {
	t.Helper()
	s := newServed(t, append(change, func(cfg *Config) { cfg.Lmstfy = true })...)
	return func(method, path, body string, headers ...string) answered {
		r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
		r.Host = "localhost"
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		w := httptest.NewRecorder()
		s.server.lmstfy.Handler.ServeHTTP(w, r)
		return answered{status: w.Code, header: w.Header(), body: w.Body.String()}
	}
}

// TestLmstfyDeadLetters: a job whose tries are used up is a dead letter. It stays beyond its TTL
// until it is respawned or deleted.
func TestLmstfyDeadLetters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		send := lmstfyInMemory(t)
		expect := func(method, path string, status int, want string) {
			t.Helper()
			if got := send(method, path, ""); got.status != status || got.body != want {
				t.Errorf("%s %s: %d %s, want %d %s", method, path, got.status, got.body, status, want)
			}
		}
		letters := func(n int, head string) {
			t.Helper()
			expect("GET", "/api/ns/q/deadletter", 200, fmt.Sprintf(
				`{"deadletter_head":%q,"deadletter_size":%d,"namespace":"ns","queue":"q"}`, head, n))
		}
		letters(0, "")
		id := jobID(t, send("PUT", "/api/ns/q?ttl=5&tries=2", "x"))
		for range 2 {
			letters(0, "")
			if got := jobID(t, send("GET", "/api/ns/q?ttr=1", "")); got != id {
				t.Errorf("consumed %s, want %s", got, id)
			}
			time.Sleep(1500 * time.Millisecond)
		}
		expect("GET", "/api/ns/q?ttr=1", 404, `{"msg":"no job available"}`)
		time.Sleep(time.Hour)
		letters(1, id)
		expect("GET", "/api/ns/q/size", 200, `{"namespace":"ns","queue":"q","size":0}`)
		expect("PUT", "/api/ns/q/deadletter?limit=5&ttl=10", 200, `{"count":1,"msg":"respawned"}`)
		letters(0, "")
		for range 2 {
			if got := jobID(t, send("GET", "/api/ns/q?ttr=1", "")); got != id {
				t.Errorf("consumed %s, want %s", got, id)
			}
			time.Sleep(1500 * time.Millisecond)
		}
		letters(1, id)
		expect("DELETE", "/api/ns/q/deadletter?limit=5", 204, "")
		letters(0, "")
		expect("GET", "/api/ns/q/job/"+id, 404, `{"error":"job not found"}`)
	})
}

// TestLmstfyTimes: no job is early, and none is handed out after its TTL.
func TestLmstfyTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		send := lmstfyInMemory(t)
		id := jobID(t, send("PUT", "/api/ns/q?delay=2&ttl=60", "x"))
		began := time.Now()
		got := send("GET", "/api/ns/p,q?timeout=10", "")
		if took := time.Since(began); jobID(t, got) != id || took < 2*time.Second || took > 3*time.Second {
			t.Errorf("after %v: %s", took, got.body)
		}
		send("PUT", "/api/ns/q?ttl=5", "y")
		time.Sleep(6 * time.Second)
		if got := send("GET", "/api/ns/q", ""); got.status != 404 {
			t.Errorf("after its TTL: %s", got.body)
		}
	})
}

// TestLmstfyLateConsumer: a DELETE ends the job of another consumer, and so does a PUT of the job.
func TestLmstfyLateConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		send := lmstfyInMemory(t)
		id := jobID(t, send("PUT", "/api/ns/q?tries=9", "x"))
		send("GET", "/api/ns/q?ttr=1", "")
		time.Sleep(2 * time.Second)
		if got := jobID(t, send("GET", "/api/ns/q?ttr=60", "")); got != id {
			t.Errorf("the second consumer has %s", got)
		}
		if got := send("DELETE", "/api/ns/q/job/"+id, ""); got.status != 204 {
			t.Error(got.status)
		}
		time.Sleep(2 * time.Minute)
		if got := send("GET", "/api/ns/q", ""); got.status != 404 {
			t.Errorf("it came again: %s", got.body)
		}
		id = jobID(t, send("PUT", "/api/ns/q", "x"))
		send("GET", "/api/ns/q", "")
		next := jobID(t, send("PUT", "/api/ns/q/job/"+id+"?ttl=10", "y"))
		if got := send("GET", "/api/ns/q", ""); next == id || jobID(t, got) != next ||
			!strings.Contains(got.body, `"data":"eQ=="`) || !strings.Contains(got.body, `"ttl":10}`) {
			t.Errorf("published anew as %s: %s", next, got.body)
		}
		if got := send("GET", "/api/ns/q/job/"+id, ""); got.status != 404 {
			t.Errorf("the earlier job: %s", got.body)
		}
	})
}

// TestLmstfyStops: a wait ends without a job when the server stops, and later ones are refused.
func TestLmstfyStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServed(t, func(cfg *Config) { cfg.Lmstfy = true })
		consume := func() int {
			w := httptest.NewRecorder()
			r := httptest.NewRequestWithContext(t.Context(), "GET", "/api/ns/q?timeout=600", http.NoBody)
			s.server.lmstfy.Handler.ServeHTTP(w, r)
			return w.Code
		}
		ended := make(chan int)
		go func() { ended <- consume() }()
		time.Sleep(30 * time.Second)
		s.server.Drain()
		if got := <-ended; got != 404 {
			t.Errorf("the wait ended with %d", got)
		}
		if got := consume(); got != 503 {
			t.Errorf("a later wait ended with %d", got)
		}
	})
}
