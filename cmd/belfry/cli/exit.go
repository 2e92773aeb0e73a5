package cli

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
	CodeOK          = 0
	CodeError       = 1
	CodeUsage       = 2
	CodeNotFound    = 3
	CodeUnavailable = 4
	CodeUnknown     = 5
	CodeConflict    = 6
	CodeExhausted   = 7
	CodeForbidden   = 8
	CodeNothing     = 10
	CodeStorage     = 11
	CodeUnhealthy   = 12
	CodeWaited      = 13
	CodePartly      = 14
	CodeDiffers     = 15
	// CodeSignal is added to the number of the signal that ended the command, as shells do.
	CodeSignal = 128
)

// ExitCodesText is the table that the help shows.
const ExitCodesText = `Exit codes:
   0  done
   1  an error that has no code of its own
   2  usage: a wrong flag or argument, or a value that the server refuses as invalid
   3  there is no such job, queue, schedule, token or quota
   4  unavailable: no server there, no leader, or the server is stopping; nothing was done
   5  timed out, or the outcome is unknown: it may have been done; repeat it, with the --request-id that is printed
      if there is one
   6  conflict: stale lease, job reserved, id taken with other content, version changed, queue exists, backup into a
      file that exists
   7  refused by a limit: queue full, rate, overload, disk
   8  not allowed
  10  reserve: there was nothing to reserve
  11  serve: storage failed or is full, is damaged or holds what this version cannot read, and the node
      stopped itself rather than risk data
  12  cluster status: something is not as it should be; the output says what
  13  cluster status --wait: the cluster was not whole in time; the output says what is missing
  14  an act on many jobs or schedules ended early: it was stopped or gave up, and only a part is done; the output
      says how much
  15  schedule apply --dry-run: there is a difference
 130  interrupted (128 + the number of the signal)
`

// UsageError is a command line that makes no sense.
type UsageError struct{ text string }

func (e *UsageError) Error() string { return e.text }

// Usagef returns a UsageError.
func Usagef(format string, args ...any) error {
	return &UsageError{text: fmt.Sprintf(format, args...)}
}

// codedError is an error with an exit code of its own. Its text is empty if all has been said.
type codedError struct {
	code int
	text string
}

// ExitWith returns an error that ends a command with an exit code. An empty text says nothing more.
func ExitWith(code int, text string) error { return &codedError{code, text} }

func (e *codedError) Error() string { return e.text }

// ExitCode returns the exit code for what a command ended with.
func ExitCode(ctx context.Context, err error) int {
	var usage *UsageError
	var coded *codedError
	var stopped Interruption
	var wire *connect.Error
	var sdk *client.Error
	switch {
	case err == nil:
		return CodeOK
	case errors.As(err, &usage):
		return CodeUsage
	case errors.As(err, &coded):
		return coded.code
	case errors.As(context.Cause(ctx), &stopped):
		number, _ := stopped.Signal.(syscall.Signal)
		return CodeSignal + int(number)
	case errors.As(err, &wire):
		return CodeOf(wire.Code())
	case errors.As(err, &sdk):
		return CodeOf(sdk.Code)
	default:
		return CodeError
	}
}

// CodeOf returns the exit code for a Connect code.
func CodeOf(code connect.Code) int {
	switch code {
	case connect.CodeInvalidArgument, connect.CodeOutOfRange:
		return CodeUsage
	case connect.CodeNotFound:
		return CodeNotFound
	case connect.CodeUnavailable:
		return CodeUnavailable
	case connect.CodeDeadlineExceeded:
		return CodeUnknown
	case connect.CodeAlreadyExists, connect.CodeFailedPrecondition, connect.CodeAborted:
		return CodeConflict
	case connect.CodeResourceExhausted:
		return CodeExhausted
	case connect.CodeUnauthenticated, connect.CodePermissionDenied:
		return CodeForbidden
	default:
		return CodeError
	}
}

// WireCode returns the exit code of an error that came over the wire, or from the way to it; CodeOK
// for any other.
func WireCode(err error) int {
	wire, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return CodeOK
	}
	return CodeOf(wire.Code())
}

// InvalidField returns what a server says of a field that it refuses as INVALID, without its name. ok
// is false for any other error.
func InvalidField(err error, field string) (text string, ok bool) {
	f, ok := fault.FromConnect(err)
	if !ok || f.Reason != belfryv1.Reason_REASON_INVALID || f.Field != field {
		return "", false
	}
	return strings.TrimPrefix(f.Message, field+": "), true
}

// WrongField returns the field that err refuses as INVALID or TOO_LARGE, and what it says of the field,
// without its name. ok is false for any other error.
func WrongField(err error) (field, text string, ok bool) {
	f, ok := errors.AsType[*fault.Error](err)
	if !ok {
		f, ok = fault.FromConnect(err)
	}
	wrong := ok && (f.Reason == belfryv1.Reason_REASON_INVALID || f.Reason == belfryv1.Reason_REASON_TOO_LARGE)
	if !wrong || f.Field == "" {
		return "", "", false
	}
	return f.Field, strings.TrimPrefix(f.Message, f.Field+": "), true
}

// ReasonOf returns the reason that a server gave for a refusal; not set for any other error.
func ReasonOf(err error) belfryv1.Reason {
	f, ok := fault.FromConnect(err)
	if !ok {
		return belfryv1.Reason_REASON_UNSPECIFIED
	}
	return f.Reason
}

// OutcomeUnknown reports whether a call that ended with err may have been applied all the same: the
// server says so, the time was up, or the connection broke after it had been made.
func OutcomeUnknown(err error) bool {
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

// unsent reports whether a call ended before anything of it was sent: no connection came about, or
// none with TLS.
func unsent(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && (op.Op == "dial" || op.Op == "proxyconnect") || Misdirected(err) != ""
}

// Misdirected says why a TLS handshake failed that will fail again; "" for any other error. Only
// what is certain to have come before the handshake's end counts: a connection that breaks in it
// looks like one that breaks later.
func Misdirected(err error) string {
	if record, ok := errors.AsType[tls.RecordHeaderError](err); ok && record.Conn != nil ||
		errors.Is(err, http.ErrSchemeMismatch) {
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

// Explain returns what to tell the person about err: what happened, and what to do about it where
// that is known.
func Explain(err error) string {
	var wire *connect.Error
	if !errors.As(err, &wire) {
		return err.Error()
	}
	text := wire.Message()
	if fault, ok := fault.FromConnect(wire); ok {
		text = fault.Error()
		// without a shard it is a node that waits for its cluster
		if fault.Reason == belfryv1.Reason_REASON_NO_LEADER && fault.Shard != nil {
			text += "; see 'belfry cluster status'"
		}
	}
	if before, _, found := strings.Cut(err.Error(), wire.Error()); found && before != "" {
		text = before + text
	}
	return text
}
