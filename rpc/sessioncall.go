package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
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
	"github.com/belfrydb/belfry/rpc/frame"
)

// readCall reads a call and starts it.
func (s *session) readCall(h frame.Header) error {
	method := s.handler.sessionMethods[h.Method]
	if method.call == nil {
		return fmt.Errorf("a client called method %d", h.Method)
	}
	ctx, refused := s.beginCall(h)
	if refused != nil {
		if _, err := s.in.Discard(int(h.Size)); err != nil {
			return err
		}
		return s.fail(h.ID, refused.Wire())
	}
	request := s.handler.buffers.Get()
	refused, err := s.receive(int(h.Size), request)
	if refused == nil && err == nil {
		s.start(func() { s.answer(ctx, h, method, request) })
		return nil
	}
	s.forget(h.ID)
	s.finishCall()
	if err != nil {
		return err
	}
	return s.fail(h.ID, refused.Wire())
}

// sessionIdleMax is how many idle goroutines of all sessions are kept: a new goroutine would first
// have to grow its stack to the size that a call needs.
const sessionIdleMax = 512

// start runs a call in an idle goroutine, or in a new one.
func (s *session) start(call func()) {
	select {
	case s.work <- call:
	default:
		s.answering.Go(func() { s.carryOut(call) })
	}
}

// carryOut runs a call, and then others of the session, until the session ends or too many
// goroutines are idle.
func (s *session) carryOut(call func()) {
	idle := &s.handler.sessions.idle
	for {
		call()
		if idle.Add(1) > sessionIdleMax {
			idle.Add(-1)
			return
		}
		next, ok := <-s.work
		idle.Add(-1)
		if !ok {
			return
		}
		call = next
	}
}

// receive reads a request. It counts the bytes before it allocates memory for them.
func (s *session) receive(size int, request *[]byte) (*fault.Error, error) {
	inFlight := &s.handler.bodyBytesInFlight
	for have := 0; have < size; {
		piece := frame.Piece(have, size)
		held := int64(have + piece)
		if inFlight.Add(int64(piece)) > bodyBytesInFlightMax {
			inFlight.Add(-held)
			_, err := s.in.Discard(size - have)
			return fault.New(belfryv1.Reason_REASON_OVERLOADED), err
		}
		*request = slices.Grow((*request)[:have], piece)[:have+piece]
		if _, err := io.ReadFull(s.in, (*request)[have:]); err != nil {
			inFlight.Add(-held)
			return nil, err
		}
		have += piece
	}
	return nil, nil
}

// beginCall registers a call. The context of the call ends with the session and with no other call.
// forget must be called before the call is answered, and finishCall afterwards.
func (s *session) beginCall(h frame.Header) (context.Context, *fault.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch _, used := s.calls[h.ID]; {
	case int64(h.Size) > int64(s.handler.limits.MessageBytesMax):
		return nil, fault.TooLarge("request", int(h.Size), s.handler.limits.MessageBytesMax)
	case used:
		return nil, fault.Invalid("call", "a call with the number %d is under way", h.ID)
	case s.leaving:
		return nil, fault.New(belfryv1.Reason_REASON_SHUTTING_DOWN)
	case s.working >= sessionCallsMax:
		f := fault.New(belfryv1.Reason_REASON_OVERLOADED)
		f.Message = "more than " + strconv.Itoa(sessionCallsMax) + " calls of a session are under way, which is the limit"
		return nil, f
	}
	ctx, cancel := s.ctx, context.CancelFunc(nil)
	if h.Number > 0 {
		ctx, cancel = context.WithTimeout(ctx, time.Duration(min(h.Number, callWaitMax.Milliseconds()))*time.Millisecond)
	} else {
		ctx, cancel = context.WithCancel(ctx)
	}
	s.calls[h.ID] = cancel
	s.working++
	return ctx, nil
}

// forget lets the client use the number of a call again.
func (s *session) forget(id uint32) {
	s.cancelCall(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.calls, id)
}

// finishCall records that a call has been answered.
func (s *session) finishCall() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.working--
	s.stopReadingIfIdle()
}

// answer carries out a call and answers it.
func (s *session) answer(ctx context.Context, h frame.Header, method sessionMethod, request *[]byte) {
	defer s.finishCall()
	answer := s.handler.buffers.Get()
	err := s.handler.interceptor.run(ctx, &auth.Call{Procedure: method.procedure, Address: s.address, ID: s.id}, func() (err error) {
		*answer, err = method.call(ctx, *request, *answer)
		return err
	})
	s.handler.bodyBytesInFlight.Add(-int64(h.Size))
	s.handler.requestBytes.observe(method.procedure, int64(h.Size))
	s.handler.buffers.Put(request)
	s.forget(h.ID)
	if err != nil {
		err = s.fail(h.ID, err)
	} else {
		err = s.out.Send(s.ctx, frame.Header{Kind: frame.Answer, ID: h.ID, Number: s.handler.queues.now().UnixMilli()}, *answer) //nolint:contextcheck // the call's has ended
	}
	if err != nil {
		s.cancel()
	}
	s.handler.buffers.Put(answer)
}

// fail answers a call with an error.
func (s *session) fail(id uint32, err error) error {
	payload, encodeErr := proto.Marshal(statusOfError(err))
	if encodeErr != nil {
		return encodeErr
	}
	return s.out.Send(s.ctx, frame.Header{Kind: frame.Failure, ID: id, Number: s.handler.queues.now().UnixMilli()}, payload)
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

// sessionMethod is a method that sessions carry. call appends the answer to dst, and keeps no part
// of the request.
type sessionMethod struct {
	procedure string
	call      func(ctx context.Context, request, dst []byte) (answer []byte, err error)
}

// mountSessions names the methods that sessions carry.
func (h *handler) mountSessions() {
	h.sessionMethods = map[frame.Method]sessionMethod{
		frame.PutBatch: {belfryv1connect.QueueServicePutBatchProcedure, h.queues.putBatchBytes},
		frame.AckBatch: {belfryv1connect.QueueServiceAckBatchProcedure, h.queues.ackBatchBytes},
		frame.Reserve:  {belfryv1connect.QueueServiceReserveProcedure, h.queues.reserveBytes},
	}
}
