// Package server puts a node and its public edge together and runs them: what `belfry serve` is, and what the demo and the
// benchmark use inside their own process.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/rpc"
)

// Config says what to run. Dir, Listen, Logger and Fatal are required.
type Config struct {
	// Dir is the data directory.
	Dir string
	// Listen is the address for clients, HOST:PORT; port 0 picks a free one.
	Listen string
	// Insecure allows to listen beyond loopback although there is neither TLS nor tokens.
	Insecure bool
	// NodeID is the node's name; empty for the one that the data directory has.
	NodeID string
	// Shards is the number of shards of a new data directory; 0 for the default.
	Shards int
	// AcceptClock starts although the wall clock contradicts the data.
	AcceptClock bool
	// Version is what the node says it runs.
	Version string
	Logger  *slog.Logger
	// Fatal ends the process because going on would risk data.
	Fatal func(error)
}

const (
	// drainMax is how long calls that are under way may take when the server stops.
	drainMax = 20 * time.Second
	// closeMax is how long the node may take to stop after that.
	closeMax = 10 * time.Second
)

// Server is a node that serves clients.
type Server struct {
	node     *node.Node
	rpc      *rpc.Server
	listener net.Listener
	// served is closed when serving has ended, after serveErr was set.
	served   chan struct{}
	serveErr error
	stop     sync.Once
	stopped  error
}

// Start opens the data directory and begins to serve; when it returns, the node is ready. ctx bounds the start only. The
// caller must Stop the server.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	if err := checkListen(cfg); err != nil {
		return nil, err
	}
	// The address comes first: that it is taken is the likeliest mistake and found at once. Clients that connect during
	// the start wait in the listener's queue and are served, not refused.
	var listen net.ListenConfig
	listener, err := listen.Listen(ctx, "tcp", cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("listening for clients: %w", err)
	}
	n, err := node.Open(ctx, node.Config{
		Dir: cfg.Dir, Name: cfg.NodeID, Shards: cfg.Shards, AcceptClock: cfg.AcceptClock, Fatal: cfg.Fatal, Logger: cfg.Logger,
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening the data directory %s: %w", cfg.Dir, err), listener.Close())
	}
	s := &Server{node: n, listener: listener, served: make(chan struct{})}
	if s.rpc, err = newEdge(ctx, cfg, n, listener.Addr().String()); err != nil {
		closeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeMax)
		defer cancel()
		return nil, errors.Join(err, n.Close(closeCtx), listener.Close())
	}
	go func() {
		defer close(s.served)
		s.serveErr = s.rpc.Serve(listener)
	}()
	return s, nil
}

// newEdge makes what clients talk to.
func newEdge(ctx context.Context, cfg Config, n *node.Node, address string) (*rpc.Server, error) {
	catalog, err := openCatalog(ctx, n, cfg.Logger)
	if err != nil {
		return nil, err
	}
	registry := prometheus.NewRegistry()
	if err := registerProcess(registry); err != nil {
		return nil, err
	}
	edge, err := rpc.NewServer(rpc.Config{ //nolint:contextcheck // ctx bounds the start only
		Node: n, Catalog: catalog, Logger: cfg.Logger, Registry: registry,
		Name: n.Status().Name, Address: address, Version: cfg.Version,
	})
	if err != nil {
		return nil, fmt.Errorf("making the public edge: %w", err)
	}
	return edge, nil
}

// registerProcess adds what the process and Go's runtime tell about themselves to the metrics.
func registerProcess(registry *prometheus.Registry) error {
	for _, c := range []prometheus.Collector{
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewBuildInfoCollector(),
	} {
		if err := registry.Register(c); err != nil {
			return fmt.Errorf("registering the metrics of the process: %w", err)
		}
	}
	return nil
}

// checkListen refuses to show an unprotected server to a network unless the operator says that it is meant.
func checkListen(cfg Config) error {
	host, _, err := net.SplitHostPort(cfg.Listen)
	if err != nil {
		return &AddressError{fmt.Sprintf("listen address %q: %s", cfg.Listen, err)}
	}
	if cfg.Insecure || host == "localhost" {
		return nil
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsLoopback() {
		return nil
	}
	return &AddressError{fmt.Sprintf("%s is reachable beyond this machine, and there is neither TLS nor a token yet: "+
		"whoever reaches it can read and change every job; listen on loopback, or say --insecure if the network is protected", cfg.Listen)}
}

// AddressError is an address that the server does not listen on.
type AddressError struct{ text string }

func (e *AddressError) Error() string { return e.text }

// Address returns the address that clients reach the server at.
func (s *Server) Address() string { return s.listener.Addr().String() }

// URL returns the base of all its URLs.
func (s *Server) URL() string { return "http://" + s.Address() }

// Status returns what the node knows about itself.
func (s *Server) Status() node.Status { return s.node.Status() }

// Waiting returns how many calls wait for a job.
func (s *Server) Waiting() int {
	waiting := 0
	for _, shard := range s.node.Stats().Shards {
		waiting += shard.Waiters
	}
	return waiting
}

// Done returns a channel that is closed when the server no longer serves: because of Stop, or by itself, and then Stop says
// why.
func (s *Server) Done() <-chan struct{} { return s.served }

// Stop drains the server, waits until calls that are under way are answered, and closes the node. After ctx ends it waits
// no longer. It may be called more than once.
func (s *Server) Stop(ctx context.Context) error {
	s.stop.Do(func() {
		drainCtx, cancel := context.WithTimeout(ctx, drainMax)
		defer cancel()
		problems := []error{s.rpc.Shutdown(drainCtx)}
		<-s.served
		if !errors.Is(s.serveErr, http.ErrServerClosed) {
			problems = append(problems, s.serveErr)
		}
		closeCtx, cancelClose := context.WithTimeout(ctx, closeMax)
		defer cancelClose()
		if err := s.node.Close(closeCtx); err != nil {
			problems = append(problems, fmt.Errorf("closing the node: %w", err))
		}
		s.stopped = errors.Join(problems...)
	})
	return s.stopped
}
