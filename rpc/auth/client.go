package auth

import (
	"context"
	"net/http"
	"unicode"
	"unicode/utf8"

	"github.com/belfrydb/belfry/rpc/fault"
)

// ClientHeader carries the name of a consumer, for those who look at the jobs that it holds. It
// proves nothing.
const ClientHeader = "Belfry-Client"

// clientBytesMax bounds the name of a consumer.
const clientBytesMax = 64

type clientKey struct{}

// WithClient returns the request with its client in the context.
func WithClient(r *http.Request) (*http.Request, *fault.Error) {
	ctx, f := ClientContext(r.Context(), r.Header.Get(ClientHeader), r.RemoteAddr)
	if f != nil {
		return nil, f
	}
	return r.WithContext(ctx), nil
}

// ClientContext returns ctx with a client of some name and address: `name@address`, or the address
// alone if it has no name.
func ClientContext(ctx context.Context, name, address string) (context.Context, *fault.Error) {
	if len(name) > clientBytesMax {
		return nil, fault.TooLarge(ClientHeader, len(name), clientBytesMax)
	}
	if !utf8.ValidString(name) {
		return nil, fault.Invalid(ClientHeader, "not valid UTF-8")
	}
	for _, letter := range name {
		if !unicode.IsPrint(letter) {
			return nil, fault.Invalid(ClientHeader, "has the character %U, which cannot be printed", letter)
		}
	}
	client := hostOf(address)
	if name != "" {
		client = name + "@" + client
	}
	return context.WithValue(ctx, clientKey{}, client), nil
}

// ClientOf returns the client of a call, "" if its context has none.
func ClientOf(ctx context.Context) string {
	client, _ := ctx.Value(clientKey{}).(string)
	return client
}
