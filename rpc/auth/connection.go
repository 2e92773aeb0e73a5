package auth

import (
	"context"
	"net"

	"github.com/belfrydb/belfry/access/tokens"
	"github.com/belfrydb/belfry/rpc/fault"
)

// The functions here are for protocols whose calls carry no token of their own: the caller of all
// calls of a connection is known when it begins.

// Connected returns a context for the calls of a connection from an address. Its calls carry no token.
func Connected(ctx context.Context, from net.Addr) context.Context {
	return context.WithValue(ctx, clientKey{}, hostOf(from.String()))
}

// WithToken returns a context whose calls carry a token. It fails if the token is no text of one; the
// calls fail if it is not known, or has ended.
func WithToken(ctx context.Context, text string, from net.Addr) (context.Context, *fault.Error) {
	id, hash, err := tokens.Parse(text)
	if err != nil {
		return nil, unauthenticated("what stands for a token is none: " + err.Error())
	}
	return context.WithValue(ctx, callerKey{}, &caller{id: id, hash: hash, address: from.String()}), nil
}

// WithTokenID returns a context whose calls have the permissions of a token that the caller did not
// show. It is for a caller that proved in another way that it may use the token, such as by a
// certificate that names it.
func WithTokenID(ctx context.Context, id string, from net.Addr) context.Context {
	return context.WithValue(ctx, callerKey{}, &caller{id: id, vouched: true, address: from.String()})
}

// hostOf returns an address without its port.
func hostOf(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return address
}
