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

	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/rpc"
)

const (
	// lobbyAfter is how long clients wait for a node that looks for its cluster before they are answered that it does.
	lobbyAfter = 500 * time.Millisecond
	// lobbyLeaveMax is how long answers that are under way may take when the lobby closes.
	lobbyLeaveMax = 250 * time.Millisecond
	// lobbyMost bounds the connections of clients in the lobby: an answer there is short, and what it lacks for most is a cluster.
	lobbyMost = 256
)

// lobby answers clients for as long as this process is no node yet and has to wait for others. Before it is entered, clients wait in the listener's queue:
// a start that needs nobody is over in a moment. After it was left they wait there for the node.
type lobby struct {
	listener net.Listener
	tls      *tls.Config // nil for none
	logger   *slog.Logger

	mu    sync.Mutex
	name  string
	why   string
	since time.Time

	server *http.Server
	served chan error // what serving ended with
}

func newLobby(listener net.Listener, cfg Config, secure *tls.Config) *lobby {
	return &lobby{listener: listener, tls: secure, logger: cfg.Logger}
}

// enter begins to answer, unless it has begun. The name is the node's.
func (l *lobby) enter(name string) {
	listener, ok := l.listener.(node.StrangerListener)
	if l.server != nil || !ok {
		return
	}
	l.name, l.since, l.served = name, time.Now(), make(chan error, 1)
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	l.server = &http.Server{
		Handler: rpc.NewWaitingHandler(name, l.logger, l.reason), Protocols: protocols, ReadHeaderTimeout: helloWait, ReadTimeout: helloWait,
		WriteTimeout: helloWait, // answers do not wait for anything, but for who does not read them
		ErrorLog:     slog.NewLogLogger(l.logger.Handler(), slog.LevelDebug),
	}
	bounded := rpc.Bounded(&borrowedListener{StrangerListener: listener}, l.server, lobbyMost)
	l.server.SetKeepAlivesEnabled(false) // who asks again may find the node
	go func() { l.served <- rpc.ServeOn(l.server, bounded, l.tls) }()
}

// tell sets what is waited for, for people.
func (l *lobby) tell(why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.why = why
}

// reason says what is waited for and since when.
func (l *lobby) reason() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return fmt.Sprintf("node %s has waited for a cluster since %s: %s", l.name, l.since.UTC().Format(time.RFC3339), l.why)
}

// leave answers no more, after at most a moment. The listener stays open.
func (l *lobby) leave(ctx context.Context) error {
	if l.server == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lobbyLeaveMax)
	defer cancel()
	if err := l.server.Shutdown(ctx); err != nil {
		_ = l.server.Close() // who is in the middle of a question asks again
	}
	err := <-l.served
	l.server = nil
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("answering clients before there was a cluster: %w", err)
	}
	if err := l.listener.(node.StrangerListener).SetDeadline(time.Time{}); err != nil {
		return fmt.Errorf("listening on for clients: %w", err)
	}
	return nil
}

// borrowedListener is a listener whose Close ends Accept only: it goes to somebody else.
type borrowedListener struct{ node.StrangerListener }

// Close implements net.Listener.
func (l *borrowedListener) Close() error {
	return l.SetDeadline(time.Unix(1, 0)) // in the past
}
