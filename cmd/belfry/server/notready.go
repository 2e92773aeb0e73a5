package server

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

	"github.com/belfrydb/belfry/node/peer"
	"github.com/belfrydb/belfry/rpc"
)

const (
	// notReadyAfter is how long a node looks for its cluster before it answers clients that it is not
	// ready.
	notReadyAfter = 500 * time.Millisecond
	// notReadyStopMax bounds the calls in flight when the server stops.
	notReadyStopMax = 250 * time.Millisecond
	// notReadyConnsMax bounds the connections: every answer is short.
	notReadyConnsMax = 256
)

// notReadyServer answers clients while this process waits for other nodes before it can open its
// own. Before start, clients wait in the listener's queue, since most starts take only a moment.
// After stop they wait there for the node.
type notReadyServer struct {
	listener net.Listener
	tls      *tls.Config // nil for none
	logger   *slog.Logger

	mu    sync.Mutex
	name  string
	why   string
	since time.Time

	server *http.Server
	served chan error // the result of serving
}

func newNotReadyServer(listener net.Listener, cfg Config, secure *tls.Config) *notReadyServer {
	return &notReadyServer{listener: listener, tls: secure, logger: cfg.Logger}
}

// start starts to answer clients, in the name of the node. A second call does nothing.
func (s *notReadyServer) start(name string) {
	listener, ok := s.listener.(peer.StrangerListener)
	if s.server != nil || !ok {
		return
	}
	s.name, s.since, s.served = name, time.Now(), make(chan error, 1)
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	s.server = &http.Server{
		Handler: rpc.NewWaitingHandler(name, s.logger, s.reason), Protocols: protocols, ReadHeaderTimeout: helloWait,
		ReadTimeout:  helloWait,
		WriteTimeout: helloWait, // an answer waits only for a client that does not read it
		ErrorLog:     slog.NewLogLogger(s.logger.Handler(), slog.LevelDebug),
	}
	bounded := rpc.Bounded(&borrowedListener{StrangerListener: listener}, s.server, notReadyConnsMax)
	s.server.SetKeepAlivesEnabled(false) // the node may answer the next call
	go func() { s.served <- rpc.ServeOn(s.server, bounded, s.tls) }()
}

// setReason sets what the node waits for, as text for people.
func (s *notReadyServer) setReason(why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.why = why
}

// reason returns what the node waits for and since when.
func (s *notReadyServer) reason() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("node %s has waited for a cluster since %s: %s", s.name, s.since.UTC().Format(time.RFC3339), s.why)
}

// stop stops answering, after notReadyStopMax at the latest. The listener stays open.
func (s *notReadyServer) stop(ctx context.Context) error {
	if s.server == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, notReadyStopMax)
	defer cancel()
	if err := s.server.Shutdown(ctx); err != nil {
		_ = s.server.Close() // the client repeats its call
	}
	err := <-s.served
	s.server = nil
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("answering clients before there was a cluster: %w", err)
	}
	if err := s.listener.(peer.StrangerListener).SetDeadline(time.Time{}); err != nil {
		return fmt.Errorf("listening on for clients: %w", err)
	}
	return nil
}

// borrowedListener is a listener whose Close ends Accept only. The node uses it afterwards.
type borrowedListener struct{ peer.StrangerListener }

// Close implements net.Listener.
func (l *borrowedListener) Close() error {
	return l.SetDeadline(time.Unix(1, 0)) // in the past
}
