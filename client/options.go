package client

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"time"

	"connectrpc.com/connect"
	"go.opentelemetry.io/otel/trace"
)

// An Option configures a [Client]. Only this package makes them.
type Option interface {
	apply(c *config)
}

// config is what the options set.
type config struct {
	http       connect.HTTPClient // nil: our own transport
	tls        *tls.Config        // nil for the system's
	token      *heldToken         // nil for none
	dial       dialFunc           // nil for TCP
	coalescing Coalescing
	logger     *slog.Logger // nil for the process's

	tracers        trace.TracerProvider // nil: no spans
	parentIfWithin time.Duration
}

type optionFunc func(c *config)

func (f optionFunc) apply(c *config) { f(c) }

// WithHTTPClient sends requests through h, which brings its own TLS settings, proxies and limits, instead of the
// package's transport. For http:// addresses it should speak HTTP/2 without TLS: over HTTP/1.1 each waiting Reserve takes
// a connection. All calls go by Connect then, also those that share a session otherwise.
func WithHTTPClient(h connect.HTTPClient) Option {
	return optionFunc(func(c *config) { c.http = h })
}

// WithTLS has connections to https:// addresses made with t, which the client must not change any more: the authorities in RootCAs that are believed, say, instead
// of the system's. It has no effect together with [WithHTTPClient], which brings settings of its own.
func WithTLS(t *tls.Config) Option {
	return optionFunc(func(c *config) { c.tls = t })
}

// WithLogger has workers log to l at level warn: when the server gets out of reach, once a minute while it is, and when it is back, each time with the
// address and the reason; which of its queues do not exist, once, at the start or when there is nothing to do; and what else [Worker.OnError] hears of. The default is [slog.Default]; a logger with [slog.DiscardHandler] is silent. Nothing
// else of the package logs.
func WithLogger(l *slog.Logger) Option {
	return optionFunc(func(c *config) { c.logger = l })
}

// WithTracerProvider has the client make spans by p, a "send" for each call of Put and PutBatch, a "process" around each handler of a
// [Worker], an "ack", "nack" or "release" for each such call. What waits for jobs makes none. A job carries the context of its send in
// the headers traceparent and tracestate, unless the caller gave it one of these or they do not fit into its 16 KiB of headers; a trace
// state that does not fit is left out alone. A process is the root of a trace of its own, with a link to the send, since the job may have
// waited for days; see [ParentIfWithin]. For work outside of a Worker there is [Job.StartSpan]. The default is no provider, also not the
// global one.
func WithTracerProvider(p trace.TracerProvider) Option {
	return optionFunc(func(c *config) { c.tracers = p })
}

// ParentIfWithin makes the span of a job's first attempt a child of the span of its put if that was at most d ago, 1 minute say, so that short
// delays are seen in one trace. It is linked all the same. The default is 0, never.
func ParentIfWithin(d time.Duration) Option {
	return optionFunc(func(c *config) { c.parentIfWithin = d })
}

// dialFunc connects to host:port.
type dialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

// WithDialer has connections made by dial, to a server that is not reached by TCP, say; network is "tcp" and addr is host:port as in the address of the client. An
// error should be a [net.OpError] whose Op is "dial": of others it is not known that nothing was sent. Proxies named by the environment are dialled
// in the same way. It has no effect together with [WithHTTPClient].
func WithDialer(dial func(ctx context.Context, network, addr string) (net.Conn, error)) Option {
	return optionFunc(func(c *config) { c.dial = dial })
}

// Coalescing says how concurrent single calls share round trips: Put becomes PutBatch, Ack becomes AckBatch, and several
// Reserve calls for one job become one for many. A batch leaves as soon as fewer than InFlight others are on their way,
// with everything that gathered meanwhile; so a lone caller never waits, and many callers make large batches by
// themselves. A Coalescing is an [Option]:
//
//	c, err := client.New(addr, client.Coalescing{Off: true})
type Coalescing struct {
	// Off sends each call on its own.
	Off bool
	// InFlight is how many batches of one kind may be on their way at a time: 1 to 64, default 2.
	InFlight int
	// MaxDelay holds a batch of puts or acks that is not full back for this long, so that more calls can join it: 0 to 1 s,
	// default 0. It makes sense where round trips are dear and callers few.
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

// A wave is the batch that left last.
type wave struct {
	size int
	left time.Time
}

// waveMax is how long calls are held back for the batch that left last; by then they are better off alone.
const waveMax = 20 * time.Millisecond

// opens reports whether a batch of pending calls may leave while inFlight others are on their way. Calls come in waves, each
// answer waking the callers of its batch; were a second slot to take a part of a wave, batches would become small and dear, and the waves would stay apart.
// So a further batch leaves only when it is full, or when the one before it takes long: it may be for a shard that has no leader.
func (o Coalescing) opens(inFlight, pending int, last wave) bool {
	if pending <= 0 || inFlight == 0 {
		return pending > 0
	}
	return inFlight < o.InFlight && (pending >= o.MaxJobs || time.Since(last.left) > waveMax)
}

// opensPoll is opens for calls of which each may wait for long in good order: a poll also leaves for half as many callers as the last one asked for.
func (o Coalescing) opensPoll(inFlight, pending int, last wave) bool {
	return o.opens(inFlight, pending, last) || pending > 0 && inFlight < o.InFlight && pending >= last.size/2
}

// The limits of a batch. The bytes leave room below the server's 4 MiB for what the estimate of a message's size leaves
// out.
const (
	batchJobsMax  = 1000
	batchBytesMax = 4<<20 - 64<<10
)

// crowdFrom is from how many calls on a batch may wait for one of another kind: that costs fewer calls more time than it saves.
const crowdFrom = 8

// crowdMax is how long after a batch its callers may be about to call again.
const crowdMax = time.Second

// crowd reports whether a batch of pending calls leaves in a turn. What is full leaves at once. Of callers that were just answered some are still to come.
func (o Coalescing) crowd(pending int, last wave) bool {
	if time.Since(last.left) > crowdMax {
		last.size = 0 // its callers have gone
	}
	return pending > 0 && pending < o.MaxJobs && max(pending, last.size) >= crowdFrom
}
