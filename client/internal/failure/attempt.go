package failure

import (
	"errors"
	"net"
	"strconv"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/portcheck"
)

// Of returns the typed form of the error of one attempt at a call. Nil stays nil.
func Of(err error) *Error {
	if err == nil {
		return nil
	}
	var typed *Error
	if errors.As(err, &typed) {
		return typed
	}
	var wire *connect.Error
	if !errors.As(err, &wire) || !connect.IsWireError(err) {
		return ofTransport(err)
	}
	e := &Error{Code: wire.Code(), Message: wire.Message(), Outcome: Unknown} // unless the server says more
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

// ofTransport is the error of an attempt that no Belfry server answered: the connection broke,
// or another server answered. Only two cases prove that the call was not applied: the connection
// was never made, or the answer refuses the request.
func ofTransport(err error) *Error {
	e := &Error{Code: connect.CodeOf(err), Outcome: Unknown, Causes: []error{err}}
	foreign, ok := errors.AsType[*portcheck.ForeignResponse](err)
	if ok {
		e.Code, e.Causes[0] = foreign.Code(), foreign
	}
	if wrong, ok := errors.AsType[*portcheck.WrongPort](err); ok {
		e.Causes[0] = wrong
	}
	e.Message = portcheck.Advice(err)
	if ok && foreign.NotExecuted() || Unsent(err) {
		e.Outcome = NotApplied
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
	if version, err := strconv.ParseUint(meta["version"], 10, 64); err == nil {
		e.Version = version
	}
}

// outcomeByCode returns the outcome of an error of Belfry in which this version finds none. A
// refusal names a cause that is found before any change. The other codes can come after one.
func outcomeByCode(code connect.Code) Outcome {
	switch code {
	case connect.CodeInvalidArgument, connect.CodeNotFound, connect.CodeAlreadyExists, connect.CodePermissionDenied,
		connect.CodeFailedPrecondition, connect.CodeOutOfRange, connect.CodeUnimplemented, connect.CodeUnauthenticated,
		connect.CodeResourceExhausted:
		return NotApplied
	default:
		return Unknown
	}
}

// OfEntry returns the typed form of the error of one entry of a batch.
func OfEntry(entry *belfryv1.EntryError) *Error {
	e := &Error{
		Reason:     Reason(strings.TrimPrefix(entry.GetReason().String(), "REASON_")),
		Message:    entry.GetMessage(),
		Outcome:    outcomeOf(entry.GetOutcome()),
		Shard:      entry.Shard,
		Leader:     entry.GetLeader(),
		RetryAfter: entry.GetRetryAfter().AsDuration(),
		Version:    entry.GetVersion(),
	}
	if e.Code.UnmarshalText([]byte(entry.GetCode())) != nil {
		e.Code = connect.CodeUnknown
	}
	if e.Outcome == "" {
		e.Outcome = outcomeByCode(e.Code)
	}
	return e
}

// outcomeOf returns the outcome of a message, empty if it has none that this version knows.
func outcomeOf(o belfryv1.Outcome) Outcome {
	switch o {
	case belfryv1.Outcome_OUTCOME_APPLIED:
		return Applied
	case belfryv1.Outcome_OUTCOME_NOT_APPLIED:
		return NotApplied
	case belfryv1.Outcome_OUTCOME_UNKNOWN:
		return Unknown
	default:
		return ""
	}
}

// outcomeNamed is outcomeOf for a name, which may be in lower case and without its prefix.
func outcomeNamed(name string) Outcome {
	return outcomeOf(belfryv1.Outcome(
		belfryv1.Outcome_value["OUTCOME_"+strings.TrimPrefix(strings.ToUpper(name), "OUTCOME_")]))
}

// Unsent reports whether an attempt ended before any part of it was sent: the connection failed, or
// its TLS handshake did, or the port is not for clients.
func Unsent(err error) bool {
	if _, ok := errors.AsType[*unsentError](err); ok {
		return true
	}
	op, ok := errors.AsType[*net.OpError](err)
	return ok && (op.Op == "dial" || op.Op == "proxyconnect") || portcheck.Unfit(err)
}

// An unsentError says that no part of a call was sent, or that the server did not read what was
// sent.
type unsentError struct{ cause error }

func (e *unsentError) Error() string { return e.cause.Error() }
func (e *unsentError) Unwrap() error { return e.cause }

// NotSent marks the error of an attempt of which no part was sent, or read by the server.
func NotSent(cause error) error { return &unsentError{cause} }
