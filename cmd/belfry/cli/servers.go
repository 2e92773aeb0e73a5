package cli

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
)

// defaultPort is the port of a server that --server names without a scheme and without a port.
const defaultPort = "7400"

// serverList is the servers that --server names. Calls go to one of them, and to the next when that
// one cannot be reached. Any number of goroutines may use it.
type serverList struct {
	mu      sync.Mutex
	urls    []*url.URL // at least one; never changes
	current int
}

// pick returns the server in use, and its index for moveOn.
func (l *serverList) pick() (*url.URL, int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.urls[l.current], l.current
}

// several reports whether there is more than one server.
func (l *serverList) several() bool { return len(l.urls) > 1 }

// moveOn puts the next server in use, unless another call has already left the one of index from.
func (l *serverList) moveOn(from int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current == from {
		l.current = (l.current + 1) % len(l.urls)
	}
}

// leave puts the next server in use.
func (l *serverList) leave() {
	_, at := l.pick()
	l.moveOn(at)
}

// failover sends each request to the server in use. If no connection to it comes about, it sends
// the request to the others in turn: none of it has been sent.
type failover struct {
	servers *serverList
	inner   http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (f *failover) RoundTrip(r *http.Request) (*http.Response, error) {
	body := &heldBody{inner: r.Body}
	if r.Body == nil || r.Body == http.NoBody {
		body = nil
	}
	for left := len(f.servers.urls); ; {
		server, at := f.servers.pick()
		attempt := r.Clone(r.Context())
		attempt.Host, attempt.URL.Scheme, attempt.URL.Host = "", server.Scheme, server.Host
		if body != nil {
			attempt.Body = body
		}
		response, err := f.inner.RoundTrip(attempt)
		left--
		if left > 0 && noConnection(err) && r.Context().Err() == nil {
			f.servers.moveOn(at)
			continue
		}
		if body != nil {
			body.release()
		}
		return response, err
	}
}

// noConnection reports whether an attempt ended because no connection to the server came about.
func noConnection(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

// heldBody is the body of a request that may have to be sent to another server. A transport closes
// the body when an attempt fails; heldBody closes the inner one only after the last attempt.
type heldBody struct {
	inner io.ReadCloser

	mu               sync.Mutex
	closed, released bool
}

// Read implements io.Reader.
func (b *heldBody) Read(p []byte) (int, error) { return b.inner.Read(p) }

// Close implements io.Closer.
func (b *heldBody) Close() error {
	b.mu.Lock()
	b.closed = true
	now := b.released
	b.mu.Unlock()
	if !now {
		return nil
	}
	return b.inner.Close()
}

// release says that no attempt follows. It closes the inner body if the last attempt closed this
// one.
func (b *heldBody) release() {
	b.mu.Lock()
	b.released = true
	now := b.closed
	b.mu.Unlock()
	if now {
		_ = b.inner.Close() // its bytes have been sent, or the caller has the error of the attempt
	}
}

// serverURLs completes what a person wrote in --server, one address or several with commas: without
// a scheme it is http, or https with --tls-ca, and then a host without a port has port 7400.
func (a *App) serverURLs() ([]*url.URL, error) {
	var urls []*url.URL
	for text := range strings.SplitSeq(a.Server, ",") {
		u, err := a.oneServerURL(strings.TrimSpace(text))
		if err != nil {
			return nil, err
		}
		if urls = append(urls, u); u.Scheme != urls[0].Scheme || u.Path != urls[0].Path {
			return nil, Usagef(
				"--server: %s and %s differ in more than the host: the servers of a cluster are reached in one way", urls[0], u)
		}
	}
	return urls, nil
}

// oneServerURL is serverURLs for one address.
func (a *App) oneServerURL(text string) (*url.URL, error) {
	whole := text
	switch {
	case strings.Contains(text, "://"):
	case a.tlsCA != "" || a.tokenFile != "" && !OnLoopback(text):
		whole = "https://" + text
	default:
		whole = "http://" + text
	}
	u, err := url.Parse(whole)
	if err != nil {
		return nil, Usagef("--server: %s", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, Usagef("--server: want http://HOST:PORT, have %q", whole)
	}
	if whole != text && u.Port() == "" {
		u.Host = net.JoinHostPort(u.Hostname(), defaultPort)
	}
	if a.tokenFile != "" && u.Scheme == "http" && !OnLoopback(u.Host) {
		return nil, Usagef("--server: %s would have the token of --token-file for everybody on the way to read; want https",
			whole)
	}
	u.Path = strings.TrimSuffix(u.Path, "/")
	return u, nil
}

// serverInUse returns the server to which calls go.
func (a *App) serverInUse() (*url.URL, error) {
	if a.servers != nil {
		u, _ := a.servers.pick()
		return u, nil
	}
	urls, err := a.serverURLs()
	if err != nil {
		return nil, err
	}
	return urls[0], nil
}

// serverNames returns the servers for a message: as they were written, unless that lacks the port.
func (a *App) serverNames() string {
	var names []string
	for text := range strings.SplitSeq(a.Server, ",") {
		text = strings.TrimSpace(text)
		if u, err := a.oneServerURL(text); err == nil && !strings.Contains(text, u.Host) {
			text = u.Host
		}
		names = append(names, text)
	}
	return strings.Join(names, ", ")
}

// OneServer returns an error if --server names several, for a command that can use only one.
func (a *App) OneServer() error {
	if strings.Contains(a.Server, ",") {
		return Usagef("--server: this command takes one server, have %q", a.Server)
	}
	return nil
}
