package rpc

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/wire"
)

// PutBatch, AckBatch and Reserve are most of the work of a server of many small jobs. In binary they take
// the fast path: from the bytes of a request to the bytes of an answer, without a message in between. A
// request with a rare field takes the slow path, with generated messages. The types here carry the bytes
// through Connect.

// fastPath holds what the methods with a fast path need besides the service.
type fastPath struct {
	codec binaryCodec
	// puts and acks hold the memory of finished batches, for reuse.
	puts, acks sync.Pool
}

// pointer is a generated message of type M.
type pointer[M any] interface {
	*M
	proto.Message
}

// bytesRequest is a request as it was received: the bytes of a binary one, else the generated
// message.
type bytesRequest[M any, P pointer[M]] struct {
	// binary is nil if the message counts; codec reads it.
	binary  *[]byte
	codec   binaryCodec
	message M
}

// keepBytes keeps a copy of the bytes of a request.
func (r *bytesRequest[M, P]) keepBytes(data []byte, codec binaryCodec) {
	r.binary, r.codec = codec.buffers.get(), codec
	*r.binary = append((*r.binary)[:0], data...)
}

// generated returns the message for a codec to read into. From then on the message holds the
// request.
func (r *bytesRequest[M, P]) generated() proto.Message { return P(&r.message) }

// parsed returns the message, which holds the request from then on. It returns the error of the
// codec if the bytes are not a message.
func (r *bytesRequest[M, P]) parsed() (proto.Message, error) {
	if r.binary == nil {
		return P(&r.message), nil
	}
	data := *r.binary
	r.binary = nil
	return P(&r.message), unreadable(r.codec.Unmarshal(data, P(&r.message)))
}

// unreadable returns the fault for a request that a codec could not read, as Connect returns it
// where it calls the codec itself. It returns nil for nil.
func unreadable(err error) error {
	if err == nil {
		return nil
	}
	return fault.Explain(connect.CodeInvalidArgument, "unmarshal message: "+err.Error())
}

// bytesAnswer is the answer to a bytesRequest, in the same form.
type bytesAnswer struct {
	binary  *[]byte
	message proto.Message
}

// generated returns the message of an answer that is not binary.
func (a *bytesAnswer) generated() proto.Message { return a.message }

// errSpent is returned for an answer that was written before.
var errSpent = errors.New("the bytes of this answer were written before")

// appendTo appends the bytes of a binary answer to dst and returns their memory to the pool.
func (a *bytesAnswer) appendTo(dst []byte, memory *buffers) ([]byte, error) {
	if a.binary == nil {
		return nil, errSpent
	}
	dst = append(dst, *a.binary...)
	memory.put(a.binary)
	a.binary = nil
	return dst, nil
}

// bufferBytesKept is the size up to which the memory of requests and answers is reused.
const bufferBytesKept = 1 << 20

// buffers is a pool of memory. If it is nil, all memory is allocated anew.
type buffers struct{ pool sync.Pool }

// get returns an empty buffer for the caller alone.
func (b *buffers) get() *[]byte {
	if b != nil {
		if buffer, ok := b.pool.Get().(*[]byte); ok {
			*buffer = (*buffer)[:0]
			return buffer
		}
	}
	return new([]byte)
}

// put returns a buffer to the pool. Its last user must be done with it.
func (b *buffers) put(buffer *[]byte) {
	if b != nil && cap(*buffer) <= bufferBytesKept {
		b.pool.Put(buffer)
	}
}

// bytesHandler returns a method as a Connect procedure, with both of its paths. slow works on the
// generated messages. fast appends the answer to the bytes of a request to dst, and keeps nothing
// of the request.
func bytesHandler[M, A any, P pointer[M], Q pointer[A]](
	procedure string, slow func(context.Context, *M) (*A, error), fast func(ctx context.Context, request, dst []byte) ([]byte, error),
	options []connect.HandlerOption, memory *buffers,
) *connect.Handler {
	return connect.NewUnaryHandlerSimple(procedure, func(ctx context.Context, req *bytesRequest[M, P]) (*bytesAnswer, error) {
		if req.binary == nil {
			answer, err := slow(ctx, &req.message)
			return &bytesAnswer{message: Q(answer)}, err
		}
		out := memory.get()
		var err error
		*out, err = fast(ctx, *req.binary, *out)
		memory.put(req.binary)
		return &bytesAnswer{binary: out}, err
	}, options...)
}

// slowPath carries out a binary request by a method on the generated messages: for requests with
// anything rare or wrong.
func slowPath[M, A any, P pointer[M], Q pointer[A]](
	ctx context.Context, codec binaryCodec, request, dst []byte, method func(context.Context, *M) (*A, error),
) ([]byte, error) {
	req := new(M)
	if err := unreadable(codec.Unmarshal(request, P(req))); err != nil {
		return nil, err
	}
	answer, err := method(ctx, req)
	if err != nil {
		return nil, err
	}
	return codec.MarshalAppend(dst, Q(answer))
}

// fastPathHandlers returns the handlers of the methods that have a fast path, by their procedures.
func (s *queueService) fastPathHandlers(options []connect.HandlerOption) map[string]http.Handler {
	const put, ack, reserve = belfryv1connect.QueueServicePutBatchProcedure, belfryv1connect.QueueServiceAckBatchProcedure, belfryv1connect.QueueServiceReserveProcedure
	memory := s.fastPath.codec.buffers
	return map[string]http.Handler{
		put:     bytesHandler(put, s.PutBatch, s.putBatchBytes, options, memory),
		ack:     bytesHandler(ack, s.AckBatch, s.ackBatchBytes, options, memory),
		reserve: bytesHandler(reserve, s.Reserve, s.reserveBytes, options, memory),
	}
}

// reserveBytes is the fast path of Reserve. It appends the bytes of the answer to dst, and keeps no
// part of the request. Its errors are faults.
func (s *queueService) reserveBytes(ctx context.Context, request, dst []byte) ([]byte, error) {
	var req belfryv1.ReserveRequest
	if err := unreadable(s.fastPath.codec.Unmarshal(request, &req)); err != nil {
		return nil, err
	}
	p, err := s.reserve(ctx, &req)
	if err != nil {
		return nil, err
	}
	return wire.AppendReserve(dst, p.jobs, p.witnesses)
}
