package rpc

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// request sends a request on a connection and returns the status of the answer, 0 if there is none.
func request(t *testing.T, conn net.Conn, text string) int {
	t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		return 0
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0
	}
	defer res.Body.Close()
	if _, err := io.ReadAll(res.Body); err != nil {
		t.Error(err)
	}
	return res.StatusCode
}

const livez = "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"

// TestUnauthenticatedConnectionsMakeRoom: connections whose callers have shown no token are closed
// first, even with calls under way. A connection whose caller is authenticated stays. Both hold on
// both versions of HTTP.
func TestUnauthenticatedConnectionsMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 10
		tokenStore := newTokenMemory()
		s, port := servePipes(t, func(cfg *Config) { cfg.Authenticator, cfg.ConnectionsMax = tokenStore, most })
		token, _ := tokenStore.make(t, "put,consume:a")
		ask := func(head, body string) int {
			conn, err := port.DialContext(t.Context(), "", "")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close() })
			return request(t, conn,
				fmt.Sprintf("%s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", head, token,
					len(body), body))
		}
		const poll = `{"queues":["a"],"wait":"1m"}`
		for _, path := range []string{"/v1/put", "/livez", "/grpc.health.v1.Health/Check"} {
			for range most {
				port.read(t, 0).ask("POST", path, "{}", "content-type", "application/json")
			}
			synctest.Wait()
		}
		two := port.read(t, 0)
		two.ask("POST", "/v1/reserve", poll, "content-type", "application/json", "authorization", "Bearer "+token)
		one := make(chan int, 1)
		go func() { one <- ask("POST /v1/reserve", poll) }()
		synctest.Wait()
		for range 2 * most {
			port.read(t, 0).ask("GET", "/livez", "")
			synctest.Wait()
			if status := ask("GET /livez", ""); status != http.StatusOK {
				t.Fatalf("/livez is answered %d", status)
			}
			if status := ask("POST /v1/put", `{"queue":"b"}`); status != http.StatusForbidden {
				t.Fatalf("a put with a token is answered %d", status)
			}
		}
		if n := s.node.ParkedPolls(); n != 2 {
			t.Errorf("%d polls wait, want 2", n)
		}
		began := time.Now()
		two.allow(10_000)
		for range 2 {
			if status := ask("POST /v1/put", `{"queue":"a"}`); status != http.StatusOK {
				t.Errorf("the put that ends a poll is answered %d", status)
			}
		}
		two.wantEnd(began, "whole", 0)
		if status := <-one; status != http.StatusOK {
			t.Errorf("the poll over HTTP/1 is answered %d", status)
		}
	})
}

// TestTooManyConnections: those that say nothing, and those that have said nothing for longest,
// make room; one with a call does not.
func TestTooManyConnections(t *testing.T) {
	s := serve(t, func(cfg *Config) { cfg.ConnectionsMax = 10 })
	dial := func() net.Conn { return s.raw("") }
	poll, answer := dial(), make(chan int)
	const body = `{"queues":["a"],"wait":"30s"}`
	go func() {
		answer <- request(t, poll,
			fmt.Sprintf("POST /v1/reserve HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body))
	}()
	s.await("a parked poll", func() bool { return s.node.ParkedPolls() == 1 })
	first, idle := dial(), dial()
	if request(t, first, livez) != 200 || request(t, idle, livez) != 200 || request(t, first, livez) != 200 {
		t.Fatal("there is no answer")
	}
	for range 50 {
		if request(t, dial(), livez) != 200 {
			t.Fatal("a newcomer is not answered")
		}
	}
	for _, conn := range []net.Conn{first, idle} {
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("a connection without a call was not closed: %v", err)
		}
	}
	if got := s.send(http.MethodGet, "/metrics", "").body; !strings.Contains(got,
		"\nbelfry_client_connections_closed_total 44\n") || !strings.Contains(got, "\nbelfry_client_connections 10\n") {
		t.Errorf("not 44 connections were closed for others, that of this call among those, or not 10 are left:\n%s", got)
	}
	if got := strings.Count(s.log.String(), "too many connections"); got != 1 {
		t.Errorf("the log says so %d times:\n%s", got, s.log)
	}
	s.server.Drain()
	if got := <-answer; got != 200 {
		t.Errorf("the call that waited was answered with %d", got)
	}
}

// TestLeftoverOfABody: a body that no handler wants, and that does not come, keeps neither the
// answer nor the connection.
func TestLeftoverOfABody(t *testing.T) {
	s := serve(t, func(cfg *Config) { cfg.Authenticator = newTokenMemory() })
	for _, path := range []string{"/v1/put", "/livez", "/nothing"} {
		conn := s.raw("POST " + path + " HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
		if text, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(text), "HTTP/1.1 ") {
			t.Errorf("%s: %q, %v; want an answer and the end", path, text, err)
		}
	}
}

// TestBounded: a server that is not a Server bounds its connections alike, however long it waits
// for each.
func TestBounded(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	const most = 2
	s := &http.Server{Handler: http.NotFoundHandler()} //nolint:gosec // no client is cut off for being slow
	served := make(chan error, 1)
	go func() { served <- ServeOn(s, Bounded(listener, s, most), nil) }()
	defer func() {
		if err := errors.Join(s.Close(), <-served); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}()
	var conns []net.Conn
	for range most + 1 {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conns = append(conns, conn)
	}
	if _, err := conns[0].Read(make([]byte, 1)); err == nil { // without a bound it waits for ever
		t.Error("a connection that said nothing was answered")
	}
	if _, err := fmt.Fprint(conns[most], "GET / HTTP/1.0\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if answer, err := io.ReadAll(conns[most]); err != nil || !strings.Contains(string(answer), "404") {
		t.Errorf("the last: %q, %v", answer, err)
	}
}
