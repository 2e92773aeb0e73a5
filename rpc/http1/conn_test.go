package http1

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// echo is a handler that answers with the body of the request. /v1/reserve waits for the channel.
// net/http gets a request with the Host "stranger" or the body "refuse".
type echo struct {
	wait chan struct{}
	// gone counts the calls whose client left. idle and admitted count the calls of these methods.
	gone, idle, admitted atomic.Int64
	// parked is called at the end of a wait, if it is not nil.
	parked func(c *Conn)
}

// Admit implements Handler.
func (e *echo) Admit(c *Conn) bool {
	e.admitted.Add(1)
	return string(c.Host()) != "stranger"
}

// Idle implements Handler.
func (e *echo) Idle(*Conn) { e.idle.Add(1) }

// Serve implements Handler.
func (e *echo) Serve(c *Conn) bool {
	body := string(c.Body())
	switch {
	case body == "refuse":
		return false
	case body == "panic":
		panic("a bug")
	case testPaths()[c.Path()] == "/v1/reserve":
		c.Park()
		select {
		case <-e.wait:
		case <-c.Context().Done():
			e.gone.Add(1)
		}
		if e.parked != nil {
			e.parked(c)
		}
	}
	out, end := c.Out(), ""
	if c.Closes() {
		end = "Connection: close\r\n"
	}
	*out = fmt.Appendf(*out, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n%s\r\n%s", len(body), end, body)
	return true
}

// pipes is a listener of connections in memory, or of a socket if it has one.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

// Accept implements net.Listener.
func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (p *pipes) Close() error {
	close(p.closed)
	return nil
}

// Addr implements net.Listener.
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// rig is a server with net/http behind it, which answers with "net/http" and the body.
type rig struct {
	*echo
	server *Server
	http   *http.Server
	pipes  *pipes
	held   atomic.Int64
	full   atomic.Bool
	served chan error
}

// newRig returns a rig on a listener, nil for pipes.
func newRig(t *testing.T, l net.Listener, change ...func(*Config)) *rig {
	t.Helper()
	r := &rig{echo: &echo{wait: make(chan struct{})}, served: make(chan error, 1)}
	if l == nil {
		r.pipes = &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
		l = r.pipes
	}
	cfg := Config{
		Handler: r.echo, Paths: testPaths(), Headers: testHeaders(), Ignored: testIgnored(),
		HeadWait: 10 * time.Second, IdleWait: 2 * time.Minute, ResponseWait: time.Minute,
		Hold: func(bytes int64) bool {
			if r.full.Load() {
				return false
			}
			r.held.Add(bytes)
			return true
		},
		Release: func(bytes int64) { r.held.Add(-bytes) }, Logger: slog.New(slog.DiscardHandler),
	}
	for _, f := range change {
		f(&cfg)
	}
	r.server = New(cfg)
	r.http = &http.Server{
		ReadHeaderTimeout: 10 * time.Second, TLSConfig: cfg.TLS,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			body, _ := io.ReadAll(req.Body)
			if req.TLS != nil {
				_, _ = fmt.Fprint(w, "TLS ")
			}
			_, _ = fmt.Fprintf(w, "%d net/http %s", req.ProtoMajor, body)
		}),
	}
	virtual := r.server.Listen(l)
	go func() { r.served <- r.http.Serve(virtual) }()
	return r
}

// stop stops the rig and checks that no bytes are held.
func (r *rig) stop(t *testing.T) {
	t.Helper()
	r.server.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := errors.Join(r.http.Shutdown(ctx), r.server.Wait(ctx)); err != nil {
		t.Error(err)
	}
	if err := <-r.served; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
	if held := r.held.Load(); held != 0 {
		t.Errorf("%d bytes are held at the end", held)
	}
}

// client is the client's end of a connection.
type client struct {
	net.Conn
	reader *bufio.Reader
}

// dial returns a new connection in memory.
func (r *rig) dial() *client {
	ours, theirs := net.Pipe()
	r.pipes.conns <- theirs
	return &client{ours, bufio.NewReader(ours)}
}

