package rpc

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Server serves the public API on one port: Connect, gRPC, gRPC-Web and plain HTTP, over HTTP/1.1
// and HTTP/2. All of them use TLS, or none does.
type Server struct {
	handler     *handler
	http        *http.Server
	tls         *tls.Config
	connections *connections
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
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	s := &Server{handler: h, tls: cfg.TLS, connections: connections}
	s.http = &http.Server{
		Handler:   h,
		Protocols: protocols,
		// There is no ReadTimeout and no WriteTimeout, which would cut long polls: bodies and
		// answers have their own deadlines.
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
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
		ErrorLog: slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelDebug),
	}
	if connections != nil {
		s.http.ConnState, s.http.ConnContext = connections.changed, connections.within
	}
	return s, nil
}

// Handler returns the handler of the API, for use in another server.
func (s *Server) Handler() http.Handler { return s.handler }

// Serve serves a listener until Shutdown or Close, and then returns http.ErrServerClosed.
func (s *Server) Serve(l net.Listener) error {
	if err := ServeOn(s.http, s.connections.around(l), s.tls); err != nil {
		return fmt.Errorf("serving the public API: %w", err)
	}
	return nil
}

// ServeOn serves a listener, with TLS unless secure is nil. Without TLS, HTTP/2 is only for clients
// that begin with it.
func ServeOn(s *http.Server, l net.Listener, secure *tls.Config) error {
	if secure == nil {
		return s.Serve(l)
	}
	s.TLSConfig = secure
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
func (s *Server) shutdownHTTP(ctx context.Context) error {
	for {
		round, cancel := context.WithTimeout(ctx, shutdownAgain)
		err := s.http.Shutdown(round)
		cancel()
		if ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
	}
}

// Shutdown drains and stops listening. It waits until every call is answered, and until the jobs
// that were granted too late are released, or until ctx ends. Then it closes the connections.
func (s *Server) Shutdown(ctx context.Context) error {
	s.Drain()
	if err := s.shutdownHTTP(ctx); err != nil {
		_ = s.handler.sessions.Wait(ctx) // ctx has ended, so this closes them
		closeErr := s.http.Close()
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
