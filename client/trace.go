package client

import (
	"context"
	"errors"
	"maps"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/belfrydb/belfry/client/internal/placement"
	"github.com/belfrydb/belfry/client/internal/requestid"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// tracerName is the instrumentation scope of the spans.
const tracerName = "github.com/belfrydb/belfry/client"

// The headers of W3C Trace Context, and the limit of all headers of a job together.
const (
	headerParent   = "traceparent"
	headerState    = "tracestate"
	headerBytesMax = 16 << 10
	parentBytes    = len(headerParent) + len("00-") + 32 + len("-") + 16 + len("-00")
)

// Names and types of operations, from OpenTelemetry's conventions for messaging. A span's name is
// the name of its operation and the queue.
const (
	opSend    = "send"
	opProcess = "process"
	opAck     = "ack"
	opNack    = "nack"
	opRelease = "release"
	opSettle  = "settle" // the type of the three before
)

// tracing creates the spans of a client. A nil tracing creates none.
type tracing struct {
	tracer         trace.Tracer
	parentIfWithin time.Duration
	clock          *requestid.Clock
}

// newTracing returns nil if there is no provider.
func newTracing(cfg *config, clock *requestid.Clock) *tracing {
	if cfg.tracers == nil {
		return nil
	}
	return &tracing{tracer: cfg.tracers.Tracer(tracerName), parentIfWithin: cfg.parentIfWithin, clock: clock}
}

// An operation is an action with a span. It is nil without tracing.
type operation struct{ span trace.Span }

// in returns ctx with the span in it.
func (o *operation) in(ctx context.Context) context.Context {
	if o == nil {
		return ctx
	}
	return trace.ContextWithSpan(ctx, o.span)
}

// end ends the span with the error of its operation.
func (o *operation) end(err error) {
	if o == nil {
		return
	}
	if err != nil {
		o.span.SetStatus(codes.Error, shortened(err.Error()))
		o.span.SetAttributes(attribute.String("error.type", errorType(err)))
	}
	o.span.End()
}

// endPut ends the span of a put.
func (o *operation) endPut(res PutResult, err error) {
	if o == nil {
		return
	}
	if err == nil {
		o.span.SetAttributes(attribute.String("messaging.message.id", res.ID),
			attribute.Bool("belfry.put.created", res.Created))
	}
	o.end(err)
}

// errorType returns one of few words for an error: the reason or the code of an [Error].
func errorType(err error) string {
	typed, ok := errors.AsType[*Error](err)
	switch {
	case !ok:
		return "_OTHER"
	case typed.Reason != "":
		return string(typed.Reason)
	default:
		return typed.Code.String()
	}
}

// start begins a span. Without a queue its name is that of the operation alone.
func (t *tracing) start(ctx context.Context, name, kind, queue string,
	opts ...trace.SpanStartOption) (context.Context, *operation) {
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
	return ctx, &operation{span: span}
}

// put begins the span of a put, and makes the job carry the span's context if carries allows it.
// extra is how many bytes that adds to the put.
func (t *tracing) put(ctx context.Context, req *belfryv1.PutRequest) (_ context.Context, o *operation, extra int) {
	if t == nil {
		return ctx, nil, 0
	}
	if !carries(req) { // its span is like that of any other call
		opts := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindClient)}
		if from := spanContext(req.GetHeaders()); from.IsValid() {
			opts = append(opts, trace.WithLinks(trace.Link{SpanContext: from}))
		}
		ctx, o = t.start(ctx, opSend, opSend, req.GetQueue(), opts...)
		return ctx, o, 0
	}
	ctx, o = t.start(ctx, opSend, opSend, req.GetQueue(), trace.WithSpanKind(trace.SpanKindProducer))
	return ctx, o, inject(ctx, req)
}

