package auth

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/belfrydb/belfry/access/tokens"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
)

// auditedBytesMax bounds the text of a request in the log. All scopes of a token fit.
const auditedBytesMax = 4 << 10

// AuditLog writes the audit log.
type AuditLog struct {
	// Audited has the procedures whose calls are all logged.
	Audited map[string]bool
	// Logger receives the lines.
	Logger *slog.Logger
	// Failures logs refused calls, up to a rate.
	Failures *Failures
}

// CallEnded logs the end of an audited call, and of any other call that was refused because it
// lacked a token or a scope. err is the error of Connect that the caller gets. Failures limits the
// lines of calls that were refused before they had an effect: a token with the smallest scope must
// not fill the log.
func (a *AuditLog) CallEnded(ctx context.Context, c *Call, err error, took time.Duration) {
	known, _ := ctx.Value(callerKey{}).(*caller)
	outcome, code := "ok", connect.Code(0)
	if wire := new(connect.Error); errors.As(err, &wire) {
		code = wire.Code()
		outcome = code.String() + ": " + fault.Clip(tokens.Mask(wire.Message()), fault.QuotedBytesMax)
	}
	audited, refused := a.Audited[c.Procedure], code == connect.CodeUnauthenticated || code == connect.CodePermissionDenied
	switch {
	case refused && !audited:
		// without the request: the log must not have the content of jobs
		a.Failures.auditCall(known, &Call{Procedure: c.Procedure, Address: c.Address, ID: c.ID}, outcome)
		return
	case refused || audited && code == connect.CodeInvalidArgument:
		a.Failures.auditCall(known, c, outcome)
		return
	case !audited:
		return
	}
	attrs := append(auditAttrs(known, c, outcome), slog.Duration("took", took))
	if made, ok := c.Answer.(*belfryv1.CreateTokenResponse); ok {
		attrs = append(attrs, slog.String("made", made.GetRecord().GetId()))
	}
	a.Logger.Info("audit", attrs...)
}

// auditAttrs returns the attributes of each line of the audit log. It masks a token that was sent
// in place of a name.
func auditAttrs(who *caller, c *Call, outcome string) []any {
	id := "nobody"
	if who != nil {
		id = who.id
	}
	attrs := []any{slog.String("token", id), slog.String("address", c.Address),
		slog.String("procedure", fault.Clip(c.Procedure, fault.QuotedBytesMax))}
	if c.Request != nil {
		attrs = append(attrs, slog.String("request", requestText(c.Request)))
	}
	return append(attrs, slog.String("outcome", outcome), slog.String("request_id", c.ID))
}

// requestText returns the text of a request for the log. It masks tokens, which a caller may send
// in place of an id.
func requestText(request any) string {
	m, ok := request.(proto.Message)
	if !ok {
		return ""
	}
	text, err := protojson.MarshalOptions{}.Marshal(m)
	if err != nil {
		return "cannot be written"
	}
	return fault.Clip(tokens.Mask(string(text)), auditedBytesMax)
}
