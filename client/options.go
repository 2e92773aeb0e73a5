package client

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"connectrpc.com/connect"
	"go.opentelemetry.io/otel/trace"

	"github.com/belfrydb/belfry/client/internal/bearer"
)

// An Option configures a [Client]. Only this package makes them.
type Option interface {
	apply(c *config)
}

// config is what the options set.
type config struct {
	http       connect.HTTPClient // nil: our own transport
	tls        *tls.Config        // nil for the system's
	token      *bearer.Token      // nil for none
	name       string             // of the process
	dial       dialFunc           // nil for TCP
	coalescing Coalescing
	logger     *slog.Logger // nil for the process's

	tracers        trace.TracerProvider // nil: no spans
	parentIfWithin time.Duration
}

// checkToken returns an error if the token cannot be one.
func (c *config) checkToken() error {
	err := c.token.Check()
	switch {
	case err == nil:
		return nil
	case c.token.FileName() != "":
		return fmt.Errorf("WithTokenFile: %s: %w", c.token.FileName(), err)
	default:
		return invalidError("WithToken: %s", err)
	}
}

type optionFunc func(c *config)

func (f optionFunc) apply(c *config) { f(c) }

// WithHTTPClient sends requests through h instead of the package's transport. h has its own TLS
// settings, proxies and limits. For http:// addresses it should speak HTTP/2 without TLS: over
// HTTP/1.1 each waiting Reserve takes a connection. All calls then use Connect, also those that
// otherwise share a session.
func WithHTTPClient(h connect.HTTPClient) Option {
	return optionFunc(func(c *config) { c.http = h })
}

// WithTLS makes connections to https:// addresses with t, for example to trust the authorities in
// its RootCAs instead of the system's. The caller must not change t afterwards. WithTLS has no
// effect together with [WithHTTPClient], which has settings of its own.
func WithTLS(t *tls.Config) Option {
	return optionFunc(func(c *config) { c.tls = t })
}

// WithToken sends a bearer token with each call, as 'belfry token create' makes it. [New] then
// refuses http:// addresses, unless they are on this machine: on the way to others an eavesdropper
// could take the token.
func WithToken(token string) Option {
	return optionFunc(func(c *config) { c.token = bearer.New("", strings.TrimSpace(token)) })
}

// WithTokenFile is [WithToken] for a token in a file. The client reads the file again within a
// second of a change, so a token can be replaced without a restart: write its successor, and then
// revoke the old one. [New] fails if the file has no token. Later the last token read stays in use,
// whatever else the file holds.
func WithTokenFile(name string) Option {
	return optionFunc(func(c *config) { c.token = bearer.New(name, "") })
}

// WithName says what this process is called, at most 64 bytes that can be printed. Operators see the
// name, with the address, at the jobs that it holds and at failed attempts. It proves nothing, and need
// not be unique. The default is the name of the host and the number of the process.
func WithName(name string) Option {
	return optionFunc(func(c *config) { c.name = name })
}

// WithLogger makes workers log to l at level warn. The default is [slog.Default]; a logger with
// [slog.DiscardHandler] is silent. Nothing else of the package logs.
//
// A worker logs when the server gets out of reach, once a minute while it is, and when it is back,
// each time with the address and the reason. It logs once which of its queues do not exist, at the
// start or when there is nothing to do. It also logs everything else that [Worker.OnError] is
// called with.
func WithLogger(l *slog.Logger) Option {
	return optionFunc(func(c *config) { c.logger = l })
}

// WithTracerProvider makes the client create spans with p: a "send" for each call of Put and
// PutBatch, a "process" around each handler of a [Worker], and an "ack", "nack" or "release" for
// each such call. Calls that wait for jobs create no spans. The default is no provider, and not the
// global one either.
//
// A job carries the context of its send in the headers traceparent and tracestate. They are left
// out if the caller set one of them, or if they do not fit into the job's 16 KiB of headers. If
// only the trace state does not fit, it alone is left out.
//
// A process span is the root of its own trace, with a link to the send, because the job may have
// waited for days; see [ParentIfWithin]. For work outside a Worker there is [Job.StartSpan].
func WithTracerProvider(p trace.TracerProvider) Option {
	return optionFunc(func(c *config) { c.tracers = p })
}

// ParentIfWithin makes the span of a job's first attempt a child of the span of its put, if the put
// was at most d ago, for example 1 minute. Short delays then appear in one trace. The span has its
// link all the same. The default is 0, never.
func ParentIfWithin(d time.Duration) Option {
	return optionFunc(func(c *config) { c.parentIfWithin = d })
}

// dialFunc connects to host:port.
type dialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

// WithDialer makes connections with dial, for example to a server that is not reached by TCP.
// network is "tcp", and addr is host:port as in the client's address. An error should be a
// [net.OpError] whose Op is "dial": other errors do not prove that no request was sent. Proxies
// that the environment names are dialled in the same way. WithDialer has no effect together with
// [WithHTTPClient].
func WithDialer(dial func(ctx context.Context, network, addr string) (net.Conn, error)) Option {
	return optionFunc(func(c *config) { c.dial = dial })
}

// Coalescing says how concurrent single calls share round trips. Put becomes PutBatch, Ack becomes
// AckBatch, and several Reserve calls for one job become one call for many jobs. A batch of puts or
// acks has calls of one leader, once the client knows the leaders. It leaves as soon as fewer than
// InFlight others are in flight to it, with every call that has gathered by then. So a lone caller
// never waits, and many callers form large batches by themselves. A Coalescing is an [Option]:
//
//	c, err := client.New(addr, client.Coalescing{Off: true})
type Coalescing struct {
	// Off sends each call on its own.
	Off bool
	// InFlight is how many batches of one kind may be in flight to one server at a time: 1 to 64,
	// default 2.
	InFlight int
	// MaxDelay is how long to hold back a batch of puts or acks that is not full, so that more
	// calls can join it: 0 to 1 s, default 0. It helps where round trips are expensive and callers
	// few.
	MaxDelay time.Duration
	// MaxJobs is the largest batch: 1 to 1,000, default 1,000. Batches also stay below 4 MiB.
	MaxJobs int
}

func (o Coalescing) apply(c *config) { c.coalescing = o }

// checked fills in defaults and refuses what is out of range.
func (o Coalescing) checked() (Coalescing, error) {
	if o.InFlight == 0 {
		o.InFlight = 2
	}
	if o.MaxJobs == 0 {
		o.MaxJobs = batchJobsMax
	}
	switch {
	case o.InFlight < 1 || o.InFlight > 64:
		return o, invalidError("Coalescing.InFlight is %d, must be 1 to 64", o.InFlight)
	case o.MaxJobs < 1 || o.MaxJobs > batchJobsMax:
		return o, invalidError("Coalescing.MaxJobs is %d, must be 1 to %d", o.MaxJobs, batchJobsMax)
	case o.MaxDelay < 0 || o.MaxDelay > time.Second:
		return o, invalidError("Coalescing.MaxDelay is %v, must be 0 to 1s", o.MaxDelay)
	}
	return o, nil
}

// The limits of a batch. batchBytesMax is below the server's 4 MiB: the difference is room for what
// the estimate of a message's size leaves out.
const (
	batchJobsMax  = 1000
	batchBytesMax = 4<<20 - 64<<10
)
