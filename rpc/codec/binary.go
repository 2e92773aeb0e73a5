package codec

import (
	"fmt"

	"google.golang.org/protobuf/proto"
)

// codecBinary is the name under which Connect and gRPC look for the binary codec.
const codecBinary = "proto"

// Binary is binary protobuf by the generated code. The bytes of a bytesRequest and of its
// answer pass unchanged between the codec and the method.
type Binary struct {
	// Bounds, if set, refuses requests with too many elements.
	Bounds Bounds
	// Buffers provides the memory of a bytesRequest, and takes back that of its answer.
	Buffers *Buffers
}

// Name returns the name under which the codec is registered.
func (Binary) Name() string { return codecBinary }

// Marshal returns the message as bytes.
func (c Binary) Marshal(message any) ([]byte, error) { return c.MarshalAppend(nil, message) }

// MarshalAppend appends the message to dst, so that Connect can reuse its buffers.
func (c Binary) MarshalAppend(dst []byte, message any) ([]byte, error) {
	if answer, ok := message.(*bytesAnswer); ok && answer.message == nil {
		return answer.appendTo(dst, c.Buffers)
	}
	m, ok := generatedOf(message)
	if !ok {
		return nil, fmt.Errorf("marshalling: %T is no protobuf message", message)
	}
	return proto.MarshalOptions{}.MarshalAppend(dst, m)
}

// MarshalStable returns the same bytes for the same message and version of the program.
func (Binary) MarshalStable(message any) ([]byte, error) {
	m, ok := generatedOf(message)
	if !ok {
		return nil, fmt.Errorf("marshalling: %T is no protobuf message", message)
	}
	return proto.MarshalOptions{Deterministic: true}.Marshal(m)
}

// IsBinary returns true: the bytes are not text.
func (Binary) IsBinary() bool { return true }

// Unmarshal reads the message. It keeps no part of data, which Connect reuses.
func (c Binary) Unmarshal(data []byte, message any) error {
	if r, ok := message.(interface{ keepBytes([]byte, Binary) }); ok {
		r.keepBytes(data, c)
		return nil
	}
	m, ok := message.(proto.Message)
	if !ok {
		return fmt.Errorf("unmarshalling: %T is no protobuf message", message)
	}
	if err := c.Bounds.CheckBinary(data, m); err != nil {
		return err
	}
	if err := proto.Unmarshal(data, m); err != nil {
		return fmt.Errorf("unmarshal into %T: %w", message, err)
	}
	return nil
}

// generatedOf returns the generated message of a message that a codec was given: the message
// itself, or the one in a bytesRequest or in its answer.
func generatedOf(message any) (proto.Message, bool) {
	if r, ok := message.(interface{ generated() proto.Message }); ok {
		return r.generated(), true
	}
	m, ok := message.(proto.Message)
	return m, ok
}
