package rpc

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/belfrydb/belfry/rpc/http1"
)

// Server serves the public API on one port: Connect, gRPC, gRPC-Web and plain HTTP, over HTTP/1.1
// and HTTP/2. All of them use TLS, or none does.
type Server struct {
	handler *handler
	// http1 carries out plain calls over HTTP/1.1 on the listener of Serve, and http all other
	// requests. lmstfy serves ServeLmstfy; it is nil if that is off.
	http1        *http1.Server
	http, lmstfy *http.Server
	tls          *tls.Config
	connections  *connections
}

// NewServer returns a server that does not listen yet. It reports every problem of the
// configuration.
func NewServer(cfg Config) (*Server, error) {
	h, err := newHandler(cfg)
	if err != nil {
		return nil, err
	}
	connections, err := newConnections(cfg.ConnectionsMax, cfg.Logger, cfg.Registry)
	if err != nil {
		return nil, err
	}
	s := &Server{handler: h, tls: cfg.TLS, connections: connections}
	s.http = newHTTPServer(h, connections, cfg.Logger)
	if cfg.TLS != nil {
		s.http.TLSConfig = cfg.TLS.Clone()
		s.http.TLSConfig.NextProtos = []string{"h2", "http/1.1"}
	}
	s.http1 = http1.New(directConfig(h, cfg.Logger, s.http.TLSConfig.Clone())) // net/http changes its own
	if h.lmstfy != nil {
		s.lmstfy = newHTTPServer(http.HandlerFunc(h.serveLmstfy), connections, cfg.Logger)
	}
	return s, nil
}

const (
	// headWait is how long a client may take to send the head of a request, or for a TLS handshake.
	headWait = 10 * time.Second
	// idleWait is how long a connection may have no request.
	idleWait = 2 * time.Minute
)

// newHTTPServer returns a server with the bounds of clients' connections.
func newHTTPServer(h http.Handler, connections *connections, logger *slog.Logger) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	s := &http.Server{
		Handler:   h,
		Protocols: protocols,
		// There is no ReadTimeout and no WriteTimeout, which would cut long polls: bodies and
		// answers have their own deadlines.
		ReadHeaderTimeout: headWait,
		IdleTimeout:       idleWait,
		MaxHeaderBytes:    64 << 10,
		HTTP2: &http.HTTP2Config{
			// The default is 250. At the bound, clients open another connection for each further
			// poll.
			MaxConcurrentStreams: 8192,
			// A ping detects a client that is gone without closing the connection, and its polls
			// end.
			SendPingTimeout: 30 * time.Second,
			PingTimeout:     15 * time.Second,
			// WriteByteTimeout applies while the connection accepts no bytes. It does not apply
			// while the client's windows are full: the deadline of the answer does.
			WriteByteTimeout: 30 * time.Second,
		},
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
	if connections != nil {
		s.ConnState, s.ConnContext = connections.changed, connections.within
	}
	return s
}

// Handler returns the handler of the API, for use in another server.
func (s *Server) Handler() http.Handler { return s.handler }

// Serve serves a listener until Shutdown or Close, and then returns http.ErrServerClosed.
func (s *Server) Serve(l net.Listener) error {
	if err := s.http.Serve(s.http1.Listen(s.connections.around(l))); err != nil {
		return fmt.Errorf("serving the public API: %w", err)
	}
	return nil
}

// ServeLmstfy serves a listener for lmstfy's clients until Shutdown or Close, and then returns
// http.ErrServerClosed. Config.Lmstfy must be set.
func (s *Server) ServeLmstfy(l net.Listener) error {
	if err := ServeOn(s.lmstfy, s.connections.around(l), s.tls); err != nil {
		return fmt.Errorf("serving lmstfy's protocol: %w", err)
	}
	return nil
}

// ServeOn serves a listener, with TLS unless secure is nil. Without TLS, HTTP/2 is only for clients
// that begin with it.
func ServeOn(s *http.Server, l net.Listener, secure *tls.Config) error {
	if secure == nil {
		return s.Serve(l)
	}
	s.TLSConfig = secure.Clone() // the server changes it, and several servers have the same settings
	return s.ServeTLS(l, "", "")
}

// Drain begins the stop: /readyz fails, parked polls answer at once with what they have, new polls
// are refused, and Work streams get a message. Other calls are still answered. It may be called
// more than once.
func (s *Server) Drain() { s.handler.drain.Start() }

// shutdownAgain is the time after which http.Server.Shutdown is repeated.
const shutdownAgain = time.Second

// shutdownHTTP is http.Server.Shutdown, repeated for connections that prove to speak HTTP/2 only
// after it has begun. Shutdown tells the HTTP/2 connections that it knows to close. It would wait
// for the others until they are idle for too long.
func shutdownHTTP(ctx context.Context, s *http.Server) error {
	for {
		round, cancel := context.WithTimeout(ctx, shutdownAgain)
		err := s.Shutdown(round)
		cancel()
		if ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
	}
}

// servers returns the servers of all protocols.
func (s *Server) servers() []*http.Server {
	if s.lmstfy == nil {
		return []*http.Server{s.http}
	}
	return []*http.Server{s.http, s.lmstfy}
}

// shutdownAll is shutdownHTTP for the servers of all protocols at once. It also waits for the direct
// calls.
func (s *Server) shutdownAll(ctx context.Context) error {
	s.http1.Stop() // first: http accepts no connection of http1 afterwards
	servers := s.servers()
	errs := make([]error, len(servers))
	var all sync.WaitGroup
	for i, server := range servers {
		all.Go(func() { errs[i] = shutdownHTTP(ctx, server) })
	}
	all.Wait()
	return errors.Join(append(errs, s.http1.Wait(ctx))...)
}

// closeAll closes the connections of all protocols.
func (s *Server) closeAll() (err error) {
	s.http1.Close()
	for _, server := range s.servers() {
		err = errors.Join(err, server.Close())
	}
	return err
}

// Shutdown drains and stops listening. It waits until every call is answered, and until the jobs
// that were granted too late are released, or until ctx ends. Then it closes the connections.
func (s *Server) Shutdown(ctx context.Context) error {
	s.Drain()
	if err := s.shutdownAll(ctx); err != nil {
		_ = s.handler.sessions.Wait(ctx) // ctx has ended, so this closes them
		closeErr := s.closeAll()
		if closeErr != nil {
			return fmt.Errorf("stopping the public API: %w; closing it: %w", err, closeErr)
		}
		return fmt.Errorf("stopping the public API: %w", err)
	}
	if err := s.handler.sessions.Wait(ctx); err != nil {
		return fmt.Errorf("ending sessions: %w", err)
	}
	return s.handler.queues.Wait(ctx)
}
