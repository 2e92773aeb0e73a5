package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"connectrpc.com/connect"
	"github.com/belfrydb/belfry/client/internal/placement"
	"github.com/belfrydb/belfry/rpc/portcheck"
)

const (
	backoffMin = 50 * time.Millisecond
	backoffMax = 2 * time.Second
	// attemptTimeout bounds one attempt, beyond the time that a Reserve waits. After it the client
	// asks again, at the same server or at another one.
	attemptTimeout = 30 * time.Second
)

// A retrier keeps the history of one call over its attempts.
type retrier struct {
	attempts int
	unknown  bool // an earlier attempt may have been applied, or may still be
	reads    bool // the call changes nothing, so its outcome is never unknown
	first    *Error
	last     *Error
}

// failed records an attempt that ended with e, and reports whether another makes sense.
func (r *retrier) failed(e *Error) (again bool) {
	if e.Reason == reasonRequestExpired && r.attempts == 0 {
		// The server cannot know it, but the client does: the id was never sent before.
		fresh := *e
		fresh.Outcome = OutcomeNotApplied
		e = &fresh
	}
	r.attempts++
	if r.first == nil {
		r.first = e
	}
	r.last = e
	if e.Outcome == OutcomeUnknown {
		r.unknown = true
	}
	return retryable(e)
}

// retryable reports whether the same call may succeed later without any other change.
func retryable(e *Error) bool {
	switch e.Reason {
	case ErrUnknownOutcome, reasonNotLeader, reasonNoLeader, reasonShuttingDown, reasonClockAhead, ErrTooFewVoters,
		reasonOverloaded,
		reasonQueueChanged:
		return true
	case "":
	default:
		return false
	}
	if portcheck.Misconfigured(e) {
		return false
	}
	switch e.Code {
	case connect.CodeUnavailable, connect.CodeUnknown, connect.CodeDeadlineExceeded, connect.CodeCanceled,
		connect.CodeAborted:
		return true
	default:
		return false
	}
}

// decides reports whether an error of this reason also settles the outcome of earlier attempts with
// the same request id. Two kinds do. The shard's own errors do: the shard would have repeated an
// earlier answer. So do the errors of checks that every attempt meets alike. The others come from a
// moment, such as a full queue, and say nothing about an earlier attempt.
func decides(reason Reason) bool {
	switch reason {
	case reasonInvalid, reasonTooLarge, ErrJobExists, ErrJobNotFound, ErrJobReserved, ErrStaleLease, reasonQueueExists,
		reasonQueueNotFound:
		return true
	default:
		return false
	}
}

// settled returns the error that the caller sees when no further attempt follows the last one.
func (r *retrier) settled() *Error {
	e := *r.last
	switch {
	case r.reads:
		e.Outcome = OutcomeNotApplied
	case r.unknown && !decides(e.Reason):
		e.Outcome = OutcomeUnknown
	}
	return &e
}

// ended returns the error that the caller sees when ctx ended before an answer. It joins the end of
// the context, the first error, which often names the cause, and the last, which describes the
// present state. sent says whether a request is still in flight.
func (r *retrier) ended(ctx context.Context, sent sentState) *Error {
	e := &Error{Code: connect.CodeCanceled, Outcome: OutcomeNotApplied}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		e.Code = connect.CodeDeadlineExceeded
	}
	if !r.reads && (r.unknown || sent == requestOut) {
		e.Outcome = OutcomeUnknown
		e.Reason = ErrUnknownOutcome
	}
	causes := []error{context.Cause(ctx)}
	if !errors.Is(causes[0], ctx.Err()) {
		causes = append(causes, ctx.Err())
	}
	e.Message = "no answer"
	if r.first != nil {
		e.Message = fmt.Sprintf("no answer after %d attempts", r.attempts)
		e.Shard, e.Leader, e.RetryAfter = r.last.Shard, r.last.Leader, r.last.RetryAfter
		causes = append(causes, r.first)
		if r.last.Error() != r.first.Error() {
			causes = append(causes, r.last)
		}
	}
	e.cause = errors.Join(causes...)
	return e
}

// A sentState says whether a request is in flight when a caller stops waiting.
type sentState int

const (
	nothingOut sentState = iota
	requestOut
)

