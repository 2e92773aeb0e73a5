package bench

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
)

// wire is the connection of one worker, which makes one call after the other on it. The transport
// of net/http passes each call to two more goroutines. If client and server share the processors,
// this would look like work of the server. A worker reads an answer to its end before the next
// call. Only close may be called by other goroutines.
type wire struct {
	server *url.URL
	tls    *tls.Config // nil for the system's
	token  string      // empty for none
	reader *bufio.Reader
	writer *bufio.Writer

	mu     sync.Mutex
	conn   net.Conn // nil before the first call
	closed bool
}

// Do makes a call, and the connection before the first one. It is what Connect wants of an HTTP
// client.
func (w *wire) Do(request *http.Request) (*http.Response, error) {
	if w.reader == nil {
		if err := w.open(request.Context()); err != nil {
			return nil, err
		}
	}
	if w.token != "" {
		request.Header.Set("Authorization", "Bearer "+w.token)
	}
	if err := request.Write(w.writer); err != nil {
		return nil, fmt.Errorf("sending a request: %w", err)
	}
	if err := w.writer.Flush(); err != nil {
		return nil, fmt.Errorf("sending a request: %w", err)
	}
	response, err := http.ReadResponse(w.reader, request)
	if err != nil {
		return nil, fmt.Errorf("reading an answer: %w", err)
	}
	return response, nil
}

func (w *wire) open(ctx context.Context) error {
	dial, port := (&net.Dialer{}).DialContext, "80"
	if w.server.Scheme == "https" {
		dial, port = (&tls.Dialer{Config: w.tls}).DialContext, "443"
	}
	if given := w.server.Port(); given != "" {
		port = given
	}
	conn, err := dial(ctx, "tcp", net.JoinHostPort(w.server.Hostname(), port))
	if err != nil {
		return fmt.Errorf("connecting: %w", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		conn.Close() //nolint:errcheck // nothing was sent
		return net.ErrClosed
	}
	w.conn, w.reader, w.writer = conn, bufio.NewReader(conn), bufio.NewWriter(conn)
	return nil
}

// close ends the connection and with it a call that is under way; later calls fail.
func (w *wire) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	if w.conn != nil {
		w.conn.Close() //nolint:errcheck // all answers that count were read
	}
}
