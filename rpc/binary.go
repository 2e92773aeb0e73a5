package rpc

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// codecBinary is the name under which Connect and gRPC look for the binary codec.
const codecBinary = "proto"

// binaryCodec is binary protobuf by the generated code, except that PutBatch's requests and the answers of PutBatch, AckBatch
// and Reserve are read and written by hand in their common form: they are most of the work of a server of many small jobs. What
// is not in that form is left to the generated code, so that every message means what it means there; see FuzzBatchWire.
type binaryCodec struct {
	// bounds, if set, refuse requests with too many elements.
	bounds bounds
}

// Name returns the name under which the codec is registered.
func (binaryCodec) Name() string { return codecBinary }

// Marshal returns the message as bytes.
func (c binaryCodec) Marshal(message any) ([]byte, error) { return c.MarshalAppend(nil, message) }

// MarshalAppend appends the message to dst, by which Connect uses its buffers again.
func (binaryCodec) MarshalAppend(dst []byte, message any) ([]byte, error) {
	var out []byte
	var ok bool
	switch m := message.(type) {
	case *belfryv1.PutBatchResponse:
		out, ok = appendPutBatch(dst, m)
	case *belfryv1.AckBatchResponse:
		out, ok = appendAckBatch(dst, m)
	case *belfryv1.ReserveResponse:
		out, ok = appendReserve(dst, m)
	}
	if ok {
		return out, nil
	}
	m, ok := message.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("marshalling: %T is no protobuf message", message)
	}
	return proto.MarshalOptions{}.MarshalAppend(dst, m)
}

// MarshalStable returns the same bytes for the same message and version of the program.
func (binaryCodec) MarshalStable(message any) ([]byte, error) {
	m, ok := message.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("marshalling: %T is no protobuf message", message)
	}
	return proto.MarshalOptions{Deterministic: true}.Marshal(m)
}

// IsBinary returns true: the bytes are no text.
func (binaryCodec) IsBinary() bool { return true }

// Unmarshal reads the message. It keeps nothing of data, which Connect uses again.
func (c binaryCodec) Unmarshal(data []byte, message any) error {
	m, ok := message.(proto.Message)
	if !ok {
		return fmt.Errorf("unmarshalling: %T is no protobuf message", message)
	}
	if err := c.bounds.binary(data, m); err != nil {
		return err
	}
	if batch, ok := message.(*belfryv1.PutBatchRequest); ok && readPutBatch(data, batch) {
		return nil
	}
	if err := proto.Unmarshal(data, m); err != nil {
		return fmt.Errorf("unmarshal into %T: %w", message, err)
	}
	return nil
}

// slabMax bounds how many values a slab makes at once.
const slabMax = 128

// slab makes values of one type many at a time: one by one they would be most of the garbage of a batch. None of them is
// collected before all of them are unused.
type slab[T any] struct{ free []T }

// next returns a zero value. ahead is how many are likely to be asked for, this one included.
func (s *slab[T]) next(ahead int) *T {
	if len(s.free) == 0 {
		s.free = make([]T, max(1, min(ahead, slabMax)))
	}
	v := &s.free[0]
	s.free = s.free[1:]
	return v
}

// texts makes strings in memory that they share.
type texts struct{ all strings.Builder }

// add returns text as a string. sizeAhead is how many bytes are likely to be added in all, these included; it counts when
// there is nothing yet.
func (t *texts) add(text []byte, sizeAhead int) string {
	if t.all.Cap() == 0 {
		t.all.Grow(sizeAhead)
	}
	start := t.all.Len()
	t.all.Write(text)
	return t.all.String()[start:]
}
