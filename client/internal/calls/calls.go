// Package calls is how a part of the SDK that has its own package makes calls: a [Service] has the
// client's connections and its retry loop.
package calls

import (
	"context"
	"time"

	"github.com/belfrydb/belfry/client/internal/failure"
	"github.com/belfrydb/belfry/client/internal/placement"
)

// A Kind tells the retry loop what it must know about a method.
type Kind struct {
	// Reads says that the method changes nothing.
	Reads bool
	// ID is the request's id field; nil for a call that needs none to be repeated.
	ID *string
	// Wait is how long the server may normally take to answer.
	Wait time.Duration
	// Place is what the call concerns.
	Place placement.Place
	// Failed, if not nil, is called after each attempt that another one will follow.
	Failed func(*failure.Error)
}

// A Service makes the calls of one service. S is the generated interface of its methods. All
// functions may be called from any goroutine.
type Service[S any] struct {
	// Do runs attempt until a server answers, one refuses for good, or ctx ends. It returns after
	// the last attempt has. The error has the request id.
	Do func(ctx context.Context, kind Kind, attempt func(context.Context, S) error) *failure.Error
	// NewID makes a request id.
	NewID func() string
	// Now returns the present on the servers' clock, as far as the client knows it.
	Now func() time.Time
	// Public returns the error that users see.
	Public func(*failure.Error) error
}

// A Method is a method of S with its request.
type Method[S, Res any] func(ctx context.Context, at S) (*Res, error)

// Of returns a method with its request. The request must not change until the call has ended, but
// for its id.
func Of[S, Req, Res any](method func(S, context.Context, *Req) (*Res, error), req *Req) Method[S, Res] {
	return func(ctx context.Context, at S) (*Res, error) { return method(at, ctx, req) }
}

// Try makes a call. It is for callers that look at the error: theirs is not public yet.
func Try[S, Res any](ctx context.Context, s Service[S], kind Kind, method Method[S, Res]) (*Res, *failure.Error) {
	var res *Res
	err := s.Do(ctx, kind, func(ctx context.Context, at S) (err error) {
		res, err = method(ctx, at)
		return err
	})
	if err != nil {
		return nil, err
	}
	return res, nil
}

// Read makes a call that changes nothing. The error is public.
func Read[S, Res any](ctx context.Context, s Service[S], method Method[S, Res]) (*Res, error) {
	return public(ctx, s, Kind{Reads: true}, method)
}

// Change makes a call under a new request id, which it writes to id, a field of the request. So a
// repeat changes nothing twice. The error is public.
func Change[S, Res any](ctx context.Context, s Service[S], id *string, method Method[S, Res]) (*Res, error) {
	*id = s.NewID()
	return public(ctx, s, Kind{ID: id}, method)
}

// Set makes a call that sets something to one value: a repeat needs no request id. The error is
// public.
func Set[S, Res any](ctx context.Context, s Service[S], method Method[S, Res]) (*Res, error) {
	return public(ctx, s, Kind{}, method)
}

// public is Try with the error that users see.
func public[S, Res any](ctx context.Context, s Service[S], kind Kind, method Method[S, Res]) (*Res, error) {
	res, err := Try(ctx, s, kind, method)
	if err != nil {
		return nil, s.Public(err)
	}
	return res, nil
}
