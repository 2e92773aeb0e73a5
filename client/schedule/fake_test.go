package schedule

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/belfrydb/belfry/client/internal/calls"
	"github.com/belfrydb/belfry/client/internal/failure"
)

// now is the time on the servers' clock.
var now = time.Date(2030, 1, 31, 9, 0, 0, 1_999_999, time.UTC)

// A server stands in for a cluster: it keeps the requests and answers them.
type server struct {
	// attempts are the errors of the attempts to come, each of which is repeated.
	attempts []*failure.Error
	// refuse, if not nil, may refuse a request for good.
	refuse   func(proto.Message) error
	requests []proto.Message
	ids      int
	looks    int // at the clock, which goes on by an hour each time
}

// client returns a Client of the server. It repeats calls as package client does.
func (s *server) client() Client {
	return New(calls.Service[methods]{
		Do: func(ctx context.Context, kind calls.Kind, attempt func(context.Context, methods) error) *failure.Error {
			for {
				if e := failure.Of(attempt(ctx, s)); e == nil || len(s.attempts) == 0 {
					return e
				}
				lost := s.attempts[0]
				s.attempts = s.attempts[1:]
				if kind.Failed != nil {
					kind.Failed(lost)
				}
			}
		},
		NewID:  func() string { s.ids++; return fmt.Sprintf("r%d", s.ids) },
		Now:    func() time.Time { s.looks++; return now.Add(time.Duration(s.looks-1) * time.Hour) },
		Public: func(err *failure.Error) error { return publicError{err} },
	})
}

// A publicError is an error of a call as users get it.
type publicError struct{ cause *failure.Error }

func (e publicError) Error() string { return e.cause.Error() }

// failed returns the reason and the outcome of an error.
func failed(err error) (failure.Reason, failure.Outcome) {
	e, ok := errors.AsType[publicError](err)
	if !ok {
		return "", ""
	}
	return e.cause.Reason, e.cause.Outcome
}

// answer keeps a request and answers it. Attempts that are to be repeated get no answer.
func answer[Res any](s *server, req proto.Message, res *Res) (*Res, error) {
	s.requests = append(s.requests, proto.Clone(req))
	if len(s.attempts) > 0 {
		return nil, s.attempts[0]
	}
	if s.refuse != nil {
		if err := s.refuse(req); err != nil {
			return nil, err
		}
	}
	return res, nil
}
