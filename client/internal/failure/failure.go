// Package failure judges the errors of a client's calls: what went wrong, what became of the change,
// and whether another attempt makes sense.
package failure

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"connectrpc.com/connect"
)

// A Reason is the stable cause of an [Error], one of the API's closed list. It is empty if no server
// gave one.
type Reason string

// The reasons that the client checks.
const (
	StaleLease       Reason = "STALE_LEASE"
	JobExists        Reason = "JOB_EXISTS"
	JobNotFound      Reason = "JOB_NOT_FOUND"
	JobReserved      Reason = "JOB_RESERVED"
	VersionChanged   Reason = "VERSION_CHANGED"
	ScheduleNotFound Reason = "SCHEDULE_NOT_FOUND"
	TooFewVoters     Reason = "TOO_FEW_VOTERS"
	UnknownOutcome   Reason = "UNKNOWN_OUTCOME"
	Invalid          Reason = "INVALID"
	TooLarge         Reason = "TOO_LARGE"
	QueueExists      Reason = "QUEUE_EXISTS"
	QueueNotFound    Reason = "QUEUE_NOT_FOUND"
	QueueChanged     Reason = "QUEUE_CHANGED"
	Overloaded       Reason = "OVERLOADED"
	RequestExpired   Reason = "REQUEST_EXPIRED"
	NotLeader        Reason = "NOT_LEADER"
	NoLeader         Reason = "NO_LEADER"
	ShuttingDown     Reason = "SHUTTING_DOWN"
	ClockAhead       Reason = "CLOCK_AHEAD"
	Unauthenticated  Reason = "UNAUTHENTICATED"
	Forbidden        Reason = "FORBIDDEN"
	Unimplemented    Reason = "UNIMPLEMENTED"
)

// An Outcome says what became of the change that a failed call asked for.
type Outcome string

// What may have become of a change.
const (
	Applied    Outcome = "APPLIED"
	NotApplied Outcome = "NOT_APPLIED"
	Unknown    Outcome = "UNKNOWN"
)

// An Error describes a call that did not succeed. The client's public error has the same fields,
// and their documentation.
type Error struct {
	Reason     Reason
	Code       connect.Code
	Message    string
	Outcome    Outcome
	Shard      *uint32
	Leader     string
	RetryAfter time.Duration
	RequestID  string
	Version    uint64
	// Causes are what lies beneath, none if there is no more to know.
	Causes []error
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
	if e.Outcome == Unknown && e.Reason != UnknownOutcome {
		b.WriteString(" (outcome unknown)")
	}
	if cause := errors.Join(e.Causes...); cause != nil {
		fmt.Fprintf(&b, ": %v", cause)
	}
	return b.String()
}

// Unwrap returns the causes.
func (e *Error) Unwrap() []error { return e.Causes }

// Invalidf is the error of a call that the client refuses to send.
func Invalidf(format string, args ...any) *Error {
	return &Error{
		Reason: Invalid, Code: connect.CodeInvalidArgument, Message: fmt.Sprintf(format, args...), Outcome: NotApplied,
	}
}

// NotUTF8 is the error of a call with a text that cannot be sent.
func NotUTF8(field string) error { return Invalidf("%s: not valid UTF-8", field) }

// Closed is the error of a call to a closed client.
func Closed() *Error {
	return &Error{
		Code: connect.CodeCanceled, Message: "the client is closed", Outcome: NotApplied, Causes: []error{net.ErrClosed},
	}
}

// MissingResult is the error of an entry of a batch whose result has no known form.
func MissingResult() *Error {
	return &Error{
		Code: connect.CodeInternal, Outcome: Unknown, Message: "the answer has no result for this entry",
	}
}

// ClockBehind is the error of an entry of a batch that the server refused because its request id is
// too old.
func ClockBehind(requestID string) *Error {
	return &Error{
		Reason: RequestExpired, Code: connect.CodeFailedPrecondition, RequestID: requestID,
		Message: "the clock of this machine is behind", Outcome: NotApplied,
	}
}
