package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/belfrydb/belfry/rpc/auth"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
)

// requestIDHeader carries a requestId where the body has no place for it: on raw routes, and for
// curl.
const requestIDHeader = "Belfry-Request-Id"

// interceptor is the Connect interceptor of all services. It converts faults to wire errors,
// catches panics, measures calls, and copies the request id from the header.
type interceptor struct {
	logger     *slog.Logger
	traffic    *traffic
	authorizer *auth.Authorizer
	auditor    *auth.AuditLog
}

// WrapUnary implements connect.Interceptor.
func (e *interceptor) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (res connect.AnyResponse, err error) {
		c := &auth.Call{
			Procedure: req.Spec().Procedure, Address: req.Peer().Addr, ID: req.Header().Get(auth.CallIDHeader),
			Request: req.Any(),
		}
		err = e.run(ctx, c, func() (err error) {
			if id := req.Header().Get(requestIDHeader); id != "" {
				if err := takeRequestIDOf(req.Any(), id); err != nil {
					return err
				}
			}
			if res, err = next(ctx, req); err == nil {
				c.Answer = res.Any()
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		return res, nil
	}
}

// run authorizes a call of a procedure and makes it. An error or a panic becomes an error of the
// contract. The call is measured, and audited if its procedure is.
func (e *interceptor) run(ctx context.Context, c *auth.Call, call func() error) (err error) {
	started := time.Now()
	defer func() {
		if p := recover(); p != nil {
			err = e.panicked(c, p)
		}
		took := time.Since(started)
		e.traffic.observe(c.Procedure, err, took)
		e.auditor.CallEnded(ctx, c, err, took)
	}()
	if err := e.authorizer.Authorize(ctx, c.Procedure); err != nil {
		return e.wire(c, err)
	}
	return e.wire(c, call())
}

// WrapStreamingHandler implements connect.Interceptor.
func (e *interceptor) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		c := &auth.Call{
			Procedure: conn.Spec().Procedure, Address: conn.Peer().Addr, ID: conn.RequestHeader().Get(auth.CallIDHeader),
		}
		return e.run(ctx, c, func() error { return next(ctx, &firstMessage{conn, c}) })
	}
}

// firstMessage records the first message of a stream for the audit log.
type firstMessage struct {
	connect.StreamingHandlerConn

	call *auth.Call
}

// Receive implements connect.StreamingHandlerConn.
func (f *firstMessage) Receive(message any) error {
	err := f.StreamingHandlerConn.Receive(message)
	if err == nil && f.call.Request == nil {
		f.call.Request = withoutData(message)
	}
	return err
}

// withoutData returns a message of a stream without its data.
func withoutData(message any) any {
	if m, ok := message.(*belfryv1.RestoreRequest); ok {
		return &belfryv1.RestoreRequest{Overdue: m.GetOverdue()}
	}
	return message
}

// WrapStreamingClient implements connect.Interceptor; the server has no clients.
func (e *interceptor) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// wire converts the error of a handler to one of the contract. It logs internal errors, of which
// the caller sees no details.
func (e *interceptor) wire(c *auth.Call, err error) error {
	if err == nil {
		return nil
	}
	if wire := new(connect.Error); errors.As(err, &wire) {
		return err
	}
	f := fault.Of(err)
	e.authorizer.Failures.CountCall(c, f)
	if f.Reason == belfryv1.Reason_REASON_INTERNAL {
		e.logger.Error("a call failed inside the server", slog.String("procedure", c.Procedure),
			slog.String("request_id", c.ID), slog.Any("error", err))
	}
	return f.Wire()
}

// panicked logs a panic and returns the error for the caller.
func (e *interceptor) panicked(c *auth.Call, p any) error {
	e.logger.Error("a call panicked", slog.String("procedure", c.Procedure), slog.String("request_id", c.ID),
		slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
	return fault.New(belfryv1.Reason_REASON_INTERNAL).Wire()
}

// takeRequestIDOf is takeRequestID for a request in any form.
func takeRequestIDOf(request any, header string) error {
	if r, ok := request.(interface{ Parsed() (proto.Message, error) }); ok {
		m, err := r.Parsed()
		if err != nil {
			return err
		}
		request = m
	}
	if m, ok := request.(proto.Message); ok {
		if f := takeRequestID(m.ProtoReflect(), header); f != nil {
			return f
		}
	}
	return nil
}

// takeRequestID sets the request id of a message from the header, if the message has such a field.
// It refuses two different ids.
func takeRequestID(m protoreflect.Message, header string) *fault.Error {
	if header == "" {
		return nil
	}
	field := m.Descriptor().Fields().ByName("request_id")
	if field == nil {
		return nil
	}
	if own := m.Get(field).String(); own != "" && own != header {
		return fault.Invalid("requestId", "it differs from the header %s", requestIDHeader)
	}
	if !validText(header) {
		return fault.Invalid("requestId", "the header %s is not valid UTF-8", requestIDHeader)
	}
	m.Set(field, protoreflect.ValueOfString(header))
	return nil
}

// traffic measures calls.
type traffic struct {
	duration *prometheus.HistogramVec
	// succeeded has the series of calls that succeeded, by procedure: to find one by its labels costs
	// more than to count a call.
	succeeded sync.Map
}

// newTraffic registers the measures.
func newTraffic(registry prometheus.Registerer) (*traffic, error) {
	t := &traffic{duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "belfry_rpc_duration_seconds",
		Help: "Time from the receipt of a request to its answer, by procedure and Connect code; long polls include " +
			"their wait.",
		Buckets: []float64{.0005, .001, .002, .005, .01, .02, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
	}, []string{"procedure", "code"})}
	if err := registry.Register(t.duration); err != nil {
		return nil, fmt.Errorf("registering the metrics of calls: %w", err)
	}
	return t, nil
}

// successes returns the series of the calls of a procedure that succeed, in seconds.
func (t *traffic) successes(procedure string) prometheus.Observer {
	series, ok := t.succeeded.Load(procedure)
	if !ok {
		series, _ = t.succeeded.LoadOrStore(procedure, t.duration.WithLabelValues(procedure, "ok"))
	}
	return series.(prometheus.Observer) //nolint:forcetypeassert // only observers are stored
}

// observe notes one call.
func (t *traffic) observe(procedure string, err error, took time.Duration) {
	if err != nil {
		t.duration.WithLabelValues(procedure, connect.CodeOf(err).String()).Observe(took.Seconds())
		return
	}
	t.successes(procedure).Observe(took.Seconds())
}
