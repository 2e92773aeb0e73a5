// Package outcome says what came of an act: what was done, or what went wrong and which input is to
// blame.
package outcome

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"connectrpc.com/connect"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/ui/form"
)

// The errors of pages that are none of the API.
var (
	// ErrReadOnly refuses an act where the dashboard only shows.
	ErrReadOnly = errors.New("this dashboard only shows: the server runs with --ui read")
	// ErrForm is wrapped by the error of a form that cannot be read.
	ErrForm = errors.New("the form cannot be read")
	// ErrAbsent is wrapped by the error of a page about what does not exist.
	ErrAbsent = errors.New("not found")
)

// Problem is what is wrong with a request for a page, or with a form.
type Problem struct {
	// Field is the name of the input; empty if the problem is with none.
	Field string
	// Reason and Text say what is wrong. Reason is empty if it was not a call that failed.
	Reason, Text string
	// Status is that of the answer.
	Status int
	// Unknown says that the act may have been done.
	Unknown bool
}

// Of returns what a page says of an error.
func Of(err error) *Problem {
	out := &Problem{Status: http.StatusInternalServerError, Text: err.Error()}
	f, isFault := fault.FromConnect(err)
	typed, isTyped := errors.AsType[*form.Error](err)
	failure, isFailure := errors.AsType[*connect.Error](err)
	switch {
	case isFault:
		out.Status, out.Reason, out.Text, out.Field = statusOf(f.Code()), fault.ReasonName(f.Reason), f.Message,
			inputOf(f.Field)
		out.Unknown = f.Outcome() == belfryv1.Outcome_OUTCOME_UNKNOWN
	case isFailure: // of a call that no server answered, or of this dashboard itself
		out.Status, out.Text = statusOf(failure.Code()), failure.Message()
	case isTyped:
		out.Status, out.Field = http.StatusBadRequest, typed.Field
	case errors.Is(err, ErrReadOnly):
		out.Status = http.StatusForbidden
	case errors.Is(err, ErrAbsent):
		out.Status = http.StatusNotFound
	case errors.Is(err, ErrForm):
		out.Status = http.StatusBadRequest
	}
	if advice, ok := errors.AsType[*upgradeError](err); ok {
		out.Text = advice.Error()
	}
	if part, ok := errors.AsType[*Partial](err); ok {
		out.Text = part.Done + "; then: " + out.Text
	}
	return out
}

// inputOf returns the name of the input for a field of the API.
func inputOf(field string) string {
	field, _, _ = strings.Cut(strings.TrimPrefix(field, "settings."), "[")
	switch field {
	case "delay", "dueAt":
		return "due"
	case "text":
		return "body"
	case "pausedUntil":
		return "for"
	case "after":
		return "overlap"
	default:
		return field
	}
}

// statusOf returns the status of a page whose call failed.
func statusOf(code connect.Code) int {
	switch code {
	case connect.CodeNotFound:
		return http.StatusNotFound
	case connect.CodeInvalidArgument:
		return http.StatusBadRequest
	case connect.CodePermissionDenied:
		return http.StatusForbidden
	case connect.CodeUnauthenticated:
		return http.StatusUnauthorized
	case connect.CodeAlreadyExists, connect.CodeFailedPrecondition, connect.CodeAborted:
		return http.StatusConflict
	case connect.CodeResourceExhausted:
		return http.StatusTooManyRequests
	case connect.CodeUnimplemented: // in a cluster that is being upgraded
		return http.StatusNotImplemented
	case connect.CodeUnavailable, connect.CodeCanceled, connect.CodeDeadlineExceeded:
		return http.StatusServiceUnavailable
	default:
		return http.StatusInternalServerError
	}
}

// Partial says how much of an act was done before it failed.
type Partial struct {
	// Done is a sentence without an end.
	Done string
	Err  error
}

// Error returns what was done, and why it failed.
func (e *Partial) Error() string { return e.Done + "; then: " + e.Err.Error() }

// Unwrap returns why it failed.
func (e *Partial) Unwrap() error { return e.Err }

// Upgrading returns the error of a call, and has it say what to do if the call failed because not all
// nodes know it yet. what needs the format of that number, such as "Schedules".
func Upgrading(err error, what string, format int) error {
	if connect.CodeOf(err) != connect.CodeUnimplemented {
		return err
	}
	return &upgradeError{what, format, err}
}

// upgradeError is the error of a call that not all nodes know.
type upgradeError struct {
	what   string
	format int
	err    error
}

// Error says what to do.
func (e *upgradeError) Error() string {
	return fmt.Sprintf("%s need format %d, which the cluster writes once every node runs a version that knows it. "+
		"Upgrade all nodes; the page Cluster shows the version of each. Then this page works by itself", e.what, e.format)
}

// Unwrap returns the error of the call.
func (e *upgradeError) Unwrap() error { return e.err }
