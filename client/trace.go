package client

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/belfrydb/belfry/client/internal/batchcodec"
	"github.com/belfrydb/belfry/client/internal/tracing"
)

// newTracer returns nil if there is no provider. ahead returns how far the servers' clock is ahead.
func newTracer(cfg *config, ahead func() time.Duration) *tracing.Tracer {
	return tracing.New(tracing.Config{
		Provider: cfg.tracers, ParentIfWithin: cfg.parentIfWithin, Ahead: ahead,
		Describe: func(err error) (kind, text string) { return errorType(err), shortened(err.Error()) },
	})
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

// traced returns what spans say of a job. The job may be nil.
func (j *Job) traced() tracing.Job {
	if j == nil {
		return tracing.Job{}
	}
	return tracing.Job{
		Queue: j.Queue, ID: j.ID, Headers: j.Headers, Attempt: j.Attempt, BodyBytes: j.BodyBytes, CreatedAt: j.CreatedAt,
	}
}

// carriedBytes returns how many bytes the headers of a span's context add to a put.
func carriedBytes(extra int) int {
	if extra == 0 {
		return 0
	}
	return extra + 2*batchcodec.HeaderBytes
}

// SpanContext returns the context of the span in which the job was put, from the headers
// traceparent and tracestate. It is not valid if the job has no such headers, or unreadable ones.
func (j *Job) SpanContext() trace.SpanContext { return tracing.SpanContext(j.Headers) }

// StartSpan begins a span for the work on a job from Reserve, as a [Worker] does around its
// handler. The span is a root with a link to the span of the put; [ParentIfWithin] applies as for a
// Worker. Acks made with the returned context are its children. The caller ends the span. Without
// [WithTracerProvider] it records nothing.
func (j *Job) StartSpan(ctx context.Context) (context.Context, trace.Span) {
	if j.client == nil || j.client.tracer == nil {
		return ctx, noop.Span{}
	}
	ctx, o := j.client.tracer.Process(ctx, j.traced())
	return ctx, o.Span()
}
