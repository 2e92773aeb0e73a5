// Package tracing makes the spans of a client, and carries the context of a put in the headers of
// its job.
package tracing

import (
	"context"
	"maps"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/belfrydb/belfry/client/internal/placement"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// tracerName is the instrumentation scope of the spans.
const tracerName = "github.com/belfrydb/belfry/client"

// The headers of W3C Trace Context.
const (
	HeaderParent = "traceparent"
	HeaderState  = "tracestate"
)

// The limit of all headers of a job together, and the size of a header traceparent.
const (
	headerBytesMax = 16 << 10
	parentBytes    = len(HeaderParent) + len("00-") + 32 + len("-") + 16 + len("-00")
)

// Names and types of operations, from OpenTelemetry's conventions for messaging. A span's name is
// the name of its operation and the queue.
const (
	Ack     = "ack"
	Nack    = "nack"
	Release = "release"

	opSend    = "send"
	opProcess = "process"
	opSettle  = "settle" // the type of Ack, Nack and Release
)

// A Config says how a client traces.
type Config struct {
	// Provider makes the spans. Nil: there are none.
	Provider trace.TracerProvider
	// ParentIfWithin is the age of a job up to which the span of its first attempt is a child of the
	// span of its put. 0 means never.
	ParentIfWithin time.Duration
	// Ahead returns how far the servers' clock is ahead of this one.
	Ahead func() time.Duration
	// Describe returns one of few words for an error, and its text, short and valid UTF-8.
	Describe func(err error) (kind, text string)
}

// A Tracer creates the spans of a client. A nil tracer creates none. Its methods return the context
// with the span in it.
type Tracer struct {
	tracer trace.Tracer
	config Config
}

// New returns a tracer, nil without a provider.
func New(config Config) *Tracer {
	if config.Provider == nil {
		return nil
	}
	return &Tracer{tracer: config.Provider.Tracer(tracerName), config: config}
}

// A Job is what spans say of a job. The zero value is a job of which nothing is known.
type Job struct {
	Queue, ID string
	Headers   map[string]string
	Attempt   int
	BodyBytes int
	CreatedAt time.Time
}

// An Operation is an action with a span. It is nil without tracing.
type Operation struct {
	span     trace.Span
	describe func(err error) (kind, text string)
}

// Span returns the span. The operation is not nil.
func (o *Operation) Span() trace.Span { return o.span }

// In returns ctx with the span in it.
func (o *Operation) In(ctx context.Context) context.Context {
	if o == nil {
		return ctx
	}
	return trace.ContextWithSpan(ctx, o.span)
}

// End ends the span with the error of its operation.
func (o *Operation) End(err error) {
	if o == nil {
		return
	}
	if err != nil {
		kind, text := o.describe(err)
		o.span.SetStatus(codes.Error, text)
		o.span.SetAttributes(attribute.String("error.type", kind))
	}
	o.span.End()
}

// A Put is what spans say of a put that succeeded.
type Put struct {
	ID      string // of its job
	Created bool   // false for a repeat
}

// EndPut ends the span of a put.
func (o *Operation) EndPut(put Put, err error) {
	if o == nil {
		return
	}
	if err == nil {
		o.span.SetAttributes(
			attribute.String("messaging.message.id", put.ID), attribute.Bool("belfry.put.created", put.Created))
	}
	o.End(err)
}

// start begins a span. Without a queue its name is that of the operation alone.
func (t *Tracer) start(ctx context.Context, name, kind, queue string,
	opts ...trace.SpanStartOption) (context.Context, *Operation) {
	about := []attribute.KeyValue{
		attribute.String("messaging.system", "belfry"),
		attribute.String("messaging.operation.name", name),
		attribute.String("messaging.operation.type", kind),
	}
	if queue = strings.ToValidUTF8(queue, "?"); queue != "" { // exporters drop a whole export that has invalid UTF-8
		about = append(about, attribute.String("messaging.destination.name", queue))
		name += " " + queue
	}
	ctx, span := t.tracer.Start(ctx, name, append(opts, trace.WithAttributes(about...))...)
	return ctx, &Operation{span: span, describe: t.config.Describe}
}

// Put begins the span of a put, and makes the job carry the span's context if carries allows it.
// extra is how many bytes that adds to the put's headers.
func (t *Tracer) Put(ctx context.Context, req *belfryv1.PutRequest) (_ context.Context, o *Operation, extra int) {
	if t == nil {
		return ctx, nil, 0
	}
	if !carries(req) { // its span is like that of any other call
		opts := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindClient)}
		if from := SpanContext(req.GetHeaders()); from.IsValid() {
			opts = append(opts, trace.WithLinks(trace.Link{SpanContext: from}))
		}
		ctx, o = t.start(ctx, opSend, opSend, req.GetQueue(), opts...)
		return ctx, o, 0
	}
	ctx, o = t.start(ctx, opSend, opSend, req.GetQueue(), trace.WithSpanKind(trace.SpanKindProducer))
	return ctx, o, inject(ctx, req)
}