// putBatch begins the span of a batch of puts.
func (t *tracing) putBatch(ctx context.Context, puts []Put) (context.Context, *operation) {
	if t == nil {
		return ctx, nil
	}
	queue := queueOf(len(puts), func(i int) string { return puts[i].Queue })
	return t.start(ctx, opSend, opSend, queue,
		trace.WithSpanKind(trace.SpanKindProducer),
		trace.WithAttributes(attribute.Int("messaging.batch.message_count", len(puts))))
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

// carry makes one put of a batch carry the context of the batch's span in ctx, if carries allows
// it. It returns how many bytes that adds to the put.
func (o *operation) carry(ctx context.Context, req *belfryv1.PutRequest) (extra int) {
	switch {
	case o == nil:
		return 0
	case carries(req):
		return inject(ctx, req)
	default:
		if from := spanContext(req.GetHeaders()); from.IsValid() { //nolint:contextcheck // it needs no context; see there
			o.span.AddLink(trace.Link{SpanContext: from})
		}
		return 0
	}
}

// carries reports whether a put should carry the context of its span: the caller set none, and
// there is room.
func carries(req *belfryv1.PutRequest) bool {
	headers := req.GetHeaders()
	_, parent := headers[headerParent]
	_, state := headers[headerState]
	return !parent && !state && headersSize(headers)+parentBytes <= headerBytesMax
}

// inject writes the span context in ctx into the headers of a put, the trace state only if there is
// room. It replaces the map, because the caller may use it elsewhere. It returns how many bytes
// that adds to the put.
func inject(ctx context.Context, req *belfryv1.PutRequest) (extra int) {
	before := headersSize(req.GetHeaders())
	headers := make(map[string]string, len(req.GetHeaders())+2)
	maps.Copy(headers, req.GetHeaders())
	propagation.TraceContext{}.Inject(ctx, propagation.MapCarrier(headers))
	if headersSize(headers) > headerBytesMax {
		delete(headers, headerState)
	}
	req.Headers = headers
	return headersSize(headers) - before + 2*headerSlack
}

// headersSize returns how many bytes headers count against their limit.
func headersSize(headers map[string]string) (bytes int) {
	for name, value := range headers {
		bytes += len(name) + len(value)
	}
	return bytes
}

// process begins the span of the work on a job. The span is a root with a link to the put, or a
// child of the put if that was within parentIfWithin.
func (t *tracing) process(ctx context.Context, job *Job) (context.Context, *operation) {
	if t == nil {
		return ctx, nil
	}
	from := job.SpanContext()
	opts := append(aboutJob(job, from), trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
		attribute.Int("messaging.message.body.size", job.BodyBytes), attribute.Int("belfry.job.attempt", job.Attempt)))
	age := time.Now().Add(t.clock.Ahead()).Sub(job.CreatedAt)
	if t.parentIfWithin > 0 && job.Attempt <= 1 && age <= t.parentIfWithin && from.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, from)
	} else {
		opts = append(opts, trace.WithNewRoot())
	}
	return t.start(ctx, opProcess, opProcess, job.Queue, opts...)
}

// aboutJob returns options that name a job and link the span of its put.
func aboutJob(job *Job, from trace.SpanContext) []trace.SpanStartOption {
	opts := []trace.SpanStartOption{trace.WithAttributes(attribute.String("messaging.message.id", job.ID))}
	if from.IsValid() {
		opts = append(opts, trace.WithLinks(trace.Link{SpanContext: from}))
	}
	return opts
}

// settle begins the span of an ack, nack or release. The job is nil if only its lease is known.
func (t *tracing) settle(ctx context.Context, name, lease string, job *Job) (context.Context, *operation) {
	if t == nil {
		return ctx, nil
	}
	opts := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindClient)}
	queue := ""
	if job != nil {
		queue, opts = job.Queue, append(opts, aboutJob(job, job.SpanContext())...)
	} else {
		queue = placement.OfLease(lease).Queue
	}
	return t.start(ctx, name, opSettle, queue, opts...)
}

// settleBatch begins the span of a batch of acks.
func (t *tracing) settleBatch(ctx context.Context, leases []string) (context.Context, *operation) {
	if t == nil {
		return ctx, nil
	}
	queue := queueOf(len(leases), func(i int) string { return placement.OfLease(leases[i]).Queue })
	return t.start(ctx, opAck, opSettle, queue,
		trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(attribute.Int("messaging.batch.message_count", len(leases))))
}

// SpanContext returns the context of the span in which the job was put, from the headers
// traceparent and tracestate. It is not valid if the job has no such headers, or unreadable ones.
func (j *Job) SpanContext() trace.SpanContext { return spanContext(j.Headers) }

// spanContext reads the headers of a job. The context inside is only there because the propagator
// returns its result in one.
func spanContext(headers map[string]string) trace.SpanContext {
	if headers[headerParent] == "" {
		return trace.SpanContext{}
	}
	return trace.SpanContextFromContext(
		propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier(headers)))
}

// StartSpan begins a span for the work on a job from Reserve, as a [Worker] does around its
// handler. The span is a root with a link to the span of the put; [ParentIfWithin] applies as for a
// Worker. Acks made with the returned context are its children. The caller ends the span. Without
// [WithTracerProvider] it records nothing.
func (j *Job) StartSpan(ctx context.Context) (context.Context, trace.Span) {
	if j.client == nil || j.client.tracing == nil {
		return ctx, noop.Span{}
	}
	ctx, o := j.client.tracing.process(ctx, j)
	return ctx, o.span
}
