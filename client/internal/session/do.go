package session

import (
	"context"
	"fmt"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/belfrydb/belfry/stream"
)

// A RawRequest is a request that is already encoded.
type RawRequest []byte

// Codec is the binary protobuf encoding, for messages and for answers that decode themselves.
type Codec struct{}

// Name implements connect.Codec.
func (Codec) Name() string { return "proto" }

// Marshal implements connect.Codec.
func (c Codec) Marshal(message any) ([]byte, error) { return c.MarshalAppend(nil, message) }

// MarshalAppend implements an interface of Connect that lets Connect reuse its buffers.
func (Codec) MarshalAppend(dst []byte, message any) ([]byte, error) {
	if raw, ok := message.(*RawRequest); ok {
		return append(dst, *raw...), nil
	}
	m, ok := message.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is no message", message)
	}
	return proto.MarshalOptions{}.MarshalAppend(dst, m)
}

// Unmarshal implements connect.Codec.
func (Codec) Unmarshal(data []byte, message any) error {
	switch m := message.(type) {
	case Answer:
		return m.DecodeWire(data)
	case proto.Message:
		return proto.Unmarshal(data, m)
	default:
		return fmt.Errorf("%T is no message", message)
	}
}

// Do makes a call: in a session, or by Connect where there is none. The request is from
// [Server.Request]; the caller must not use it afterwards.
func Do[A any, P interface {
	*A
	Answer
}](ctx context.Context, server *Server, method stream.Method, byConnect *connect.Client[RawRequest, A],
	request *[]byte) (*A, error) {
	s, err := server.Get(ctx)
	if err != nil {
		return nil, err
	}
	if s != nil {
		answer := P(new(A))
		err := Call(ctx, s, method, *request, answer)
		server.Free(request) // by Connect it may be read for longer
		if err != nil {
			return nil, err
		}
		return (*A)(answer), nil
	}
	raw := RawRequest(*request)
	res, err := byConnect.CallUnary(ctx, connect.NewRequest(&raw))
	if err != nil {
		return nil, err
	}
	return res.Msg, nil
}
