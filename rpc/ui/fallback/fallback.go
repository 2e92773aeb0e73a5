// Package fallback has the reads of pages answered by replicas when a leader does not answer soon, and
// says so on the pages.
package fallback

import (
	"context"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

const (
	// LeaderWait is how long the reads of a page wait for leaders, once. An election takes one to three
	// seconds; a page that is refreshed shows figures of replicas meanwhile.
	LeaderWait = time.Second
	// ReplicaWait is how long a read waits for replicas, of which the nearest is mostly on this node.
	ReplicaWait = 2 * time.Second
)

// Interceptor makes a client ask replicas when a read that they can answer has waited for leaders for
// LeaderWait. Once that has happened in a visit, the reads that follow in it ask replicas at once, and
// so they do after an act that no leader answered. The age of what replicas answer is added to the
// visit's.
func Interceptor() connect.Interceptor {
	return connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, call connect.AnyRequest) (connect.AnyResponse, error) {
			v := visitOf(ctx)
			field := staleField(call.Any())
			if field == nil {
				res, err := next(ctx, call)
				if unanswered(err) {
					v.lost.Store(true)
				}
				return res, err
			}
			req := call.Any().(proto.Message).ProtoReflect()
			if !req.Get(field).Bool() && !v.lost.Load() {
				res, err := within(ctx, LeaderWait, next, call)
				if !unanswered(err) || ctx.Err() != nil {
					return res, err
				}
				v.lost.Store(true)
			}
			req.Set(field, protoreflect.ValueOfBool(true))
			res, err := within(ctx, ReplicaWait, next, call)
			if err == nil && v.lost.Load() {
				Join(ctx, Age{Stale: true, AsOf: asOf(res.Any())})
			}
			return res, err
		}
	})
}

// unanswered reports whether a call failed because a leader did not answer.
func unanswered(err error) bool {
	code := connect.CodeOf(err)
	return err != nil && (code == connect.CodeUnavailable || code == connect.CodeDeadlineExceeded)
}

// within makes a call that ends after a time.
func within(ctx context.Context, most time.Duration, next connect.UnaryFunc,
	call connect.AnyRequest) (connect.AnyResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	return next(ctx, call)
}

// staleField returns the field of a request that lets replicas answer; nil if there is none.
func staleField(request any) protoreflect.FieldDescriptor {
	message, ok := request.(proto.Message)
	if !ok {
		return nil
	}
	return message.ProtoReflect().Descriptor().Fields().ByName("stale")
}

// asOf returns the earliest time in an answer from which its figures are: its own, or those of its
// queues; zero if it has none.
func asOf(answer any) (earliest time.Time) {
	note := func(m any) {
		dated, ok := m.(interface{ GetAsOf() *timestamppb.Timestamp })
		if !ok || dated.GetAsOf() == nil {
			return
		}
		if at := dated.GetAsOf().AsTime(); earliest.IsZero() || at.Before(earliest) {
			earliest = at
		}
	}
	note(answer)
	switch a := answer.(type) {
	case *belfryv1.GetQueueResponse:
		note(a.Queue)
	case *belfryv1.ListQueuesResponse:
		for _, q := range a.Queues {
			note(q)
		}
	}
	return earliest
}