// send sends text in the background.
func (c *client) send(text string) { go func() { _, _ = io.WriteString(c, text) }() }

// want reads one answer.
func (c *client) want(t *testing.T, body string) *http.Response {
	t.Helper()
	res, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		t.Fatalf("want the answer %q, got %v", body, err)
	}
	got, err := io.ReadAll(res.Body)
	if err != nil || string(got) != body {
		t.Fatalf("got %q, %v, want %q", got, err, body)
	}
	return res
}

// wantEnd fails the test unless the server has closed the connection.
func (c *client) wantEnd(t *testing.T) {
	t.Helper()
	if b, err := c.reader.ReadByte(); err == nil {
		t.Fatalf("want the end of the connection, got %q", b)
	}
}

// post returns a request.
func post(path, body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
}

// TestRequests: requests are answered in order, also if they arrive together, in parts or a byte at a
// time. The first foreign one is net/http's, and all after it.
func TestRequests(t *testing.T) {
	large := strings.Repeat("x", bodyBytesMax)
	for name, parts := range map[string][]string{
		"together":   {post("/v1/put", "a") + post("/v1/put", "b") + post("/other", "c") + post("/v1/put", "d")},
		"one by one": {post("/v1/put", "a"), post("/v1/put", "b"), post("/other", "c"), post("/v1/put", "d")},
		"byte by byte": strings.Split(post("/v1/put", "a")+post("/v1/put", "b")+post("/other", "c")+
			post("/v1/put", "d"), ""),
		"Serve refuses": {post("/v1/put", "a") + post("/v1/put", "b"), post("/v1/put", "refuse"), post("/v1/put", "d")},
		"Admit refuses": {post("/v1/put", "a") + post("/v1/put", "b"), "POST /v1/put HTTP/1.1\r\nHost: stranger\r\n",
			"Content-Length: 1\r\n\r\nc" + post("/v1/put", "d")},
		"a large body": {post("/v1/put", "a") + post("/v1/put", "b") + post("/v1/put", large) + post("/other", "c") +
			post("/v1/put", "d")},
		"a body too much": {post("/v1/put", "a") + post("/v1/put", "b") + post("/v1/put", large+"x") + post("/v1/put", "d")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, nil)
				c := r.dial()
				c.sendAll(parts)
				c.want(t, "a")
				c.want(t, "b")
				switch name {
				case "a large body":
					c.want(t, large)
					c.want(t, "1 net/http c")
				case "a body too much":
					c.want(t, "1 net/http "+large+"x")
				case "Serve refuses":
					c.want(t, "1 net/http refuse")
				default:
					c.want(t, "1 net/http c")
				}
				c.want(t, "1 net/http d")
				_ = c.Close()
				r.stop(t)
			})
		})
	}
}

// sendAll sends parts one after the other in the background.
func (c *client) sendAll(parts []string) {
	go func() {
		for _, part := range parts {
			_, _ = io.WriteString(c, part)
		}
	}()
}

// TestSlowRequests: net/http waits for the rest of a request that does not arrive in time, and for
// one whose bytes the server may not hold.
func TestSlowRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		whole := post("/v1/put", strings.Repeat("x", 10_000))
		for _, n := range []int{1, 20, len(whole) - 10_000, len(whole) - 1} {
			c := r.dial()
			c.send(whole[:n])
			time.Sleep(slowAfter / 2)
			if synctest.Wait(); r.held.Load() > int64(2*n) {
				t.Errorf("%d bytes are held of %d that arrived", r.held.Load(), n)
			}
			time.Sleep(slowAfter)
			if synctest.Wait(); r.held.Load() != 0 {
				t.Errorf("%d bytes are held for net/http", r.held.Load())
			}
			c.send(whole[n:])
			c.want(t, "1 net/http "+whole[len(whole)-10_000:])
			_ = c.Close()
		}
		r.full.Store(true)
		c := r.dial()
		c.send(whole)
		c.want(t, "1 net/http "+whole[len(whole)-10_000:])
		_ = c.Close()
		r.stop(t)
	})
}

