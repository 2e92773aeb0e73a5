package fault

import (
	"strings"

	"connectrpc.com/connect"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// Explain converts an error that Connect returned before a handler got the request into one of the
// contract. Such requests cannot be read, and none of them had an effect.
func Explain(code connect.Code, message string) *Error {
	message = Clip(message, 300)
	switch code {
	case connect.CodeResourceExhausted:
		if limit := limitIn(message); limit != "" {
			return TooLargeRequest(limit)
		}
		return &Error{Reason: belfryv1.Reason_REASON_TOO_LARGE, Field: "request", Message: "request: " + message}
	case connect.CodeUnimplemented:
		return &Error{Reason: belfryv1.Reason_REASON_UNIMPLEMENTED, Message: message}
	case connect.CodeInternal:
		if !strings.HasPrefix(message, "protocol error") {
			return New(belfryv1.Reason_REASON_INTERNAL)
		}
		return explainUnreadable(message)
	default:
		return explainUnreadable(message)
	}
}

// limitIn returns the limit in a message of Connect about the size of a request; empty if it has
// none. Its wording depends on the protocol, and on what Connect could read of the rest.
func limitIn(message string) string {
	_, after, _ := strings.Cut(message, "larger than configured max ")
	digits := strings.IndexFunc(after, func(r rune) bool { return r < '0' || r > '9' })
	if digits < 0 {
		return after
	}
	return after[:digits]
}

// explainUnreadable names the field that made a request unreadable. Our codecs put the field first,
// after the reason.
func explainUnreadable(message string) *Error {
	text, ours := strings.CutPrefix(message, "unmarshal message: ")
	reason := belfryv1.Reason_REASON_INVALID
	if rest, large := strings.CutPrefix(text, "TOO_LARGE: "); ours && large {
		reason, text = belfryv1.Reason_REASON_TOO_LARGE, rest
	}
	text = strings.TrimPrefix(text, "INVALID: ")
	if field, _, ok := strings.Cut(text, ": "); ours && ok && !strings.ContainsAny(field, " \u00a0") {
		return &Error{Reason: reason, Field: field, Message: text}
	}
	return Invalid("request", "%s", text)
}
