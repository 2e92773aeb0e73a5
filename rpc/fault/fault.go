package fault

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"connectrpc.com/connect"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// Error is an error of the public contract. It has a reason of the closed list, and details for the
// caller. The reason decides the Connect code and the outcome.
type Error struct {
	Reason belfryv1.Reason
	// Message is for people. For INVALID and TOO_LARGE it starts with the field and names the limit.
	Message string
	// Field is the path of the field with the error, as JSON names it; empty if there is none.
	Field string
	// Shard is the shard concerned; nil if the call reached none.
	Shard *uint32
	// Leader is the address of the shard's leader if it is another node and known.
	Leader string
	// RetryAfter is how long to wait before a retry makes sense; 0 means that waiting does not help.
	RetryAfter time.Duration
	// State is how a job that was not found ended, if the shard remembers it.
	State fsm.State
	// Witness says where a shard's log decided the error; nil if no log decided it.
	Witness *belfryv1.Witness
	// Ended is the code of a call that its client ended; 0 for other calls. Such an end is no refusal
	// by the server.
	Ended connect.Code
	// Voters says how many voters a shard has, and how many it must have, if it has too few.
	Voters *node.VotersError
	// Count is how many jobs were done before the rest failed; nil if none was.
	Count *uint64
	// Memory says how much of its memory the refusing node uses; nil if memory was not the reason of
	// the refusal.
	Memory *node.MemoryError
	// Version is the version of the job that is held, 0 if none is; nil unless the reason is
	// VERSION_CHANGED.
	Version *uint64
}

// Error returns the reason and the message.
func (f *Error) Error() string { return ReasonName(f.Reason) + ": " + f.Message }

// Code returns the Connect code of the fault's reason. For a call that its client ended before
// anything was logged, it returns Connect's code for a canceled call or an exceeded deadline.
func (f *Error) Code() connect.Code {
	if f.Ended != 0 {
		return f.Ended
	}
	return contractRow(f.Reason).code
}

// Outcome returns whether the call was applied.
func (f *Error) Outcome() belfryv1.Outcome { return contractRow(f.Reason).outcome }

// Invalid returns a fault about a field. The format says what is wrong and names the limit.
func Invalid(field, format string, args ...any) *Error {
	return &Error{Reason: belfryv1.Reason_REASON_INVALID, Field: field,
		Message: field + ": " + fmt.Sprintf(format, args...)}
}

// TooMany returns a fault about the number of entries of a field.
func TooMany(field string, is, limit int) *Error {
	return &Error{
		Reason: belfryv1.Reason_REASON_TOO_LARGE, Field: field,
		Message: field + ": " + strconv.Itoa(is) + " entries; the limit is " + strconv.Itoa(limit),
	}
}

// TooLarge returns a fault about the size of a field.
func TooLarge(field string, is, limit int) *Error {
	return &Error{
		Reason: belfryv1.Reason_REASON_TOO_LARGE, Field: field,
		Message: fmt.Sprintf("%s: %d bytes; the limit is %d", field, is, limit),
	}
}

// TooLargeRequest returns the fault of a request that has more than limit bytes; how many is not
// known, because the rest is not read.
func TooLargeRequest(limit string) *Error {
	return &Error{
		Reason: belfryv1.Reason_REASON_TOO_LARGE, Field: "request",
		Message: "request: more than " + limit + " bytes, which is the limit",
	}
}

// New returns the fault of a reason, with the message and the wait of its row.
func New(reason belfryv1.Reason) *Error {
	r := contractRow(reason)
	return &Error{Reason: reason, Message: r.message, RetryAfter: r.retry}
}

// OfResult returns the fault of a result whose code is not OK.
func OfResult(shard uint32, result *fsm.Result) *Error {
	f := New(belfryv1.Reason_REASON_INTERNAL)
	for r := range contract() {
		if r.machine == result.Code && r.machine != fsm.OK {
			f = &Error{Reason: r.reason, Message: r.message, RetryAfter: r.retry}
			break
		}
	}
	f.Shard = &shard
	if result.Wait > 0 {
		f.RetryAfter = result.Wait
	}
	if result.Code == fsm.JobNotFound && result.State != fsm.StateNone {
		f.State = result.State
		f.Message = "the job has ended: it is " + StateName(result.State)
	}
	if result.Code == fsm.KeyRefused {
		f.Field = "key"
	}
	if result.Code == fsm.VersionChanged {
		version := result.Version
		if f.Version = &version; version > 0 {
			f.State, f.Message = result.State, fmt.Sprintf("the job has version %d", version)
		}
	}
	return f
}

// Of returns the fault for err. An error that is neither a fault, nor of package node,
// nor of a context is INTERNAL: its text is for the log, not for the caller.
func Of(err error) *Error {
	var f *Error
	if errors.As(err, &f) {
		return f
	}
	if errors.Is(err, node.ErrUnknownOutcome) && node.OutcomeOf(err) == node.Unknown {
		err = node.ErrUnknownOutcome // other errors in the chain do not count
	}
	for r := range contract() {
		if r.cause != nil && errors.Is(err, r.cause) {
			f := &Error{Reason: r.reason, Message: r.message, RetryAfter: r.retry}
			if errors.Is(r.cause, node.ErrCanceled) {
				f.Ended = endedBy(err)
			}
			if quota, ok := errors.AsType[*node.QuotaError](err); ok {
				f.Message, f.RetryAfter = quota.Error(), quota.Wait
			}
			if voters, ok := errors.AsType[*node.VotersError](err); ok {
				f.Message, f.Voters = voters.Error()+"; what frees space is taken all the same", voters
			}
			if queues, ok := errors.AsType[*node.QueuesError](err); ok {
				f.Message, f.RetryAfter = queues.Error(), 0 // waiting does not help
			}
			if none, ok := errors.AsType[*node.NoQueueError](err); ok {
				f.Message = none.Error()
			}
			if format, ok := errors.AsType[*node.FormatError](err); ok {
				if f.Message = format.Error(); format.Field != "" {
					f.Field, f.Message = format.Field, format.Field+": "+f.Message
				}
			}
			if memory, ok := errors.AsType[*node.MemoryError](err); ok {
				f.Message, f.Memory = memory.Error(), memory
			}
			return f
		}
	}
	if other := (interface{ OtherContent() string })(nil); errors.As(err, &other) {
		f := New(belfryv1.Reason_REASON_INVALID)
		f.Field = "requestId"
		return f
	}
	if code := endedBy(err); code != 0 {
		f := Of(node.ErrCanceled)
		f.Ended = code
		return f
	}
	return New(belfryv1.Reason_REASON_INTERNAL)
}

// endedBy returns Connect's code for the end of a context, 0 for other errors.
func endedBy(err error) connect.Code {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return connect.CodeDeadlineExceeded
	case errors.Is(err, context.Canceled):
		return connect.CodeCanceled
	default:
		return 0
	}
}

// OfShard is Of for an error of one shard, which the fault names unless it names one already.
func OfShard(shard uint32, err error) *Error {
	f := *Of(err)
	if f.Shard == nil {
		f.Shard = &shard
	}
	return &f
}