// TestSilentConnections end: new ones soon, idle ones later.
func TestSilentConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		fresh, used := r.dial(), r.dial()
		used.send(post("/v1/put", "a"))
		used.want(t, "a")
		began := time.Now()
		fresh.wantEnd(t)
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("a new connection ended after %v", took)
		}
		used.send(post("/v1/put", "b"))
		used.want(t, "b")
		began = time.Now()
		used.wantEnd(t)
		if took := time.Since(began); took < 110*time.Second || took > 2*time.Minute {
			t.Errorf("an idle connection ended after %v", took)
		}
		r.stop(t)
	})
}

// TestParked: during a wait the connection has no buffers. A request that arrives meanwhile is
// answered afterwards, and a client that leaves ends the wait.
func TestParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.parked = func(c *Conn) {
			if c.in != nil || c.out != nil {
				t.Error("a parked connection has buffers")
			}
		}
		c := r.dial()
		c.sendAll([]string{post("/v1/put", "a") + post("/v1/reserve", "b"), post("/v1/put", "c")})
		c.want(t, "a") // before the poll ends
		time.Sleep(5 * time.Minute)
		r.wait <- struct{}{}
		c.want(t, "b")
		c.want(t, "c")
		c.send(post("/v1/reserve", "d"))
		time.Sleep(time.Hour)
		if r.gone.Load() != 0 {
			t.Error("a client that waits counts as gone")
		}
		_ = c.Close()
		if synctest.Wait(); r.gone.Load() != 1 {
			t.Error("the client left, and the call goes on")
		}
		hasty := r.dial()
		hasty.send(post("/v1/reserve", "e"))
		synctest.Wait()
		_ = hasty.Close()
		time.Sleep(2 * watchAfter)
		if synctest.Wait(); r.gone.Load() != 2 {
			t.Error("the client left at once, and the call goes on")
		}
		r.stop(t)
	})
}

// TestUnreadAnswers: a client that sends requests and reads no answers is not read on, and its
// connection is closed.
func TestUnreadAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		c := r.dial()
		began := time.Now()
		one, sent := post("/v1/put", strings.Repeat("x", 1000)), 0
		for {
			if _, err := io.WriteString(c, one); err != nil {
				break
			}
			sent += len(one)
		}
		if took := time.Since(began); took < time.Minute || took > 62*time.Second || sent > 2*outBytesMax {
			t.Errorf("it ended after %v and %d bytes", took, sent)
		}
		r.stop(t)
	})
}

// TestStop: idle connections are closed. net/http gets those on which nothing was carried out. Calls
// are answered, and their connections end.
func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		idle, fresh, half, busy := r.dial(), r.dial(), r.dial(), r.dial()
		idle.send(post("/v1/put", "a"))
		idle.want(t, "a")
		half.send(post("/v1/put", "c")[:20])
		busy.send(post("/v1/reserve", "d"))
		synctest.Wait()
		r.server.Stop()
		idle.wantEnd(t)
		fresh.send(post("/v1/put", "b"))
		fresh.want(t, "1 net/http b")
		half.send(post("/v1/put", "c")[20:])
		half.want(t, "1 net/http c")
		if err := r.server.Wait(canceled()); !errors.Is(err, context.Canceled) {
			t.Errorf("waiting for a call: %v", err)
		}
		r.wait <- struct{}{}
		if res := busy.want(t, "d"); !res.Close {
			t.Error("the answer does not say that the connection ends")
		}
		busy.wantEnd(t)
		r.stop(t)
	})
}

// canceled returns a context that has ended.
func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// TestClose ends connections and the contexts of calls.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		c, crashes := r.dial(), r.dial()
		crashes.send(post("/v1/put", "panic"))
		crashes.wantEnd(t)
		c.send(post("/v1/reserve", "a"))
		synctest.Wait()
		r.server.Close()
		if synctest.Wait(); r.gone.Load() != 1 {
			t.Error("the call goes on")
		}
		c.wantEnd(t)
		r.stop(t)
	})
}
