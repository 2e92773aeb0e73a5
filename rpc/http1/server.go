package http1

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"runtime/debug"
	"slices"
	"sync"
	"time"
)

// Handler carries out requests. Its methods are called from the goroutine of the connection.
type Handler interface {
	// Admit reports whether a request may be carried out here. Its head has arrived, its body perhaps
	// not. If Admit returns false, net/http gets the connection.
	Admit(c *Conn) bool
	// Serve carries out a request that Admit accepted, and appends the answer to c.Out. If it returns
	// false it has done nothing, and net/http gets the connection.
	Serve(c *Conn) bool
	// Idle is called when all answers are written, and the connection has no request.
	Idle(c *Conn)
}

// Config configures a server. All fields but TLS are required.
type Config struct {
	Handler Handler
	// Paths are the paths of the requests that the handler may carry out.
	Paths []string
	// Headers are those that the handler gets. Ignored are those that do not matter. A request with any
	// other is left to net/http.
	Headers, Ignored []string
	// TLS has the settings of TLS connections, with the protocols of net/http; nil for none.
	TLS *tls.Config
	// HeadWait is how long a new connection may wait for its first request, and for a TLS handshake.
	// IdleWait is how long it may wait for another request. ResponseWait is how long a client may take
	// to read an answer.
	HeadWait, IdleWait, ResponseWait time.Duration
	// Hold counts bytes of requests that have not arrived in full; it returns false if there are too
	// many. Release uncounts them.
	Hold    func(bytes int64) bool
	Release func(bytes int64)
	Logger  *slog.Logger
}

// Server carries out requests on connections until net/http gets them.
type Server struct {
	cfg     Config
	grammar *grammar
	// requests has the buffers of requests. They have a size that is not reported to Config.Hold.
	// answers has those of answers.
	requests, answers buffers
	ctx               context.Context //nolint:containedctx // of all connections; Close ends it
	cancel            context.CancelFunc

	mu        sync.Mutex
	listeners []*listener
	conns     map[*Conn]struct{}
	stopping  bool
	open      sync.WaitGroup // the connections
	// undecided counts the connections for which Stop waits.
	undecided sync.WaitGroup
}

