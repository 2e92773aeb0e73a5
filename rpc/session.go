package rpc

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/belfrydb/belfry/rpc/auth"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/inbound"
	"github.com/belfrydb/belfry/stream"
)

const (
	// sessionSilence is how long a session may be silent: clients send a Ping more often.
	sessionSilence = 45 * time.Second
	// sessionCallsMax bounds the calls of one session that are in flight.
	sessionCallsMax = 8192
)

// sessionMethod is a method that sessions carry. call appends the answer to dst, and keeps no part
// of the request.
type sessionMethod struct {
	procedure string
	call      func(ctx context.Context, request, dst []byte) (answer []byte, err error)
}

// mountSessions names the methods that sessions carry, and what bounds them.
func (h *handler) mountSessions() {
	h.sessionMethods = map[stream.Method]sessionMethod{
		stream.PutBatch: {belfryv1connect.QueueServicePutBatchProcedure, h.queues.PutBatchBytes},
		stream.AckBatch: {belfryv1connect.QueueServiceAckBatchProcedure, h.queues.AckBatchBytes},
		stream.Reserve:  {belfryv1connect.QueueServiceReserveProcedure, h.queues.ReserveBytes},
	}
	h.sessions = stream.NewServer(&stream.ServerConfig{
		Protocol: stream.SessionProtocol, Headers: []string{"Belfry-Served-By", auth.CallIDHeader},
		Leaving: h.drain.Started, Now: h.now,
		Silence: sessionSilence, RequestWait: h.limits.BodyWait, Write: stream.Limit{Wait: h.limits.ResponseWait},
		CallsMax: sessionCallsMax, RequestBytesMax: h.limits.MessageBytesMax, UnwrittenBytesMax: inbound.BytesInFlightMax,
	})
}

// serveSession upgrades a connection, and carries out its calls until it ends.
func (h *handler) serveSession(w http.ResponseWriter, r *http.Request) {
	if !stream.Asked(w, r, stream.SessionProtocol, "this path is for sessions of Belfry's SDK") {
		return
	}
	if h.drain.HasStarted() {
		h.writeFault(w, r, fault.New(belfryv1.Reason_REASON_SHUTTING_DOWN))
		return
	}
	host := &sessionHost{handler: h, address: r.RemoteAddr, id: r.Header.Get(auth.CallIDHeader)}
	if err := h.sessions.Serve(w, r, host); err != nil {
		h.writeFault(w, r, fault.Of(err))
	}
}

// sessionHost carries out the calls of one session.
type sessionHost struct {
	handler *handler
	address string // of the client
	id      string // names its calls in the log
}

// Knows implements stream.Host.
func (s *sessionHost) Knows(m stream.Method) bool { return s.handler.sessionMethods[m].call != nil }

// Allowed implements stream.Host. It refuses a client whose token has ended.
func (s *sessionHost) Allowed(ctx context.Context) error {
	if f := s.handler.authorizer.Authorize(ctx, stream.SessionPath); f != nil {
		return f
	}
	return nil
}

// Hold implements stream.Host. The bytes count against those of all bodies.
func (s *sessionHost) Hold(bytes int64) bool {
	if s.handler.bodyBytesInFlight.Add(bytes) > inbound.BytesInFlightMax {
		s.Release(bytes)
		return false
	}
	return true
}

// Release implements stream.Host.
func (s *sessionHost) Release(bytes int64) { s.handler.bodyBytesInFlight.Add(-bytes) }

// Buffer implements stream.Host.
func (s *sessionHost) Buffer() *[]byte { return s.handler.buffers.Get() }

// Recycle implements stream.Host.
func (s *sessionHost) Recycle(buffer *[]byte) { s.handler.buffers.Put(buffer) }

// Do implements stream.Host.
func (s *sessionHost) Do(ctx context.Context, t *stream.Task, dst []byte) (answer []byte, err error) {
	method := s.handler.sessionMethods[t.Method]
	call := &auth.Call{Procedure: method.procedure, Address: s.address, ID: s.id}
	err = s.handler.interceptor.run(ctx, call, func() (err error) {
		answer, err = method.call(ctx, t.Request, dst)
		return err
	})
	s.handler.requestBytes.observe(method.procedure, int64(len(t.Request)))
	return answer, err
}

// Failure implements stream.Host.
func (s *sessionHost) Failure(err error) ([]byte, error) {
	if refused, ok := errors.AsType[*stream.Refusal](err); ok {
		err = s.refusal(refused).Wire()
	}
	return proto.Marshal(statusOfError(err))
}

// refusal says why a call was not carried out.
func (s *sessionHost) refusal(r *stream.Refusal) *fault.Error {
	switch r.Reason {
	case stream.TooLarge:
		return fault.TooLarge("request", r.Size, s.handler.limits.MessageBytesMax)
	case stream.NumberInUse:
		return fault.Invalid("call", "a call with the number %d is under way", r.ID)
	case stream.ServerLeaves:
		return fault.New(belfryv1.Reason_REASON_SHUTTING_DOWN)
	case stream.TooManyCalls:
		f := fault.New(belfryv1.Reason_REASON_OVERLOADED)
		f.Message = "more than " + strconv.Itoa(sessionCallsMax) +
			" calls of a session are under way, which is the limit"
		return f
	case stream.TooManyAnswers, stream.NoRequestMemory:
	}
	return fault.New(belfryv1.Reason_REASON_OVERLOADED)
}

// statusOfError converts an error of the interceptor.
func statusOfError(err error) *status.Status {
	var wire *connect.Error
	if !errors.As(err, &wire) {
		wire = fault.Of(err).Wire()
	}
	out := &status.Status{Code: int32(wire.Code()), Message: wire.Message()} //nolint:gosec // below 17
	for _, detail := range wire.Details() {
		out.Details = append(out.Details, &anypb.Any{TypeUrl: "type.googleapis.com/" + detail.Type(), Value: detail.Bytes()})
	}
	return out
}
