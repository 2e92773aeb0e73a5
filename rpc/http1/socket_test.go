package http1

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestSockets is the way of a socket, whose connections wait without a buffer.
func TestSockets(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, l)
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c := &client{conn, bufio.NewReader(conn)}
	large := strings.Repeat("x", bodyBytesMax)
	for _, text := range []string{"a", large, "b"} {
		c.send(post("/v1/put", text))
		c.want(t, text)
	}
	c.send(post("/v1/put", "a") + post("/v1/put", "b") + post("/other", "c"))
	c.want(t, "a")
	c.want(t, "b")
	c.want(t, "1 net/http c")
	_ = c.Close()
	if conn, err = new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	c = &client{conn, bufio.NewReader(conn)}
	c.send(post("/v1/put", "a"))
	c.want(t, "a")
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	c.wantEnd(t)
	_ = c.Close()
	if rawOf(conn) == nil || rawOf(&resumed{Conn: conn}) == nil || rawOf(&client{}) != nil {
		t.Error("the raw connection is not found, or there is one that is none")
	}
	r.stop(t)
}

// TestTLS: requests over TLS are carried out likewise, and net/http knows that they came over TLS.
// Connections of HTTP/2 are net/http's.
func TestTLS(t *testing.T) {
	example := httptest.NewTLSServer(nil) // for its certificate
	defer example.Close()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, l, func(cfg *Config) {
		cfg.TLS = example.TLS.Clone()
		cfg.TLS.NextProtos = []string{"h2", "http/1.1"}
	})
	trust := example.Client().Transport.(*http.Transport).TLSClientConfig
	for _, protocols := range [][]string{nil, {"http/1.1"}} {
		secure := trust.Clone()
		secure.NextProtos, secure.ServerName = protocols, "example.com"
		conn, err := (&tls.Dialer{Config: secure}).DialContext(t.Context(), "tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		c := &client{conn, bufio.NewReader(conn)}
		c.sendAll([]string{post("/v1/put", "a") + post("/v1/put", "b"), post("/other", "c"), post("/v1/put", "d")})
		for _, body := range []string{"a", "b", "TLS 1 net/http c", "TLS 1 net/http d"} {
			c.want(t, body)
		}
		_ = c.Close()
	}
	transport := &http.Transport{TLSClientConfig: trust.Clone(), ForceAttemptHTTP2: true}
	transport.TLSClientConfig.ServerName = "example.com"
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+l.Addr().String()+"/v1/put",
		strings.NewReader("e"))
	if err != nil {
		t.Fatal(err)
	}
	res, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if body, err := io.ReadAll(res.Body); string(body) != "TLS 2 net/http e" || err != nil {
		t.Errorf("%q, %v", body, err)
	}
	transport.CloseIdleConnections()
	plain, err := new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c := &client{plain, bufio.NewReader(plain)}
	c.send(post("/v1/put", "f"))
	if line, err := c.reader.ReadString('\n'); !strings.HasPrefix(line, "HTTP/1.0 400 ") {
		t.Errorf("without TLS: %q, %v", line, err)
	}
	_ = c.Close()
	r.stop(t)
}

// TestResumed returns the bytes that were read before, then those of the connection.
func TestResumed(t *testing.T) {
	ours, theirs := net.Pipe()
	r := resume(ours, []byte("abc"))
	go func() {
		_, _ = io.WriteString(theirs, "def")
		_ = theirs.Close()
	}()
	if got, err := io.ReadAll(r); string(got) != "abcdef" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}
