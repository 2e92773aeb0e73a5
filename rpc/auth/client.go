package auth

import (
	"context"
	"net"
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

// WithClient returns the request with its client in the context: `name@address`, or the address alone
// if it has no name.
func WithClient(r *http.Request) (*http.Request, *fault.Error) {
	name := r.Header.Get(ClientHeader)
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
	client, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		client = r.RemoteAddr
	}
	if name != "" {
		client = name + "@" + client
	}
	return r.WithContext(context.WithValue(r.Context(), clientKey{}, client)), nil
}

// ClientOf returns the client of a call, "" if its context has none.
func ClientOf(ctx context.Context) string {
	client, _ := ctx.Value(clientKey{}).(string)
	return client
}
