package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/belfrydb/belfry/client/internal/failure"
	"github.com/belfrydb/belfry/stream"
)

// A Set has the sessions of a client that have not ended, with all its servers.
type Set struct {
	stream.Callers
	requests sync.Pool // of *[]byte that are free
}

const (
	// PingAfter is after what silence a server gets a ping. A host that vanished breaks its
	// connections in no other way for many minutes.
	PingAfter = 10 * time.Second
	// PingTimeout is how long the answer to a ping may take before the connection is given up.
	PingTimeout = 5 * time.Second
	// Idle is how long an unused session is kept.
	Idle = 2 * time.Minute
	// numbers bounds what the protocol does not: calls without an answer, and an answer's bytes.
	numbers = 1<<31 - 1
)

// Callers returns the limits of sessions. Answers set the clock.
func (c *Config) Callers() *stream.CallerConfig {
	return &stream.CallerConfig{
		PingAfter: PingAfter, PingTimeout: PingTimeout, Idle: Idle, Write: stream.Limit{Wait: c.WriteWait},
		CallsMax: numbers, AnswerBytesMax: numbers,
		Learn: func(sent time.Time, number int64) { c.Clock.Learn(sent, time.UnixMilli(number), time.Millisecond) },
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

// Call makes one call and decodes its answer. The request's memory may be reused when it returns.
func Call(
	ctx context.Context, s *stream.Caller, method stream.Method, request []byte, answer Answer,
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
		return failureIn(reply.Payload)
	}
	if err := answer.DecodeWire(reply.Payload); err != nil {
		return Undecodable(err)
	}
	return nil
}

// Undecodable returns the error of an answer that makes no sense. It would be the same again.
func Undecodable(err error) error {
	return connect.NewError(connect.CodeInternal, fmt.Errorf("decoding an answer: %w", err))
}

// failureIn decodes why a call failed.
func failureIn(payload []byte) error {
	var said status.Status
	if err := proto.Unmarshal(payload, &said); err != nil {
		return Undecodable(err)
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

// An Answer decodes itself. It does not keep data.
type Answer interface{ DecodeWire(data []byte) error }

// Request returns memory for the request of a call, with room for size bytes.
func (p *Server) Request(size int) *[]byte {
	request := new([]byte)
	if p != nil {
		if used, ok := p.cfg.Set.requests.Get().(*[]byte); ok {
			request = used
		}
	}
	*request = slices.Grow((*request)[:0], size)
	return request
}

// Free lets another request reuse the memory. It drops a large piece.
func (p *Server) Free(request *[]byte) {
	if cap(*request) <= RequestBytesKept {
		p.cfg.Set.requests.Put(request)
	}
}

// RequestBytesKept is the size up to which the memory of a request is reused.
const RequestBytesKept = 256 << 10
