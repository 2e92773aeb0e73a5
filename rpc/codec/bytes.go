package codec

import (
	"context"
	"errors"
	"sync"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/belfrydb/belfry/rpc/fault"
)

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
	codec   Binary
	message M
}

// keepBytes keeps a copy of the bytes of a request.
func (r *bytesRequest[M, P]) keepBytes(data []byte, codec Binary) {
	r.binary, r.codec = codec.Buffers.Get(), codec
	*r.binary = append((*r.binary)[:0], data...)
}

// generated returns the message for a codec to read into. From then on the message holds the
// request.
func (r *bytesRequest[M, P]) generated() proto.Message { return P(&r.message) }

// Parsed returns the message, which holds the request from then on. It returns the error of the
// codec if the bytes are not a message.
func (r *bytesRequest[M, P]) Parsed() (proto.Message, error) {
	if r.binary == nil {
		return P(&r.message), nil
	}
	data := *r.binary
	r.binary = nil
	return P(&r.message), Unreadable(r.codec.Unmarshal(data, P(&r.message)))
}

// Unreadable returns the fault for a request that a codec could not read, as Connect returns it
// where it calls the codec itself. It returns nil for nil.
func Unreadable(err error) error {
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
func (a *bytesAnswer) appendTo(dst []byte, memory *Buffers) ([]byte, error) {
	if a.binary == nil {
		return nil, errSpent
	}
	dst = append(dst, *a.binary...)
	memory.Put(a.binary)
	a.binary = nil
	return dst, nil
}

// BufferBytesKept is the size up to which the memory of requests and answers is reused.
const BufferBytesKept = 1 << 20

// Buffers is a pool of memory. If it is nil, all memory is allocated anew.
type Buffers struct{ pool sync.Pool }

// Get returns an empty buffer for the caller alone.
func (b *Buffers) Get() *[]byte {
	if b != nil {
		if buffer, ok := b.pool.Get().(*[]byte); ok {
			*buffer = (*buffer)[:0]
			return buffer
		}
	}
	return new([]byte)
}

// Put returns a buffer to the pool. Its last user must be done with it.
func (b *Buffers) Put(buffer *[]byte) {
	if b != nil && cap(*buffer) <= BufferBytesKept {
		b.pool.Put(buffer)
	}
}

// Handler returns a method as a Connect procedure, with both of its paths. slow works on the
// generated messages. fast appends the answer to the bytes of a request to dst, and keeps nothing
// of the request.
func Handler[M, A any, P pointer[M], Q pointer[A]](
	procedure string, slow func(context.Context, *M) (*A, error),
	fast func(ctx context.Context, request, dst []byte) ([]byte, error),
	options []connect.HandlerOption, memory *Buffers,
) *connect.Handler {
	return connect.NewUnaryHandlerSimple(procedure,
		func(ctx context.Context, req *bytesRequest[M, P]) (*bytesAnswer, error) {
			if req.binary == nil {
				answer, err := slow(ctx, &req.message)
				return &bytesAnswer{message: Q(answer)}, err
			}
			out := memory.Get()
			var err error
			*out, err = fast(ctx, *req.binary, *out)
			memory.Put(req.binary)
			return &bytesAnswer{binary: out}, err
		}, options...)
}

// SlowPath carries out a binary request by a method on the generated messages: for requests with
// anything rare or wrong.
func SlowPath[M, A any, P pointer[M], Q pointer[A]](
	ctx context.Context, codec Binary, request, dst []byte, method func(context.Context, *M) (*A, error),
) ([]byte, error) {
	req := new(M)
	if err := Unreadable(codec.Unmarshal(request, P(req))); err != nil {
		return nil, err
	}
	answer, err := method(ctx, req)
	if err != nil {
		return nil, err
	}
	return codec.MarshalAppend(dst, Q(answer))
}
