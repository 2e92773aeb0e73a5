package failure

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"connectrpc.com/connect"

	"github.com/belfrydb/belfry/rpc/portcheck"
)

const (
	// BackoffMin bounds the first pause. The bound doubles with each attempt.
	BackoffMin = 50 * time.Millisecond
	// BackoffMax is the longest pause between two attempts, unless the server asks for more.
	BackoffMax = 2 * time.Second
)

// A History keeps the history of one call over its attempts.
type History struct {
	// NoChange is set for a call that changes nothing, or whose change is undone when its caller
	// leaves. Its outcome is never unknown.
	NoChange bool

	attempts int
	unknown  bool // an earlier attempt may have been applied, or may still be
	first    *Error
	last     *Error
}

// Attempts returns how many attempts have failed.
func (h *History) Attempts() int { return h.attempts }

// Last returns the error of the last attempt, nil if there is none.
func (h *History) Last() *Error { return h.last }

// ForgetLast makes Last return nil until another attempt fails.
func (h *History) ForgetLast() { h.last = nil }

// Failed records an attempt that ended with e, and reports whether another makes sense.
func (h *History) Failed(e *Error) (again bool) {
	if e.Reason == RequestExpired && h.attempts == 0 {
		// The server cannot know it, but the client does: the id was never sent before.
		fresh := *e
		fresh.Outcome = NotApplied
		e = &fresh
	}
	h.attempts++
	if h.first == nil {
		h.first = e
	}
	h.last = e
	if e.Outcome == Unknown {
		h.unknown = true
	}
	return Retryable(e)
}

// Retryable reports whether the same call may succeed later without any other change.
func Retryable(e *Error) bool {
	switch e.Reason {
	case UnknownOutcome, NotLeader, NoLeader, ShuttingDown, ClockAhead, TooFewVoters, Overloaded, QueueChanged:
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
	case Invalid, TooLarge, JobExists, JobNotFound, JobReserved, VersionChanged, StaleLease, QueueExists, QueueNotFound,
		ScheduleNotFound:
		return true
	default:
		return false
	}
}

// Settled returns the error that the caller sees when no further attempt follows the last one.
func (h *History) Settled() *Error {
	e := *h.last
	switch {
	case h.NoChange:
		e.Outcome = NotApplied
	case h.unknown && !decides(e.Reason):
		e.Outcome = Unknown
	}
	return &e
}

// Ended returns the error that the caller sees when ctx ended before an answer. It joins the end of
// the context, the first error, which often names the cause, and the last, which describes the
// present state. sent says whether a request is still in flight.
func (h *History) Ended(ctx context.Context, sent SentState) *Error {
	e := &Error{Code: connect.CodeCanceled, Outcome: NotApplied}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		e.Code = connect.CodeDeadlineExceeded
	}
	if !h.NoChange && (h.unknown || sent == MaybeSent) {
		e.Outcome = Unknown
		e.Reason = UnknownOutcome
	}
	causes := []error{context.Cause(ctx)}
	if !errors.Is(causes[0], ctx.Err()) {
		causes = append(causes, ctx.Err())
	}
	e.Message = "no answer"
	if h.first != nil {
		e.Message = fmt.Sprintf("no answer after %d attempts", h.attempts)
		e.Shard, e.Leader, e.RetryAfter = h.last.Shard, h.last.Leader, h.last.RetryAfter
		causes = append(causes, h.first)
		if h.last.Error() != h.first.Error() {
			causes = append(causes, h.last)
		}
	}
	e.Causes = causes
	return e
}

// A SentState says whether a request is in flight when a caller stops waiting.
type SentState int

// Whether a request is in flight.
const (
	NothingSent SentState = iota
	MaybeSent
)

// SentBy returns whether the request of an attempt may have left, according to the attempt's error.
func SentBy(e *Error) SentState {
	if e.Outcome == NotApplied {
		return NothingSent
	}
	return MaybeSent
}

// Pause returns how long to wait before the next attempt: full jitter between zero and a bound that
// doubles, and never less than the server asked for.
func (h *History) Pause() time.Duration {
	bound := BackoffMax
	if shift := h.attempts - 1; shift < 6 {
		bound = min(BackoffMin<<shift, BackoffMax)
	}
	return h.last.RetryAfter + rand.N(bound)
}

// Sleep waits for d, or until ctx ends. Its error is that of ctx.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Leaves reports whether an error is a reason to go on to another server. This one cannot be
// reached, or cannot take the call, but another one may.
func Leaves(e *Error) bool {
	switch e.Reason {
	case "", NotLeader, NoLeader, ShuttingDown:
		return true
	default:
		return false
	}
}
