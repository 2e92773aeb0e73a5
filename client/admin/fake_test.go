package admin

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/belfrydb/belfry/client/internal/calls"
	"github.com/belfrydb/belfry/client/internal/failure"
)

// A server stands in for a cluster: it keeps the requests and answers them, once each.
type server struct {
	methods // none: a call that a test does not expect panics
	// refuse, if not nil, may refuse a call.
	refuse   func() error
	requests []proto.Message
	ids      int
	looks    uint64
}

// client returns a Client of the server.
func (s *server) client() Client {
	return New(calls.Service[methods]{
		Do: func(ctx context.Context, _ calls.Kind, attempt func(context.Context, methods) error) *failure.Error {
			return failure.Of(attempt(ctx, s))
		},
		NewID:  func() string { s.ids++; return fmt.Sprintf("r%d", s.ids) },
		Public: func(err *failure.Error) error { return publicError{err} },
	})
}

// A publicError is an error of a call as users get it.
type publicError struct{ cause *failure.Error }

func (e publicError) Error() string { return e.cause.Error() }

func isInvalid(err error) bool {
	e, ok := errors.AsType[publicError](err)
	return ok && e.cause.Reason == failure.Invalid
}

// refused keeps a request, and returns an error if it is refused.
func (s *server) refused(req proto.Message) error {
	s.requests = append(s.requests, proto.Clone(req))
	if s.refuse == nil {
		return nil
	}
	return s.refuse()
}

// answer answers a request.
func answer[Res any](s *server, req proto.Message, res *Res) (*Res, error) {
	if err := s.refused(req); err != nil {
		return nil, err
	}
	return res, nil
}
