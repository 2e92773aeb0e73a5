package client

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/portcheck"
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
	// ErrQueueFull says that the queue holds as many jobs or bytes as its settings allow.
	ErrQueueFull Reason = "QUEUE_FULL"
	// ErrRateLimited says that the queue takes no more puts this second. [Error.RetryAfter] says
	// when it will.
	ErrRateLimited Reason = "RATE_LIMITED"
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

// Reasons that only this package checks.
const (
	reasonInvalid        Reason = "INVALID"
	reasonTooLarge       Reason = "TOO_LARGE"
	reasonQueueExists    Reason = "QUEUE_EXISTS"
	reasonQueueNotFound  Reason = "QUEUE_NOT_FOUND"
	reasonQueueChanged   Reason = "QUEUE_CHANGED"
	reasonOverloaded     Reason = "OVERLOADED"
	reasonRequestExpired Reason = "REQUEST_EXPIRED"
	reasonNotLeader      Reason = "NOT_LEADER"
	reasonNoLeader       Reason = "NO_LEADER"
	reasonShuttingDown   Reason = "SHUTTING_DOWN"
	reasonClockAhead     Reason = "CLOCK_AHEAD"

	reasonUnauthenticated Reason = "UNAUTHENTICATED"
	reasonForbidden       Reason = "FORBIDDEN"
	reasonUnimplemented   Reason = "UNIMPLEMENTED"
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

	cause error // nil, or what lies beneath
}

// Error returns the reason and the message, and says so if the outcome is unknown.
func (e *Error) Error() string {
	var b strings.Builder
	if e.Reason != "" {
		b.WriteString(string(e.Reason))
	} else {
		b.WriteString(e.Code.String())
	}
	if e.Message != "" {
		b.WriteString(": ")
		b.WriteString(e.Message)
	}
	if e.Outcome == OutcomeUnknown && e.Reason != ErrUnknownOutcome {
		b.WriteString(" (outcome unknown)")
	}
	if e.cause != nil {
		fmt.Fprintf(&b, ": %v", e.cause)
	}
	return b.String()
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

// asError returns the typed form of the error of one attempt at a call. Nil stays nil.
func asError(err error) *Error {
	if err == nil {
		return nil
	}
	var typed *Error
	if errors.As(err, &typed) {
		return typed
	}
	var wire *connect.Error
	if !errors.As(err, &wire) || !connect.IsWireError(err) {
		return transportError(err)
	}
	e := &Error{Code: wire.Code(), Message: wire.Message(), Outcome: OutcomeUnknown} // unless the server says more
	for _, detail := range wire.Details() {
		value, err := detail.Value()
		if err != nil {
			continue // a detail of a later version; reason and outcome are in the ones known
		}
		switch value := value.(type) {
		case *errdetails.ErrorInfo:
			e.addInfo(value)
		case *errdetails.RetryInfo:
			e.RetryAfter = value.GetRetryDelay().AsDuration()
		}
	}
	if e.Outcome == "" {
		e.Outcome = outcomeByCode(e.Code)
	}
	return e
}

// transportError is the error of an attempt that no Belfry server answered: the connection broke,
// or another server answered. Only two cases prove that the call was not applied: the connection
// was never made, or the answer refuses the request.
func transportError(err error) *Error {
	e := &Error{Code: connect.CodeOf(err), Outcome: OutcomeUnknown, cause: err}
	foreign, ok := errors.AsType[*portcheck.ForeignResponse](err)
	if ok {
		e.Code, e.cause = foreign.Code(), foreign
	}
	if wrong, ok := errors.AsType[*portcheck.WrongPort](err); ok {
		e.cause = wrong
	}
	e.Message = portcheck.Advice(err)
	if ok && foreign.NotExecuted() || unsent(err) {
		e.Outcome = OutcomeNotApplied
	}
	return e
}

func (e *Error) addInfo(info *errdetails.ErrorInfo) {
	if info.GetDomain() != portcheck.ErrorDomain {
		return
	}
	e.Reason = Reason(info.GetReason())
	meta := info.GetMetadata()
	e.Outcome = outcomeNamed(meta["outcome"])
	e.Leader = meta["leader"]
	if shard, err := strconv.ParseUint(meta["shard"], 10, 32); err == nil {
		e.Shard = new(uint32(shard))
	}
}

// outcomeByCode returns the outcome of an error of Belfry in which this version finds none. A
// refusal names a cause that is found before any change. The other codes can come after one.
func outcomeByCode(code connect.Code) Outcome {
	switch code {
	case connect.CodeInvalidArgument, connect.CodeNotFound, connect.CodeAlreadyExists, connect.CodePermissionDenied,
		connect.CodeFailedPrecondition, connect.CodeOutOfRange, connect.CodeUnimplemented, connect.CodeUnauthenticated,
		connect.CodeResourceExhausted:
		return OutcomeNotApplied
	default:
		return OutcomeUnknown
	}
}

// entryError returns the typed form of the error of one entry of a batch.
func entryError(entry *belfryv1.EntryError) *Error {
	e := &Error{
		Reason:     Reason(strings.TrimPrefix(entry.GetReason().String(), "REASON_")),
		Message:    entry.GetMessage(),
		Outcome:    outcomeOf(entry.GetOutcome()),
		Shard:      entry.Shard,
		Leader:     entry.GetLeader(),
		RetryAfter: entry.GetRetryAfter().AsDuration(),
	}
	if e.Code.UnmarshalText([]byte(entry.GetCode())) != nil {
		e.Code = connect.CodeUnknown
	}
	if e.Outcome == "" {
		e.Outcome = outcomeByCode(e.Code)
	}
	return e
}

// missingResult is the error of an entry of a batch whose result has no known form.
func missingResult() *Error {
	return &Error{
		Code: connect.CodeInternal, Outcome: OutcomeUnknown,
		Message: "the answer has no result for this entry",
	}
}

// invalidError is the error of a call that the client refuses to send.
func invalidError(format string, args ...any) *Error {
	return &Error{
		Reason: reasonInvalid, Code: connect.CodeInvalidArgument, Message: fmt.Sprintf(format, args...),
		Outcome: OutcomeNotApplied,
	}
}
