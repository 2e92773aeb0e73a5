package rpc

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/belfrydb/belfry/access/tokens"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
	"github.com/belfrydb/belfry/rpc/fault"
)

// auditedBytesMax bounds the text of a request in the log. All scopes of a token fit.
const auditedBytesMax = 4 << 10

// auditedMethods returns the procedures whose calls are all logged: Redrive, and those of
// AdminService that change state or export everything. Their requests contain no bodies of jobs and
// no secrets.
func auditedMethods() map[string]bool {
	audited := map[string]bool{belfryv1connect.QueueServiceRedriveProcedure: true}
	for _, m := range methodsOfContract() {
		if strings.HasPrefix(m.procedure, "/"+belfryv1connect.AdminServiceName+"/") && !m.reads {
			audited[m.procedure] = true
		}
	}
	return audited
}

// audit logs the end of an audited call, and of any other call that was refused because it lacked a
// token or a scope. authFailures limits the lines of calls that were refused before they had an
// effect: a token with the smallest scope must not fill the log.
func (e *interceptor) audit(ctx context.Context, c *procedureCall, err error, took time.Duration) {
	known, _ := ctx.Value(callerKey{}).(*caller)
	outcome, code := "ok", connect.Code(0)
	if wire := new(connect.Error); errors.As(err, &wire) {
		code = wire.Code()
		outcome = code.String() + ": " + fault.Clip(tokens.Mask(wire.Message()), fault.QuotedBytesMax)
	}
	audited, refused := e.audited[c.procedure], code == connect.CodeUnauthenticated || code == connect.CodePermissionDenied
	switch {
	case refused && !audited:
		e.authorizer.failures.auditCall(known, &procedureCall{procedure: c.procedure, address: c.address, id: c.id}, outcome) // without the request: the log must not have the content of jobs
		return
	case refused || audited && code == connect.CodeInvalidArgument:
		e.authorizer.failures.auditCall(known, c, outcome)
		return
	case !audited:
		return
	}
	attrs := append(auditAttrs(known, c, outcome), slog.Duration("took", took))
	if made, ok := c.answer.(*belfryv1.CreateTokenResponse); ok {
		attrs = append(attrs, slog.String("made", made.GetRecord().GetId()))
	}
	e.auditor.Info("audit", attrs...)
}

// auditAttrs returns the attributes of each line of the audit log. It masks a token that was sent
// in place of a name.
func auditAttrs(who *caller, c *procedureCall, outcome string) []any {
	id := "nobody"
	if who != nil {
		id = who.id
	}
	attrs := []any{slog.String("token", id), slog.String("address", c.address), slog.String("procedure", fault.Clip(c.procedure, fault.QuotedBytesMax))}
	if c.request != nil {
		attrs = append(attrs, slog.String("request", requestText(c.request)))
	}
	return append(attrs, slog.String("outcome", outcome), slog.String("request_id", c.id))
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
