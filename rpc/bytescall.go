package rpc

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
)

// PutBatch, AckBatch and Reserve are most of the work of a server of many small jobs. In binary they go from the bytes of a request to the bytes of an
// answer, and no message is made on the way unless something in them is rare. The types here carry those bytes through Connect.

// pointer is a generated message of type M.
type pointer[M any] interface {
	*M
	proto.Message
}

// bytesRequest is a request as it came: the bytes of a binary one, else the generated message.
type bytesRequest[M any, P pointer[M]] struct {
	// binary is nil if the message counts; codec reads it.
	binary  *[]byte
	codec   binaryCodec
	message M
}

// take keeps a copy of the bytes of a request.
func (r *bytesRequest[M, P]) take(data []byte, codec binaryCodec) {
	r.binary, r.codec = codec.buffers.get(), codec
	*r.binary = append((*r.binary)[:0], data...)
}

// generated returns the message, which counts from now on, for a codec that reads it.
func (r *bytesRequest[M, P]) generated() proto.Message { return P(&r.message) }

// parsed returns the message, which counts from now on. The error is what the codec says of bytes that are none.
func (r *bytesRequest[M, P]) parsed() (proto.Message, error) {
	if r.binary == nil {
		return P(&r.message), nil
	}
	data := *r.binary
	r.binary = nil
	return P(&r.message), unreadable(r.codec.Unmarshal(data, P(&r.message)))
}

// unreadable returns the fault for a request that a codec could not read, as it is where Connect calls the codec; nil for nil.
func unreadable(err error) error {
	if err == nil {
		return nil
	}
	return explain(connect.CodeInvalidArgument, "unmarshal message: "+err.Error())
}

// bytesAnswer is the answer to a bytesRequest, in the form of that.
type bytesAnswer struct {
	binary  *[]byte
	message proto.Message
}

// generated returns the message of an answer that is not binary.
func (a *bytesAnswer) generated() proto.Message { return a.message }

// errSpent is returned for an answer that was written before.
var errSpent = errors.New("the bytes of this answer were written before")

// appendTo appends the bytes of a binary answer to dst and gives their memory back.
func (a *bytesAnswer) appendTo(dst []byte, memory *buffers) ([]byte, error) {
	if a.binary == nil {
		return nil, errSpent
	}
	dst = append(dst, *a.binary...)
	memory.put(a.binary)
	a.binary = nil
	return dst, nil
}

// bufferBytesKept is the size up to which the memory of requests and answers is used again.
const bufferBytesKept = 1 << 20

// buffers are memory that is used again. Nil makes all of it anew.
type buffers struct{ pool sync.Pool }

// get returns memory that nobody else has, without content.
func (b *buffers) get() *[]byte {
	if b != nil {
		if buffer, ok := b.pool.Get().(*[]byte); ok {
			*buffer = (*buffer)[:0]
			return buffer
		}
	}
	return new([]byte)
}

// put gives memory back. Nobody has a use for it any more.
func (b *buffers) put(buffer *[]byte) {
	if b != nil && cap(*buffer) <= bufferBytesKept {
		b.pool.Put(buffer)
	}
}

// bytesHandler returns a method as a Connect procedure, in both of its forms: plain has the generated messages, quick appends the answer to the bytes of a
// request to dst, and keeps nothing of the request.
func bytesHandler[M, A any, P pointer[M], Q pointer[A]](
	procedure string, plain func(context.Context, *M) (*A, error), quick func(ctx context.Context, request, dst []byte) ([]byte, error),
	options []connect.HandlerOption, memory *buffers,
) *connect.Handler {
	return connect.NewUnaryHandlerSimple(procedure, func(ctx context.Context, req *bytesRequest[M, P]) (*bytesAnswer, error) {
		if req.binary == nil {
			answer, err := plain(ctx, &req.message)
			return &bytesAnswer{message: Q(answer)}, err
		}
		out := memory.get()
		var err error
		*out, err = quick(ctx, *req.binary, *out)
		memory.put(req.binary)
		return &bytesAnswer{binary: out}, err
	}, options...)
}

// viaMessage is a quick method by the plain one: for what is rare in a request, or wrong.
func viaMessage[M, A any, P pointer[M], Q pointer[A]](
	ctx context.Context, codec binaryCodec, request, dst []byte, plain func(context.Context, *M) (*A, error),
) ([]byte, error) {
	req := new(M)
	if err := unreadable(codec.Unmarshal(request, P(req))); err != nil {
		return nil, err
	}
	answer, err := plain(ctx, req)
	if err != nil {
		return nil, err
	}
	return codec.MarshalAppend(dst, Q(answer))
}

// quickMethods returns the handlers of the methods that go from bytes to bytes, by their procedures.
func (s *queueService) quickMethods(options []connect.HandlerOption) map[string]http.Handler {
	const put, ack, reserve = belfryv1connect.QueueServicePutBatchProcedure, belfryv1connect.QueueServiceAckBatchProcedure, belfryv1connect.QueueServiceReserveProcedure
	memory := s.quick.codec.buffers
	return map[string]http.Handler{
		put:     bytesHandler(put, s.PutBatch, s.putBatchBytes, options, memory),
		ack:     bytesHandler(ack, s.AckBatch, s.ackBatchBytes, options, memory),
		reserve: bytesHandler(reserve, s.Reserve, s.reserveBytes, options, memory),
	}
}
