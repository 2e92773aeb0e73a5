package client

import (
	"context"
	"net"
	"net/http"
	"sync"
	"testing"

	"github.com/belfrydb/belfry/client/internal/transport"
)

// A pipeNet is a network in memory, for bubbles of synctest: a goroutine that waits on a socket
// keeps time from passing.
type pipeNet struct {
	mu      sync.Mutex
	servers map[string]*pipeListener // by host:port
	dials   int
}

func newPipeNet() *pipeNet { return &pipeNet{servers: make(map[string]*pipeListener)} }

// serve runs h at addr until the test ends or the returned function is called.
func (n *pipeNet) serve(t testing.TB, addr string, h http.Handler) (stop func()) {
	l := &pipeListener{addr: addr, conns: make(chan net.Conn), closed: make(chan struct{})}
	n.mu.Lock()
	n.servers[addr] = l
	n.mu.Unlock()
	server := &http.Server{Handler: h, Protocols: new(http.Protocols)}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l)
	}()
	stop = sync.OnceFunc(func() {
		n.mu.Lock()
		if n.servers[addr] == l {
			delete(n.servers, addr)
		}
		n.mu.Unlock()
		_ = server.Close()
		<-done
	})
	t.Cleanup(stop)
	return stop
}

// httpClient dials through the network as the package's own transport does through sockets.
func (n *pipeNet) httpClient(t testing.TB) *http.Client {
	own := transport.New(nil)
	own.Proxy = nil
	own.DialContext = n.dial
	t.Cleanup(own.CloseIdleConnections)
	return &http.Client{Transport: own, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
}

// dial connects to a server.
func (n *pipeNet) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	n.mu.Lock()
	l := n.servers[addr]
	n.dials++
	n.mu.Unlock()
	refused := &net.OpError{Op: "dial", Net: "pipe", Err: net.UnknownNetworkError("nobody listens at " + addr)}
	if l == nil {
		return nil, refused
	}
	ours, theirs := net.Pipe()
	select {
	case l.conns <- theirs:
		return ours, nil
	case <-l.closed:
		return nil, refused
	case <-ctx.Done():
		return nil, &net.OpError{Op: "dial", Net: "pipe", Err: ctx.Err()}
	}
}

type pipeListener struct {
	addr   string
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return pipeAddr(l.addr) }

type pipeAddr string

func (pipeAddr) Network() string  { return "pipe" }
func (a pipeAddr) String() string { return string(a) }
