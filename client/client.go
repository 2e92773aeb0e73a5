package client

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/belfrydb/belfry/client/internal/batching"
	"github.com/belfrydb/belfry/client/internal/coalesce"
	"github.com/belfrydb/belfry/client/internal/failure"
	"github.com/belfrydb/belfry/client/internal/requestid"
	"github.com/belfrydb/belfry/client/internal/servers"
	"github.com/belfrydb/belfry/client/internal/session"
	"github.com/belfrydb/belfry/client/internal/tracing"
	"github.com/belfrydb/belfry/client/internal/transport"
)

// A Client talks to a Belfry cluster. Make one with [New] and share it: any number of goroutines
// may use it.
type Client struct {
	endpoints *endpoints
	addresses string // as they were given
	logger    *slog.Logger
	clock     *requestid.Clock
	sessions  session.Set
	idle      interface{ CloseIdleConnections() } // nil with a transport of the caller
	limits    Coalescing
	puts      *callsByLeader[encodedPut, PutResult]
	acks      *callsByLeader[string, struct{}]
	gate      batching.Gate
	polls     *coalesce.Polls[*Job]
	tracer    *tracing.Tracer        // nil without a provider
	scratches sync.Pool              // of *putScratch
	lifetime  func() context.Context // for batches and polls, which outlive single calls; ends at Close

	mu     sync.Mutex
	cancel context.CancelCauseFunc // of the lifetime; nil once closed
	work   sync.WaitGroup          // batches and polls in flight; grows under mu only
}

// New makes a client for the servers at addrs, a comma-separated list of base URLs such as
// "http://n1:7400,http://n2:7400". Any server takes any call. The client stays with one server, and
// goes on to the next when a call fails there. An address without a scheme is http; if it has no
// port either, that is 7400. All addresses are http, or all are https. New does not connect yet.
func New(addrs string, opts ...Option) (*Client, error) {
	var cfg config
	for _, opt := range opts {
		opt.apply(&cfg)
	}
	urls, err := servers.Parse(addrs)
	if wrong, ok := errors.AsType[*failure.Error](err); ok {
		return nil, public(wrong)
	}
	if err != nil {
		return nil, err
	}
	if err := cfg.checkToken(); err != nil {
		return nil, err
	}
	if cfg.name == "" {
		cfg.name = transport.DefaultName()
	}
	if err := transport.CheckName(cfg.name); err != nil {
		return nil, invalidError("WithName: %s", err)
	}
	if i := slices.IndexFunc(urls, cfg.token.Exposes); i >= 0 {
		return nil, invalidError("the address %s would have the token for everybody on the way to read; want https://",
			urls[i])
	}
	if cfg.logger == nil {
		cfg.logger = slog.Default()
	}
	limits, err := cfg.coalescing.checked()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	c := &Client{
		clock:  &requestid.Clock{},
		limits: limits,

		addresses: strings.Join(urls, ","), logger: cfg.logger,

		lifetime: func() context.Context { return ctx },
		cancel:   cancel,
	}
	var own *http.Transport
	if cfg.http == nil {
		own = transport.New(cfg.tls)
		if cfg.dial != nil {
			own.DialContext = cfg.dial
		}
		// A redirect would leave the address that the caller chose, and could turn a POST into a GET.
		cfg.http = &http.Client{Transport: own, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		}}
		c.idle = own
	}
	h := &transport.Observer{HTTP: cfg.http, Clock: c.clock, Token: cfg.token, Name: cfg.name}
	c.endpoints = &endpoints{List: servers.NewList(urls, func(base string) *endpoint {
		if cfg.token.Exposes(base) {
			return nil // it was named by a server
		}
		return newEndpoint(base, h, session.New(base, session.Config{
			Transport: own, TLS: cfg.tls, Token: cfg.token, Name: cfg.name, Clock: c.clock, Set: &c.sessions,
			WriteWait: attemptTimeout,
		}))
	})}
	c.tracer = newTracer(&cfg, c.clock.Ahead)
	c.startCoalescing()
	return c, nil
}

// Close ends the coalesced calls in flight, waits for them, and closes the connections. These
// calls, and all later ones, fail with an error that wraps [net.ErrClosed]. Other calls, and
// workers, end by their own contexts: end them first.
func (c *Client) Close() error {
	c.mu.Lock()
	if c.cancel != nil {
		c.cancel(net.ErrClosed)
		c.cancel = nil
	}
	c.mu.Unlock()
	c.work.Wait()
	c.sessions.Close()
	if c.idle != nil {
		c.idle.CloseIdleConnections()
	}
	return nil
}

// start runs f in a goroutine that Close waits for. If the client is closed, it returns false and
// does not run f.
func (c *Client) start(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cancel == nil {
		return false
	}
	c.work.Go(f)
	return true
}

// closed returns the error of a call to a closed client, nil while the client is open.
func (c *Client) closed() error {
	if c.lifetime().Err() == nil {
		return nil
	}
	return closedError()
}

func closedError() error { return public(failure.Closed()) }