// PutBatch begins the span of a batch of so many puts. queue returns the queue of one of them.
func (t *Tracer) PutBatch(ctx context.Context, puts int, queue func(i int) string) (context.Context, *Operation) {
	if t == nil {
		return ctx, nil
	}
	return t.start(ctx, opSend, opSend, queueOf(puts, queue),
		trace.WithSpanKind(trace.SpanKindProducer),
		trace.WithAttributes(attribute.Int("messaging.batch.message_count", puts)))
}

// queueOf returns the queue of all entries of a batch, "" if they concern several.
func queueOf(entries int, of func(i int) string) (queue string) {
	for i := range entries {
		if i > 0 && of(i) != queue {
			return ""
		}
		queue = of(i)
	}
	return queue
}

// Carry makes one put of a batch carry the context of the batch's span in ctx, if carries allows
// it. It returns how many bytes that adds to the put's headers.
func (o *Operation) Carry(ctx context.Context, req *belfryv1.PutRequest) (extra int) {
	switch {
	case o == nil:
		return 0
	case carries(req):
		return inject(ctx, req)
	default:
		if from := SpanContext(req.GetHeaders()); from.IsValid() { //nolint:contextcheck // it needs no context; see there
			o.span.AddLink(trace.Link{SpanContext: from})
		}
		return 0
	}
}

// carries reports whether a put should carry the context of its span: the caller set none, and
// there is room.
func carries(req *belfryv1.PutRequest) bool {
	headers := req.GetHeaders()
	_, parent := headers[HeaderParent]
	_, state := headers[HeaderState]
	return !parent && !state && headersSize(headers)+parentBytes <= headerBytesMax
}

// inject writes the span context in ctx into the headers of a put, the trace state only if there is
// room. It replaces the map, because the caller may use it elsewhere. It returns how many bytes
// that adds.
func inject(ctx context.Context, req *belfryv1.PutRequest) (extra int) {
	before := headersSize(req.GetHeaders())
	headers := make(map[string]string, len(req.GetHeaders())+2)
	maps.Copy(headers, req.GetHeaders())
	propagation.TraceContext{}.Inject(ctx, propagation.MapCarrier(headers))
	if headersSize(headers) > headerBytesMax {
		delete(headers, HeaderState)
	}
	req.Headers = headers
	return headersSize(headers) - before
}

// headersSize returns how many bytes headers count against their limit.
func headersSize(headers map[string]string) (bytes int) {
	for name, value := range headers {
		bytes += len(name) + len(value)
	}
	return bytes
}

// Process begins the span of the work on a job. The span is a root with a link to the put, or a
// child of the put if that was within Config.ParentIfWithin.
func (t *Tracer) Process(ctx context.Context, job Job) (context.Context, *Operation) {
	if t == nil {
		return ctx, nil
	}
	from := SpanContext(job.Headers)
	opts := append(aboutJob(job, from), trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
		attribute.Int("messaging.message.body.size", job.BodyBytes), attribute.Int("belfry.job.attempt", job.Attempt)))
	age := time.Now().Add(t.config.Ahead()).Sub(job.CreatedAt)
	if t.config.ParentIfWithin > 0 && job.Attempt <= 1 && age <= t.config.ParentIfWithin && from.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, from)
	} else {
		opts = append(opts, trace.WithNewRoot())
	}
	return t.start(ctx, opProcess, opProcess, job.Queue, opts...)
}

// aboutJob returns options that name a job and link the span of its put.
func aboutJob(job Job, from trace.SpanContext) []trace.SpanStartOption {
	opts := []trace.SpanStartOption{trace.WithAttributes(attribute.String("messaging.message.id", job.ID))}
	if from.IsValid() {
		opts = append(opts, trace.WithLinks(trace.Link{SpanContext: from}))
	}
	return opts
}

// Settle begins the span of an [Ack], [Nack] or [Release]. The job is the zero value if only its
// lease is known.
func (t *Tracer) Settle(ctx context.Context, name, lease string, job Job) (context.Context, *Operation) {
	if t == nil {
		return ctx, nil
	}
	opts := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindClient)}
	if job.ID == "" {
		return t.start(ctx, name, opSettle, placement.OfLease(lease).Queue, opts...)
	}
	opts = append(opts, aboutJob(job, SpanContext(job.Headers))...)
	return t.start(ctx, name, opSettle, job.Queue, opts...)
}

// AckBatch begins the span of a batch of acks.
func (t *Tracer) AckBatch(ctx context.Context, leases []string) (context.Context, *Operation) {
	if t == nil {
		return ctx, nil
	}
	queue := queueOf(len(leases), func(i int) string { return placement.OfLease(leases[i]).Queue })
	return t.start(ctx, Ack, opSettle, queue, trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(attribute.Int("messaging.batch.message_count", len(leases))))
}

// SpanContext reads the context of a put's span in the headers of its job. It is not valid if there
// is none. The context inside is only there because the propagator returns its result in one.
func SpanContext(headers map[string]string) trace.SpanContext {
	if headers[HeaderParent] == "" {
		return trace.SpanContext{}
	}
	return trace.SpanContextFromContext(
		propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier(headers)))
}
