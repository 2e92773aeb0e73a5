package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/belfrydb/belfry/client/internal/failure"
	"github.com/belfrydb/belfry/client/internal/requestid"
	"github.com/belfrydb/belfry/stream"
)

// openSessions are the sessions of a client that have not ended. A session is a connection to a
// server that carries many calls at once.
type openSessions struct {
	stream.Callers
	requests sync.Pool // of *[]byte that are free
}

const (
	// sessionIdle is how long an unused session is kept.
	sessionIdle = 2 * time.Minute
	// sessionNumbers bounds what the protocol does not: calls without an answer, and an answer's
	// bytes.
	sessionNumbers = 1<<31 - 1
)

// sessionConfig returns the limits of sessions. Answers set the clock.
func sessionConfig(clock *requestid.Clock) *stream.CallerConfig {
	return &stream.CallerConfig{
		PingAfter: pingAfter, PingTimeout: pingTimeout, Idle: sessionIdle, Write: stream.Limit{Wait: attemptTimeout},
		CallsMax: sessionNumbers, AnswerBytesMax: sessionNumbers,
		Learn: func(sent time.Time, number int64) { clock.Learn(sent, time.UnixMilli(number), time.Millisecond) },
	}
}

// lost wraps the error that ended a call in an error with the Connect code for it.
func lost(cause error) error {
	code := connect.CodeUnavailable
	switch {
	case errors.Is(cause, context.Canceled):
		code = connect.CodeCanceled
	case errors.Is(cause, context.DeadlineExceeded):
		code = connect.CodeDeadlineExceeded
	}
	return connect.NewError(code, cause)
}

// callInSession makes one call and decodes its answer. The request's memory may be reused when it
// returns.
func callInSession(
	ctx context.Context, s *stream.Caller, method stream.Method, request []byte, answer wireDecoder,
) error {
	call := stream.Request{Method: method, Payload: request}
	if deadline, ok := ctx.Deadline(); ok {
		call.Number = max(1, time.Until(deadline).Milliseconds())
	}
	reply, err := s.Call(ctx, call)
	if unsent, ok := errors.AsType[*stream.UnsentError](err); ok {
		return failure.NotSent(lost(unsent.Cause))
	}
	if err != nil {
		return lost(err)
	}
	defer reply.Free()
	if reply.Failed {
		return sessionFailure(reply.Payload)
	}
	if err := answer.decodeWire(reply.Payload); err != nil {
		return undecodable(err)
	}
	return nil
}

// undecodable is the error of an answer that makes no sense. It would be the same again.
func undecodable(err error) error {
	return connect.NewError(connect.CodeInternal, fmt.Errorf("decoding an answer: %w", err))
}

// sessionFailure decodes why a call failed.
func sessionFailure(payload []byte) error {
	var said status.Status
	if err := proto.Unmarshal(payload, &said); err != nil {
		return undecodable(err)
	}
	wire := connect.NewWireError(connect.Code(said.GetCode()),
		errors.New(said.GetMessage())) //nolint:gosec // one that is unknown stays so
	for _, detail := range said.GetDetails() {
		if known, err := detail.UnmarshalNew(); err == nil { // this version cannot use a detail of a later one
			if d, err := connect.NewErrorDetail(known); err == nil {
				wire.AddDetail(d)
			}
		}
	}
	return wire
}
