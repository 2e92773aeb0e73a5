package cli

import (
	"context"
	"time"

	"connectrpc.com/connect"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
)

// noLeaderRetry is how long a call is repeated while its shard has no leader. A server that knows
// of no leader has waited as long itself before it answers.
const noLeaderRetry = 5 * time.Second

// onceKey marks the context of a call that must not be made again after an unknown outcome.
type onceKey struct{}

// Once returns a context for a call that carries no request id and is no repeat of an earlier one if
// it is made again. It is not repeated while its outcome is unknown.
func Once(ctx context.Context) context.Context { return context.WithValue(ctx, onceKey{}, true) }

// retryInterceptor repeats a call in two cases: the server did not apply it because the shard had
// no leader, or the server does not know whether it was applied. Every call of this command carries
// a request id, changes nothing, or may be repeated without; only CreateToken may then make a
// second token. Calls with a context of Once are left alone when their outcome is unknown. The
// interceptor does not wait for an unreachable server, because a script wants to know. The repeat
// goes to another of the servers, if there are several. Then a server that is stopping is a third
// case.
//
// Only the shard itself can resolve an unknown outcome. If the shard is not reached within
// noLeaderRetry, the outcome stays unknown, whatever the last refusal was.
func retryInterceptor(first, longest time.Duration, servers *serverList) connect.UnaryInterceptorFunc {
	return func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, request connect.AnyRequest) (connect.AnyResponse, error) {
			until := time.Now().Add(noLeaderRetry)
			var open error // of an attempt that may have been applied
			for pause := first; ; pause = min(2*pause, longest) {
				response, err := next(ctx, request)
				reason := reasonOf(err)
				if reason == belfryv1.Reason_REASON_UNKNOWN_OUTCOME {
					open, until = err, time.Now().Add(noLeaderRetry)
				}
				if open != nil && ctx.Value(onceKey{}) != nil {
					return response, err
				}
				if worthRepeating(reason, servers.several()) && time.Now().Before(until) && Wait(ctx, pause) {
					servers.leave()
					continue
				}
				if err != nil && open != nil && !decides(reason) {
					return response, open
				}
				return response, err
			}
		}
	}
}

// Wait waits for a while. It reports false if ctx ends before.
func Wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// reasonOf returns the reason that a server gave for an error, REASON_UNSPECIFIED if it gave none.
func reasonOf(err error) belfryv1.Reason {
	fault, ok := fault.FromConnect(err)
	if !ok {
		return belfryv1.Reason_REASON_UNSPECIFIED
	}
	return fault.Reason
}

// worthRepeating reports whether the same call may succeed a moment later, at another server if
// there are several.
func worthRepeating(reason belfryv1.Reason, several bool) bool {
	switch reason {
	case belfryv1.Reason_REASON_NOT_LEADER, belfryv1.Reason_REASON_NO_LEADER, belfryv1.Reason_REASON_UNKNOWN_OUTCOME:
		return true
	case belfryv1.Reason_REASON_SHUTTING_DOWN:
		return several
	default:
		return false
	}
}

// decides reports whether an error settles also what became of an earlier attempt with the same
// request id: it comes from the shard, which would have given the earlier answer again, or from a
// check that every attempt meets alike.
func decides(reason belfryv1.Reason) bool {
	switch reason {
	case belfryv1.Reason_REASON_INVALID, belfryv1.Reason_REASON_TOO_LARGE, belfryv1.Reason_REASON_JOB_EXISTS,
		belfryv1.Reason_REASON_JOB_NOT_FOUND,
		belfryv1.Reason_REASON_JOB_RESERVED, belfryv1.Reason_REASON_STALE_LEASE, belfryv1.Reason_REASON_QUEUE_EXISTS,
		belfryv1.Reason_REASON_QUEUE_NOT_FOUND:
		return true
	default:
		return false
	}
}

// refused reports whether a server said that it did nothing, for a reason of its own: that the time
// was up it says of a call like anybody.
func refused(err error) bool {
	fault, ok := fault.FromConnect(err)
	code := connect.CodeOf(err)
	return ok && fault.Outcome() == belfryv1.Outcome_OUTCOME_NOT_APPLIED && code != connect.CodeDeadlineExceeded &&
		code != connect.CodeCanceled
}