// sentBy returns whether the request of an attempt may have left, according to the attempt's error.
func sentBy(e *Error) sentState {
	if e.Outcome == OutcomeNotApplied {
		return nothingOut
	}
	return requestOut
}

// pause returns how long to wait before the next attempt: full jitter between zero and a bound that
// doubles, and never less than the server asked for.
func (r *retrier) pause() time.Duration {
	bound := backoffMax
	if shift := r.attempts - 1; shift < 6 {
		bound = min(backoffMin<<shift, backoffMax)
	}
	return r.last.RetryAfter + rand.N(bound)
}

// sleep waits for d, or until ctx ends. Its error is that of ctx.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A callKind tells the retry loop what it must know about a method.
type callKind struct {
	reads bool            // changes nothing
	id    *string         // the request's id field; nil for a call that needs none to be repeated
	wait  time.Duration   // how long the server may normally take to answer
	place placement.Place // what the call concerns
	// failed, if not nil, is called after each attempt that another one will follow.
	failed func(*Error)
}

// call sends one request until it is answered, permanently refused, or ctx ends. The request is the
// same each time, including its id. The error is an *Error.
func call[Res any](
	ctx context.Context, c *Client, kind callKind, do func(context.Context, *endpoint) (*Res, error),
) (*Res, error) {
	if err := c.closed(); err != nil {
		return nil, err
	}
	res, _, err := callCounted(ctx, c, kind, do)
	if err == nil {
		return res, nil
	}
	if kind.id != nil {
		err.RequestID = *kind.id
	}
	return nil, err
}

// callCounted is call that also returns how many attempts failed before the answer.
func callCounted[Res any](
	ctx context.Context, c *Client, kind callKind, do func(context.Context, *endpoint) (*Res, error),
) (*Res, int, *Error) {
	r := retrier{reads: kind.reads}
	renewed := false
	for {
		if ctx.Err() != nil {
			return nil, r.attempts, r.ended(ctx, nothingOut)
		}
		ep, n := c.endpoints.pick()
		direct := c.endpoints.routes.leader(kind.place)
		if direct != nil {
			ep = direct
		}
		res, err := attempt(ctx, kind, ep, do)
		if err == nil {
			c.answered(kind.place) //nolint:contextcheck // the map is for the client, not for this call
			return res, r.attempts, nil
		}
		e := asError(err)
		if ctx.Err() != nil && e.Reason == "" {
			return nil, r.attempts, r.ended(ctx, sentBy(e))
		}
		if e.Reason == reasonRequestExpired && kind.id != nil && r.attempts == 0 &&
			(!renewed || c.clock.SetForwardSince(*kind.id)) {
			// The id was never sent before, so no change was applied under it. This machine's clock
			// is wrong, and the refusal has set it.
			renewed = true
			*kind.id = c.clock.NewID()
			continue
		}
		if !r.failed(e) {
			return nil, r.attempts, r.settled()
		}
		c.endpoints.leave(e, direct, n)
		if kind.failed != nil {
			kind.failed(e)
		}
		if sleep(ctx, r.pause()) != nil {
			return nil, r.attempts, r.ended(ctx, nothingOut)
		}
	}
}

func attempt[Res any](
	ctx context.Context, kind callKind, ep *endpoint, do func(context.Context, *endpoint) (*Res, error),
) (*Res, error) {
	ctx, cancel := context.WithTimeout(ctx, kind.wait+attemptTimeout)
	defer cancel()
	if err := ep.meet(ctx); err != nil {
		return nil, err
	}
	return do(ctx, ep)
}

// leave records that a call failed with err: at the leader direct, or if that is nil, at server
// number n.
func (e *endpoints) leave(err *Error, direct *endpoint, n uint32) {
	switch {
	case !leaves(err):
	case direct != nil:
		e.routes.doubt(direct)
	default:
		e.moveOn(n)
	}
}

// leaves reports whether an error is a reason to go on to another server. This one cannot be
// reached, or cannot take the call, but another one may.
func leaves(e *Error) bool {
	switch e.Reason {
	case "", reasonNotLeader, reasonNoLeader, reasonShuttingDown:
		return true
	default:
		return false
	}
}
