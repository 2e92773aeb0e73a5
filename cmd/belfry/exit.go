package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"

	"connectrpc.com/connect"

	"github.com/belfrydb/belfry/client"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
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
	codeUnhealthy   = 12
	codeWaited      = 13
	// codeSignal is added to the number of the signal that ended the command, as shells do.
	codeSignal = 128
)

// exitCodesText is the table that the help shows.
const exitCodesText = `Exit codes:
   0  done
   1  an error that has no code of its own
   2  usage: a wrong flag or argument, or a value that the server refuses as invalid
   3  there is no such job, queue, token or quota
   4  unavailable: no server there, no leader, or the server is stopping; nothing was done
   5  timed out, or the outcome is unknown: it may have been done; repeat it with the --request-id that is printed
   6  conflict: stale lease, job reserved, id taken with other content, queue exists, backup into a file that exists
   7  refused by a limit: queue full, rate, overload, disk
   8  not allowed
  10  reserve: there was nothing to reserve
  11  serve: storage failed or is full, is damaged or holds what this version cannot read, and the node stopped itself rather than risk data
  12  cluster status: something is not as it should be; the output says what
  13  cluster status --wait: the cluster was not whole in time; the output says what is missing
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
	var sdk *client.Error
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
	case errors.As(err, &sdk):
		return codeOf(sdk.Code)
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
	if fault, ok := fault.FromConnect(wire); ok {
		return fault.Outcome() == belfryv1.Outcome_OUTCOME_UNKNOWN
	}
	if unsent(err) {
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

// unsent reports whether a call ended before anything of it was sent: no connection came about, or none with TLS.
func unsent(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && (op.Op == "dial" || op.Op == "proxyconnect") || misdirected(err) != ""
}

// misdirected says why a TLS handshake failed that will fail again; "" for any other error. Only what is certain to have
// come before the handshake's end counts: a connection that breaks in it looks like one that breaks later.
func misdirected(err error) string {
	if record, ok := errors.AsType[tls.RecordHeaderError](err); ok && record.Conn != nil || errors.Is(err, http.ErrSchemeMismatch) {
		return "the server does not speak TLS: write http:// instead of https://"
	}
	if bad, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		text := "its certificate is not accepted: " + bad.Err.Error()
		if _, unknown := errors.AsType[x509.UnknownAuthorityError](bad.Err); unknown {
			text += "; name the authority behind it with --tls-ca"
		}
		return text
	}
	return ""
}

// explain returns what to tell the person about err: what happened, and what to do about it where that is known.
func explain(err error) string {
	var wire *connect.Error
	if !errors.As(err, &wire) {
		return err.Error()
	}
	text := wire.Message()
	if fault, ok := fault.FromConnect(wire); ok {
		text = fault.Error()
		if fault.Reason == belfryv1.Reason_REASON_NO_LEADER && fault.Shard != nil { // without a shard it is a node that waits for its cluster
			text += "; see 'belfry cluster status'"
		}
	}
	if before, _, found := strings.Cut(err.Error(), wire.Error()); found && before != "" {
		text = before + text
	}
	return text
}
