package client

import (
	"context"

	"connectrpc.com/connect"

	"github.com/belfrydb/belfry/client/internal/session"
	"github.com/belfrydb/belfry/stream"
)

// A rawRequest is a request that is already encoded.
type rawRequest []byte

// hot makes one of the calls of the hot path: in a session, or by Connect where there is none. The
// caller must not use the request afterwards.
func hot[A any, P interface {
	*A
	session.Answer
}](ctx context.Context, ep *endpoint, method stream.Method, byConnect *connect.Client[rawRequest, A],
	request *[]byte) (*A, error) {
	s, err := ep.sessions.Get(ctx)
	if err != nil {
		return nil, err
	}
	if s != nil {
		answer := P(new(A))
		err := session.Call(ctx, s, method, *request, answer)
		ep.sessions.Free(request) // by Connect it may be read for longer
		if err != nil {
			return nil, err
		}
		return (*A)(answer), nil
	}
	raw := rawRequest(*request)
	res, err := byConnect.CallUnary(ctx, connect.NewRequest(&raw))
	if err != nil {
		return nil, err
	}
	return res.Msg, nil
}