// New returns a server.
func New(cfg Config) *Server {
	s := &Server{
		cfg: cfg, grammar: newGrammar(cfg.Paths, cfg.Headers, cfg.Ignored), conns: map[*Conn]struct{}{},
		requests: buffers{kept: bufferBytes}, answers: buffers{kept: outBytesMax},
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Listen accepts the connections of inner. It returns a listener for net/http, which accepts those
// that net/http must serve. Closing it closes inner.
func (s *Server) Listen(inner net.Listener) net.Listener {
	l := &listener{
		inner: inner, left: make(chan net.Conn), failed: make(chan error), closed: make(chan struct{}),
		endInner: sync.OnceValue(inner.Close),
	}
	s.mu.Lock()
	s.listeners = append(s.listeners, l)
	s.mu.Unlock()
	go s.accept(l)
	return l
}

// accept starts a goroutine for each connection. net/http gets the errors of inner, and decides
// whether to go on.
func (s *Server) accept(l *listener) {
	for {
		conn, err := l.inner.Accept()
		switch {
		case err == nil:
			s.start(l, conn)
		case s.isStopping():
			return
		default:
			select {
			case l.failed <- err:
			case <-l.closed:
				return
			}
		}
	}
}

// isStopping reports whether Stop was called.
func (s *Server) isStopping() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopping
}

// start serves a new connection.
func (s *Server) start(l *listener, conn net.Conn) {
	c := &Conn{server: s, listener: l, conn: conn}
	c.ctx, c.cancel = context.WithCancel(s.ctx)
	c.try = c.tryRead
	s.mu.Lock()
	if s.stopping {
		s.mu.Unlock()
		c.cancel()
		_ = conn.Close()
		return
	}
	s.conns[c] = struct{}{}
	s.open.Add(1)
	s.mu.Unlock()
	go func() {
		if s.cfg.TLS == nil || c.handshake() {
			c.raw = rawOf(c.conn)
			c.serve()
		} else {
			c.leave()
		}
	}()
}

// handshake makes the connection a TLS connection. It returns false if net/http got it, or if it
// failed.
func (c *Conn) handshake() bool {
	secure := tls.Server(c.conn, c.server.cfg.TLS)
	c.mu.Lock()
	c.conn = secure
	c.mu.Unlock()
	c.setReadDeadline(time.Now().Add(c.server.cfg.HeadWait))
	_ = secure.SetWriteDeadline(time.Now().Add(c.server.cfg.HeadWait)) // as for reads
	if err := secure.HandshakeContext(c.ctx); err != nil {
		if plain := new(tls.RecordHeaderError); errors.As(err, plain) && plain.Conn != nil && isHTTP(plain.RecordHeader) {
			_, _ = io.WriteString(plain.Conn,
				"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n")
		}
		c.server.cfg.Logger.Debug("a TLS handshake failed", slog.String("address", secure.RemoteAddr().String()),
			slog.Any("error", err))
		_ = secure.Close()
		return false
	}
	if protocol := secure.ConnectionState().NegotiatedProtocol; protocol != "" && protocol != "http/1.1" {
		c.handOver()
		return false
	}
	return true
}

// isHTTP reports whether the begin of a record is that of a request without TLS.
func isHTTP(begin [5]byte) bool {
	return slices.Contains([]string{"GET /", "HEAD ", "POST ", "PUT /", "OPTIO"}, string(begin[:]))
}

// handOver gives the connection to net/http, with the bytes that have arrived.
func (c *Conn) handOver() {
	if c.flush() != nil {
		_ = c.conn.Close()
		return
	}
	c.server.cfg.Handler.Idle(c)
	conn := c.conn
	_ = conn.SetDeadline(time.Time{}) // net/http sets its own
	c.takeAhead()
	if c.in != nil && c.pos < len(*c.in) {
		conn = resume(conn, slices.Clone((*c.in)[c.pos:]))
	}
	select {
	case c.listener.left <- conn:
	case <-c.listener.closed: // net/http has stopped
		_ = conn.Close()
	}
}

// leave ends the part of the server in a connection.
func (c *Conn) leave() {
	if p := recover(); p != nil {
		c.server.cfg.Logger.Error("a connection panicked", slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
		_ = c.conn.Close()
	}
	c.cancel()
	if c.in != nil {
		c.server.requests.put(c.in)
	}
	c.hold(0)
	c.server.mu.Lock()
	delete(c.server.conns, c)
	c.server.mu.Unlock()
	c.mu.Lock()
	c.decided()
	c.mu.Unlock()
	c.server.open.Done()
}

// Stop stops accepting connections. It closes those that are idle, and net/http gets those on which
// no request was carried out yet. Stop returns when this is done. Calls go on; their answers are
// the last on their connections. http.Server.Shutdown must be called after Stop.
func (s *Server) Stop() {
	s.mu.Lock()
	s.stopping = true
	listeners := slices.Clone(s.listeners)
	for c := range s.conns { // in any order
		c.mu.Lock()
		if !c.stopping {
			c.stopping = true
			if !c.calling {
				c.awaited = true
				s.undecided.Add(1)
				_ = c.conn.SetReadDeadline(time.Unix(1, 0))
			}
		}
		c.mu.Unlock()
	}
	s.mu.Unlock()
	for _, l := range listeners {
		_ = l.endInner()
	}
	s.undecided.Wait()
}

// Wait waits until all connections have left, or until ctx ends.
func (s *Server) Wait(ctx context.Context) error {
	left := make(chan struct{})
	go func() {
		s.open.Wait()
		close(left)
	}()
	select {
	case <-left:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close closes all connections, and ends the contexts of their calls.
func (s *Server) Close() {
	s.cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopping = true
	for c := range s.conns { // in any order
		c.mu.Lock()
		_ = c.conn.Close()
		c.mu.Unlock()
	}
}
