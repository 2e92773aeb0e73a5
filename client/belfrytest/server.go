package belfrytest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/cluster"
	"github.com/belfrydb/belfry/cron"
	"github.com/belfrydb/belfry/cron/calendar"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/rpc"
	"github.com/belfrydb/belfry/rpc/backend/adapter"
)

// A Server is a node that serves clients.
type Server struct {
	// URL is the address to pass to client.New.
	URL string

	clock    *stoppedClock // nil with the system's clock
	node     *node.Node
	cluster  *cluster.Cluster
	listener net.Listener
	edge     *rpc.Server
	served   chan error
	failed   chan error // takes the error of a storage failure

	closing sync.Once
	closed  error // what close returned
}

// version is the version that the server reports.
const version = "belfrytest"

// stopMax is how long the parts of a server may take to stop.
const stopMax = 10 * time.Second

// Start runs a server until the test and its subtests end. The test fails if the server does.
func Start(tb testing.TB, opts ...Option) *Server {
	tb.Helper()
	s, err := Open(tb.Context(), tb.TempDir(), opts...)
	if err != nil {
		tb.Fatalf("starting a Belfry server: %v", err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Errorf("stopping the Belfry server: %v", err)
		}
	})
	return s
}

// Client returns a client of the server, and closes it when the test ends.
func (s *Server) Client(tb testing.TB, opts ...client.Option) *client.Client {
	tb.Helper()
	if _, ok := s.listener.(*pipeListener); ok {
		opts = append([]client.Option{client.WithDialer(s.Dial)}, opts...)
	}
	c, err := client.New(s.URL, opts...)
	if err != nil {
		tb.Fatalf("making a client: %v", err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

// Open runs a server with its data in dir until Close. It creates dir if need be. A server that is
// opened again on the same dir has its jobs again. Open is for programs other than tests, such as
// examples. ctx bounds only the start.
func Open(ctx context.Context, dir string, opts ...Option) (_ *Server, err error) {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	if o.wrong != nil {
		return nil, o.wrong
	}
	s := &Server{clock: o.clock, served: make(chan error, 1), failed: make(chan error, 1)}
	logger := slog.New(slog.DiscardHandler)
	cfg := o.node()
	cfg.Dir, cfg.Logger = dir, logger
	zones, err := cron.BuiltInZones()
	if err != nil {
		return nil, fmt.Errorf("reading the time-zone data of this program: %w", err)
	}
	calendars := calendar.New(zones)
	cfg.Calendar = calendars.OfSchedule
	// A storage failure does not end the test's process: Close returns it.
	cfg.Fatal = func(err error) { s.failed <- err }
	s.node, err = node.Open(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("opening the data directory %s: %w", dir, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.closeNode(context.WithoutCancel(ctx)))
		}
	}()
	s.listener, err = o.listen(ctx)
	if err != nil {
		return nil, fmt.Errorf("listening for clients: %w", err)
	}
	address := s.listener.Addr().String()
	s.cluster, err = cluster.Open(ctx, s.node, cluster.Config{Logger: logger, ClientAddr: address, Version: version})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening the catalog: %w", err), s.listener.Close())
	}
	s.edge, err = rpc.NewServer(rpc.Config{
		Node: s.cluster.Router(), Catalog: adapter.NewCatalog(s.cluster.Catalog), Cluster: adapter.NewCluster(s.cluster),
		Logger: logger, Registry: prometheus.NewRegistry(), Calendars: calendars,
		Name: s.node.Status().Name, Address: address, Version: version, Now: s.Now,
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("making the public edge: %w", err), s.listener.Close())
	}
	s.URL = "http://" + address
	go func() { s.served <- s.edge.Serve(s.listener) }()
	return s, nil
}

// Close stops the server. Calls that wait for a job are answered, and other calls in flight finish.
// A second Close changes nothing and returns the same error.
func (s *Server) Close() error {
	s.closing.Do(func() { s.closed = s.close() })
	return s.closed
}

func (s *Server) close() error {
	ctx := context.Background()
	draining, cancel := context.WithTimeout(ctx, stopMax)
	defer cancel()
	err := s.edge.Shutdown(draining)
	if served := <-s.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return errors.Join(err, s.closeNode(ctx))
}

func (s *Server) closeNode(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stopMax)
	defer cancel()
	var err error
	if s.cluster != nil {
		err = errors.Join(s.node.AwaitDrained(ctx), s.cluster.Close(ctx))
	}
	err = errors.Join(err, s.node.Close(ctx))
	select {
	case failure := <-s.failed:
		return errors.Join(err, fmt.Errorf("the storage failed: %w", failure))
	default:
		return err
	}
}
