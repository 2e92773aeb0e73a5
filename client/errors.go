package client

import (
	"errors"
	"time"

	"connectrpc.com/connect"

	"github.com/belfrydb/belfry/client/internal/failure"
)

// A Reason is the stable cause of an [Error], one of the API's closed list: "JOB_EXISTS",
// "DISK_FULL", … It is an error itself, for errors.Is. The frequent ones have names; write the
// others as Reason("DISK_FULL").
type Reason string

// The reasons that programs branch on.
const (
	// ErrStaleLease says that a lease expired, was finished in another way, or belongs to an
	// earlier grant of the job. It is also the cause of a handler's context that ended because the
	// lease was lost.
	ErrStaleLease Reason = "STALE_LEASE"
	// ErrJobExists says that a job with this id but other content exists, or ended within the dedup
	// window.
	ErrJobExists Reason = "JOB_EXISTS"
	// ErrJobNotFound says that there is no such job: it never existed, or it ended.
	ErrJobNotFound Reason = "JOB_NOT_FOUND"
	// ErrJobReserved says that the job is held under a lease, and the call does not touch held jobs.
	ErrJobReserved Reason = "JOB_RESERVED"
	// ErrVersionChanged says that no job of the id is held in the version that [IfVersion] named, or
	// that a schedule has another one. [Error.Version] is the one that it has.
	ErrVersionChanged Reason = "VERSION_CHANGED"
	// ErrQueueFull says that the queue holds as many jobs or bytes as its settings allow.
	ErrQueueFull Reason = "QUEUE_FULL"
	// ErrRateLimited says that the queue takes no more puts this second. [Error.RetryAfter] says
	// when it will.
	ErrRateLimited Reason = "RATE_LIMITED"
	// ErrScheduleNotFound says that the queue has no schedule of that name.
	ErrScheduleNotFound Reason = "SCHEDULE_NOT_FOUND"
	// ErrMemoryFull says that the memory of a node that holds the queue is nearly full. Consumers
	// go on, and their acks make room.
	ErrMemoryFull Reason = "MEMORY_FULL"
	// ErrTooFewVoters says that the shard has fewer voters than the cluster's min-voters. It
	// accepted no change that it would have to keep.
	ErrTooFewVoters Reason = "TOO_FEW_VOTERS"
	// ErrUnknownOutcome says that the call may have been applied, or may still be applied. It
	// matches every error whose outcome is unknown, whatever its reason.
	ErrUnknownOutcome Reason = "UNKNOWN_OUTCOME"
)

// Error returns the reason as the API spells it.
func (r Reason) Error() string { return string(r) }

// An Error describes a call that did not succeed. errors.Is finds its reason, and also its cause:
// the end of a context, or a broken connection.
type Error struct {
	// Reason is the stable cause. Empty if no server gave one, for example because none could be
	// reached.
	Reason Reason
	// Code is the Connect code.
	Code connect.Code
	// Message is a sentence for people; it may change between versions.
	Message string
	// Outcome says whether the change was made. It is OutcomeNotApplied for calls that only read.
	Outcome Outcome
	// Shard is the number of the shard concerned, nil if the call reached none.
	Shard *uint32
	// Leader is the address of the shard's leader, if it is another node and known.
	Leader string
	// RetryAfter is how long to wait before another try makes sense, 0 if the server did not say.
	RetryAfter time.Duration
	// RequestID is the id that the call was sent with. It is safe to repeat the same call with it.
	RequestID string
	// Version is the version of the job that is held, or of the schedule, with [ErrVersionChanged]; 0 if
	// there is none.
	Version uint64

	cause error // nil, or what lies beneath
}

// Error returns the reason and the message, and says so if the outcome is unknown.
func (e *Error) Error() string {
	as := failure.Error{
		Reason: failure.Reason(e.Reason), Code: e.Code, Message: e.Message, Outcome: failure.Outcome(e.Outcome),
	}
	if e.cause != nil {
		as.Causes = []error{e.cause}
	}
	return as.Error()
}

// Is matches the reason of the error, and [ErrUnknownOutcome] if the outcome is unknown.
func (e *Error) Is(target error) bool {
	reason, ok := target.(Reason)
	if !ok {
		return false
	}
	return reason == e.Reason || reason == ErrUnknownOutcome && e.Outcome == OutcomeUnknown
}

// Unwrap returns the cause: the end of the context, a broken connection, or earlier errors of the
// same call.
func (e *Error) Unwrap() error { return e.cause }

// An Outcome says what became of the change that a failed call asked for. It is a text, for
// messages and logs.
type Outcome string

// What may have become of a change.
const (
	// OutcomeApplied says that the change was made.
	OutcomeApplied Outcome = "APPLIED"
	// OutcomeNotApplied says that the call made no change and will not make one. If an earlier
	// attempt with the same request id ended with OutcomeUnknown, that outcome stays unknown after
	// a refusal that comes from the moment, such as NO_LEADER: repeat the call until it is
	// answered.
	OutcomeNotApplied Outcome = "NOT_APPLIED"
	// OutcomeUnknown says that the change may have been made, or may be made later. Repeat the call
	// with the same request id to find out. [ErrUnknownOutcome] matches such an error.
	OutcomeUnknown Outcome = "UNKNOWN"
)

// public returns the public form of the error of a call.
func public(e *failure.Error) *Error {
	return &Error{
		Reason: Reason(e.Reason), Code: e.Code, Message: e.Message, Outcome: Outcome(e.Outcome), Shard: e.Shard,
		Leader: e.Leader, RetryAfter: e.RetryAfter, RequestID: e.RequestID, Version: e.Version,
		cause: publicCause(e.Causes),
	}
}

// publicCause joins causes. Those that are errors of attempts get their public form.
func publicCause(causes []error) error {
	all := make([]error, len(causes))
	for i, cause := range causes {
		all[i] = cause
		if earlier, ok := cause.(*failure.Error); ok { //nolint:errorlint // what wraps one is another error
			all[i] = public(earlier)
		}
	}
	if len(all) == 1 {
		return all[0]
	}
	return errors.Join(all...)
}

// invalidError is the error of a call that the client refuses to send.
func invalidError(format string, args ...any) *Error {
	return public(failure.Invalidf(format, args...))
}
