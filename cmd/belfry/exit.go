package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"

	"connectrpc.com/connect"

	"github.com/belfrydb/belfry/rpc"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// The exit codes. They are part of the contract with scripts: a number keeps its meaning.
const (
	codeOK          = 0
	codeError       = 1
	codeUsage       = 2
	codeNotFound    = 3
	codeUnavailable = 4
	codeUnknown     = 5
	codeConflict    = 6
	codeExhausted   = 7
	codeForbidden   = 8
	codeNothing     = 10
	codeStorage     = 11
	// codeSignal is added to the number of the signal that ended the command, as shells do.
	codeSignal = 128
)

// exitCodesText is the table that the help shows.
const exitCodesText = `Exit codes:
   0  done
   1  an error that has no code of its own
   2  usage: a wrong flag or argument, or a value that the server refuses as invalid
   3  there is no such job or queue
   4  unavailable: no server there, no leader, or the server is stopping; nothing was done
   5  timed out, or the outcome is unknown: it may have been done; repeat it with the --request-id that is printed
   6  conflict: stale lease, job reserved, id taken with other content, queue exists
   7  refused by a limit: queue full, rate, overload, disk
   8  not allowed
  10  reserve: there was nothing to reserve
  11  serve: storage failed, and the node stopped itself rather than risk data
 130  interrupted (128 + the number of the signal)
`

// usageError is a command line that makes no sense.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

// usagef returns a usageError.
func usagef(format string, args ...any) error {
	return &usageError{text: fmt.Sprintf(format, args...)}
}

// codedError is an error with an exit code of its own. Its text is empty if all has been said.
type codedError struct {
	code int
	text string
}

func (e *codedError) Error() string { return e.text }

// exitCode returns the exit code for what a command ended with.
func exitCode(ctx context.Context, err error) int {
	var usage *usageError
	var coded *codedError
	var stopped interruption
	var wire *connect.Error
	switch {
	case err == nil:
		return codeOK
	case errors.As(err, &usage):
		return codeUsage
	case errors.As(err, &coded):
		return coded.code
	case errors.As(context.Cause(ctx), &stopped):
		number, _ := stopped.signal.(syscall.Signal)
		return codeSignal + int(number)
	case errors.As(err, &wire):
		return codeOf(wire.Code())
	default:
		return codeError
	}
}

// codeOf returns the exit code for a Connect code.
func codeOf(code connect.Code) int {
	switch code {
	case connect.CodeInvalidArgument, connect.CodeOutOfRange:
		return codeUsage
	case connect.CodeNotFound:
		return codeNotFound
	case connect.CodeUnavailable:
		return codeUnavailable
	case connect.CodeDeadlineExceeded:
		return codeUnknown
	case connect.CodeAlreadyExists, connect.CodeFailedPrecondition, connect.CodeAborted:
		return codeConflict
	case connect.CodeResourceExhausted:
		return codeExhausted
	case connect.CodeUnauthenticated, connect.CodePermissionDenied:
		return codeForbidden
	default:
		return codeError
	}
}

// wireCode returns codeOf of an error that came over the wire, or from the way to it; codeOK for any other.
func wireCode(err error) int {
	wire, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return codeOK
	}
	return codeOf(wire.Code())
}

// outcomeUnknown reports whether a call that ended with err may have been applied all the same: the server says so, the
// time was up, or the connection broke after it had been made.
func outcomeUnknown(err error) bool {
	var wire *connect.Error
	if !errors.As(err, &wire) {
		return errors.Is(err, context.DeadlineExceeded)
	}
	if fault, ok := rpc.FaultOf(wire); ok {
		return fault.Outcome() == belfryv1.Outcome_OUTCOME_UNKNOWN
	}
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" {
		return false
	}
	switch wire.Code() {
	case connect.CodeUnavailable, connect.CodeDeadlineExceeded:
		return true
	case connect.CodeUnknown, connect.CodeCanceled: // how connections that break show; a reset one is "canceled"
		return !connect.IsWireError(wire)
	default:
		return false
	}
}

// explain returns what to tell the person about err: what happened, and what to do about it where that is known.
func explain(err error) string {
	var wire *connect.Error
	if !errors.As(err, &wire) {
		return err.Error()
	}
	text := wire.Message()
	if fault, ok := rpc.FaultOf(wire); ok {
		text = fault.Error()
	}
	if before, _, found := strings.Cut(err.Error(), wire.Error()); found && before != "" {
		text = before + text
	}
	return text
}
