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

// Server serves the public API on one port: Connect, gRPC, gRPC-Web and plain HTTP, over HTTP/1.1 and HTTP/2, all with TLS or all without.
type Server struct {
	handler     *handler
	http        *http.Server
	tls         *tls.Config
	connections *connections
}

// NewServer returns a server that does not listen yet. It reports every problem of the configuration.
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
		// A long poll must not be cut, so there is no ReadTimeout and no WriteTimeout: bodies and answers have deadlines
		// of their own.
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		HTTP2: &http.HTTP2Config{
			// Clients that reach the bound open another connection for each further poll, and the default is 250.
			MaxConcurrentStreams: 8192,
			// A client that vanished without a word is found out and its polls end.
			SendPingTimeout: 30 * time.Second,
			PingTimeout:     15 * time.Second,
			// It runs while the connection takes nothing, and not while the client's windows let nothing be sent: that is for the answer's deadline.
			WriteByteTimeout: 30 * time.Second,
		},
		ErrorLog: slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelDebug),
	}
	if connections != nil {
		s.http.ConnState, s.http.ConnContext = connections.changed, connections.within
	}
	return s, nil
}

// Handler returns what answers requests, for servers of one's own.
func (s *Server) Handler() http.Handler { return s.handler }

// Serve answers on a listener until Shutdown or Close. It returns http.ErrServerClosed then.
func (s *Server) Serve(l net.Listener) error {
	if err := ServeOn(s.http, s.connections.around(l), s.tls); err != nil {
		return fmt.Errorf("serving the public API: %w", err)
	}
	return nil
}

// ServeOn answers on a listener, with TLS unless secure is nil. Without TLS there is HTTP/2 only for who begins with it.
func ServeOn(s *http.Server, l net.Listener, secure *tls.Config) error {
	if secure == nil {
		return s.Serve(l)
	}
	s.TLSConfig = secure
	return s.ServeTLS(l, "", "")
}

// Drain begins to stop: /readyz fails, polls that wait answer at once with what they have, new ones are refused, and
// Work streams are told. Other calls are still answered. It may be called more than once.
func (s *Server) Drain() { s.handler.drain.start() }

// shutdownAgain is how often connections are told anew that the server stops.
const shutdownAgain = time.Second

// shutdownHTTP is http.Server.Shutdown for connections that turn out to speak HTTP/2 only after it has begun: it tells those there are, and would wait
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

// Shutdown drains, stops to listen, and waits until every call is answered, and what polls were granted too late is given back,
// or ctx ends; then it closes the connections.
func (s *Server) Shutdown(ctx context.Context) error {
	s.Drain()
	if err := s.shutdownHTTP(ctx); err != nil {
		_ = s.handler.sessions.wait(ctx) // it has ended, so this closes them
		closeErr := s.http.Close()
		if closeErr != nil {
			return fmt.Errorf("stopping the public API: %w; closing it: %w", err, closeErr)
		}
		return fmt.Errorf("stopping the public API: %w", err)
	}
	if err := s.handler.sessions.wait(ctx); err != nil {
		return err
	}
	return s.handler.queues.polls.wait(ctx)
}
